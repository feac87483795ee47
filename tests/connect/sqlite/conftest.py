"""A database and who writes to it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.connect.cdc.sqlite import run


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source driven by hand says sooner that it has nothing to say."""
    monkeypatch.setattr(run, "QUIET_SECONDS", 0.005)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode = wal")
    yield connection
    connection.close()
