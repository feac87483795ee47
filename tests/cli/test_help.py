"""Every command and option explains itself, and docs/cli.md has them all."""

import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from headwater import __version__
from headwater.cli.main import app
from tests.cli.conftest import run

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands below ``command``, with the words that lead to them."""
    command = command or typer.main.get_command(app)
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


LEAVES = [(path, command) for path, command in commands() if not getattr(command, "commands", {})]


def test_the_verbs_are_all_there() -> None:
    assert {" ".join(path) for path, _ in LEAVES} == {
        "broker", "produce", "consume", "log check",
        "topics list", "topics create", "topics describe", "topics alter", "topics delete",
        "groups list", "groups describe", "groups reset", "groups delete",
        "up", "run", "status", "graph", "views", "replay", "jars",
        "connect run", "connect status", "connect signal", "connect remove", "doctor",
        "serve",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "command"), list(commands()), ids=lambda item: " ".join(item) if isinstance(item, tuple) else ""
)
def test_every_command_and_option_has_help(path: tuple[str, ...], command: Any) -> None:
    assert command.help, path
    for parameter in command.params:
        assert parameter.help, (path, parameter.name)


@pytest.mark.parametrize(
    ("path", "command"), LEAVES, ids=lambda item: " ".join(item) if isinstance(item, tuple) else ""
)
def test_every_verb_shows_examples(path: tuple[str, ...], command: Any) -> None:
    result = run(*path, "--help")
    assert result.code == 0 and result.err == ""
    examples = re.findall(r"^    \S.*headwater .*$|^    headwater .*$", result.out, re.M)
    assert len(examples) >= 2, result.out
    assert any(f"headwater {' '.join(path)}" in example for example in examples)
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("-"):
                assert option in result.out


@pytest.mark.parametrize(
    ("path", "command"), LEAVES, ids=lambda item: " ".join(item) if isinstance(item, tuple) else ""
)
def test_the_documentation_has_every_command_and_option(path: tuple[str, ...], command: Any) -> None:
    text = DOCS.read_text()
    heading = f"## headwater {' '.join(path)}"
    assert re.search(rf"^#+ `headwater {' '.join(path)}\b", text, re.M), heading
    section = re.split(r"^## ", text, flags=re.M)
    (own,) = [part for part in section if part.startswith(f"`headwater {' '.join(path)}")]
    common = next(part for part in section if part.startswith("Common"))
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("-") and option not in ("--help", "-h"):
                assert f"`{option}" in own or f"`{option}" in common, (path, option)


def test_help_and_version_are_quick() -> None:
    best = min(_processor_seconds("--help") for _ in range(5))
    assert best < 0.4, f"headwater --help took {best:.2f} s of processor time"
    assert run("--version").out == f"headwater {__version__}\n"


def _processor_seconds(*arguments: str) -> float:
    """What the command itself used, however busy the machine is."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(*arguments).code == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_imports_nothing_heavy() -> None:
    code = "import headwater.cli.main, sys; print([name for name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in (
        "confluent_kafka",
        "rich.console",
        "kio",
        "orjson",
        "headwater.broker",
        "asyncio",
        "tomllib",
    ):
        assert f"'{heavy}'" not in loaded, heavy
