"""A database of its own for each test, on the server that all tests share."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.connect.postgres.following import Following
from tests.support.postgres import Postgres

_numbers = itertools.count(1)
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    name = f"capture{next(_numbers)}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres.url().rsplit("/", 1)[0] + f"/{name}"
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE database = %s AND active_pid IS NOT NULL",
            [name],
        )
        for _ in range(200):
            try:
                connection.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
                    [name],
                )
                break
            except psycopg.errors.ObjectInUse:
                continue
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def db(url: str) -> Iterator[Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def follow(url: str, tmp_path: Path) -> Iterator[Callable[..., Following]]:
    made: list[Following] = []

    def make(**options: Any) -> Following:
        options.setdefault("name", "shop")
        made.append(Following(options.pop("url", url), tmp_path / "data", **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
