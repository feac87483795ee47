"""Tables: topics of changes as current state, and views over them, against a plain fold of the same changes."""

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

import headwater as hw
from headwater.streams.engine.engine import Engine
from tests.streams.conftest import Bench, settle, wait_for

USERS = "id long, name string, country string"
Row = dict[str, Any]
Record = tuple[bytes | None, bytes | None]


def shop(**more: Any) -> hw.App:
    app = hw.App("bench")
    app.table("shop.users", USERS, key="id", **more)

    @app.view(key="country")
    def users_by_country(users: DataFrame) -> DataFrame:
        return users.groupBy("country").count()

    return app


def event(op: str, before: Row | None, after: Row | None, connector: str = "postgresql") -> Row:
    """Debezium's envelope."""
    source = {"version": "3.4.0.Final", "connector": connector, "name": "shop", "table": "users"}
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1}


def record(key: Any, value: Any) -> Record:
    return (
        None if key is None else json.dumps(key).encode(),
        None if value is None else json.dumps(value).encode(),
    )


def put(bench: Bench, topic: str, records: Iterable[Record]) -> None:
    for key, value in records:
        bench.send(topic, [value], key)


def table(engine: Engine, name: str = "users", key: str = "id") -> dict[Any, Row]:
    return {row[key]: row for row in engine.store.rows(name)}


def settled(engine: Engine, *views: str) -> None:
    """Waits until the tables cover the log, and the views over them the tables."""
    settle(engine)
    for view in views:
        covered = {table: engine.store.progress(table) for table in engine.graph.nodes[view].inputs}
        wanted = {name: [held.version, held.batch] for name, held in covered.items()}
        wait_for(lambda: engine.store.progress(view).offsets.get("views") == wanted)  # noqa: B023


def test_a_table_holds_the_newest_row_of_each_key(bench: Bench) -> None:
    ada, bob = ({"id": 1, "name": "Ada", "country": "GB"}, {"id": 2, "name": "Bob", "country": "US"})
    put(
        bench,
        "shop.users",
        [
            record({"id": 1}, event("r", None, ada)),
            record({"id": 2}, event("c", None, bob)),
            record({"id": 2}, event("u", None, {**bob, "country": "GB"})),
            record({"id": 3}, event("c", None, {**bob, "id": 3})),
            record({"id": 3}, event("d", {"id": 3, "name": None, "country": None}, None)),
            record({"id": 3}, None),
        ],
    )
    with bench.running(shop()) as engine:
        settled(engine, "users_by_country")
        assert table(engine) == {1: ada, 2: {**bob, "country": "GB"}}
        assert engine.store.rows("users_by_country") == [{"country": "GB", "count": 2}]
        assert engine.status["users"].kind == "table" and engine.status["users"].error is None
        # A key that changed: its old row goes, the new one comes.
        put(
            bench,
            "shop.users",
            [
                record({"id": 1}, event("d", ada, None)),
                record({"id": 1}, None),
                record({"id": 9}, event("c", None, {**ada, "id": 9})),
            ],
        )
        settled(engine, "users_by_country")
        assert sorted(table(engine)) == [2, 9]
