"""A world to look at, the server of its application, and a browser; shared by the tests of this directory."""

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.support.chromium import chromium, new_page
from tests.support.servers import Headwater
from tests.ui.world import World

APPLICATION = Path(__file__).with_name("shop.py")
PROGRAM = str(Path(sys.executable).with_name("headwater"))


@pytest.fixture(scope="session")
def world(headwater: Headwater, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """It goes on by itself."""
    made = World(tmp_path_factory.mktemp("dashboard"), headwater.bootstrap)
    made.make()
    made.run()
    yield made
    made.close()
    for reason in made.missed:  # pages go on showing what is there; pytest's summary says why
        warnings.warn(f"the world has missed a step:\n{reason}", stacklevel=1)
    assert len(made.missed) <= 3


@pytest.fixture(scope="session")
def address(world: World) -> Iterator[str]:
    """Where the dashboard is."""
    with served(world) as address:
        yield address


@contextmanager
def served(world: World, **environment: str) -> Iterator[str]:
    """`headwater serve` in a process of its own; gives the address of the dashboard."""
    command = [PROGRAM, "serve", str(APPLICATION), "--port", "0", "--data", str(world.data)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    process = subprocess.Popen(
        [*command, "--bootstrap", world.bootstrap], stdout=subprocess.PIPE, text=True, env=clean | environment
    )
    try:
        assert process.stdout is not None
        ready = re.search(r"ready at (http://\S+)", process.stdout.readline())
        assert ready is not None, "the server did not start; its reason is above"
        yield ready[1].rstrip("/") + "/ui"
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that may ask nobody but our server, and complain about nothing."""
    page = new_page(browser)
    wrong: list[str] = []
    allowed = address.removesuffix("/ui")
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda asked: (
            wrong.append(asked.url) if not asked.url.startswith((allowed, "data:", "blob:")) else None
        ),
    )
    yield page
    page.context.close()
    assert wrong == []
