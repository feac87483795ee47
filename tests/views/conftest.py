"""Both stores behind one fixture: a test that takes ``url`` or ``store`` runs for SQLite and PostgreSQL."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.views import ViewStore, open_store

_numbers = itertools.count(1)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that no other test uses."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/views.db"
    address: str = request.getfixturevalue("postgres").url(f"test {next(_numbers)} 100%")
    return address.replace("%", "%25").replace(" ", "%20")


@pytest.fixture
def store(url: str) -> Iterator[ViewStore]:
    with open_store(url) as opened:
        yield opened
