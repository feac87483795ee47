"""Tables: topics of changes as current state, and views over them, against a plain fold of the same changes."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.client.admin import Admin
from headwater.errors import ApplicationInvalid, ViewChanged
from headwater.streams.engine.engine import Engine
from headwater.streams.engine.replays import Replays
from tests.streams.conftest import Bench, settle, wait_for

USERS = "id long, name string, country string"
Row = dict[str, Any]
Record = tuple[bytes | None, bytes | None]


def shop(schema: str = USERS, **more: Any) -> hw.App:
    app = hw.App("bench")
    app.table("shop.users", schema, key="id", **more)

    @app.view(key="country")
    def users_by_country(users: DataFrame) -> DataFrame:
        return users.groupBy("country").count()

    return app


def event(op: str, before: Row | None, after: Row | None, connector: str = "postgresql") -> Row:
    """Debezium's envelope."""
    source = {"version": "3.4.0.Final", "connector": connector, "name": "shop", "table": "users"}
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1}


def record(key: Any, value: Any) -> Record:
    key, value = (None if each is None else json.dumps(each).encode() for each in (key, value))
    return key, value


def user(number: int, name: str = "Ada", country: str | None = "GB") -> Row:
    return {"id": number, "name": name, "country": country}


def put(bench: Bench, topic: str, records: Iterable[Record]) -> None:
    for key, value in records:
        bench.send(topic, [value], key)


def table(engine: Engine, name: str = "users", key: str = "id") -> dict[Any, Row]:
    return {row[key]: row for row in engine.store.rows(name)}


def settled(engine: Engine, *views: str) -> None:
    """Waits until the tables cover the log, and the views over them the tables."""
    settle(engine)
    for view in views:
        covered = {name: engine.store.progress(name) for name in engine.graph.nodes[view].inputs}
        wanted = {name: [held.version, held.batch] for name, held in covered.items()}
        wait_for(
            lambda: engine.store.progress(view).offsets.get("views") == wanted,  # noqa: B023
            lambda: str((engine.status[view].error, wanted)),  # noqa: B023
        )


def test_a_table_holds_the_newest_row_of_each_key(bench: Bench) -> None:
    put(
        bench,
        "shop.users",
        [
            record({"id": 1}, event("r", None, user(1))),
            record({"id": 2}, event("c", None, user(2, "Bob", "US"))),
            record({"id": 2}, event("u", None, user(2, "Bob", "GB"))),
            record({"id": 3}, event("c", None, user(3))),
            record({"id": 3}, event("d", {"id": 3, "name": None, "country": None}, None)),
            record({"id": 3}, None),
        ],
    )
    with bench.running(shop()) as engine:
        settled(engine, "users_by_country")
        assert table(engine) == {1: user(1), 2: user(2, "Bob", "GB")}
        assert engine.store.rows("users_by_country") == [{"country": "GB", "count": 2}]
        assert engine.status["users"].kind == "table" and engine.status["users"].error is None
        # A key that changed: its old row goes, the new one comes. With Connect's schema around it, too.
        wrapped = {"schema": {"type": "struct", "fields": []}, "payload": event("c", None, user(9))}
        put(
            bench,
            "shop.users",
            [
                record({"id": 1}, event("d", user(1), None)),
                record({"id": 1}, None),
                record({"id": 9}, wrapped),
            ],
        )
        settled(engine, "users_by_country")
        assert sorted(table(engine)) == [2, 9]
        # What makes no sense as a change is set aside.
        put(
            bench,
            "shop.users",
            [
                (b'{"id":5}', b"not json"),
                record({"id": 5}, event("x", None, user(5))),
                record({"id": 5}, event("c", None, {"id": "five"})),
                record({"number": 2}, None),
                record(None, {"name": "nobody"}),
                record({"id": 6}, event("c", None, user(6))),
            ],
        )
        settled(engine)
        assert sorted(table(engine)) == [2, 6, 9]
        wait_for(lambda: len(bench.messages("users.dead")) == 5)
        assert engine.status["users"].dead == 5
        headers: list[Any] = [message.headers() for message in bench.messages("users.dead")]
        reasons = [dict(each)["headwater.reason"].decode() for each in headers]
        assert "operation 'x'" in reasons[1] and "its key has no 'id'" in reasons[3]
        with (
            pytest.raises(ViewChanged, match="version=2"),
            bench.running(shop("id long, name string, country string, age int")),
        ):
            pass


class Writer:
    """A random writer, which knows what its table holds."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rows: dict[int, Row] = {}

    def changes(self, count: int) -> list[Record]:
        made: list[Record] = []
        while len(made) < count:
            made += self._change()
        return made

    def _change(self) -> list[Record]:
        chance, number = self.chance, self.chance.randrange(60)
        row = user(number, f"n{chance.randrange(1000)}", chance.choice(["GB", "US", "FR", None]))
        key, held = {"id": number}, self.rows.get(number)
        if chance.random() < 0.004:
            self.rows.clear()
            return [(b"null", record(None, event("t", None, None))[1])]  # compacted topics want a key
        if held is None:
            self.rows[number] = row
            return [record(key, event(chance.choice("cr"), None, row))]
        kind = chance.random()
        if kind < 0.2:
            del self.rows[number]
            before = chance.choice([held, {"id": number, "name": None, "country": None}])
            removed = [record(key, event("d", before, None)), record(key, None)]
            return removed[chance.randrange(2) :]  # compaction may have taken the first
        if kind < 0.3:
            free = next(each for each in range(100, 10_000) if each not in self.rows)
            del self.rows[number]
            self.rows[free] = {**row, "id": free}
            moved = event("c", None, self.rows[free])
            return [record(key, event("d", held, None)), record(key, None), record({"id": free}, moved)]
        self.rows[number] = row
        return [record(key, event("u", None, row))]


def test_random_changes_equal_a_fold_of_them_over_restarts(bench: Bench) -> None:
    writer = Writer(5)
    for part in range(3):
        with bench.running(shop()) as engine:
            for _ in range(4):
                put(bench, "shop.users", writer.changes(150))
                time.sleep(0.2)
            if part < 2:
                continue  # what is under way when it stops is repeated
            Replays(bench.data).ask("users", "2030-01-01T00:00:00+00:00")  # a table begins at the beginning
            wait_for(lambda: engine.store.progress("users").version == 2)
            settled(engine, "users_by_country")
            assert table(engine) == writer.rows
            counted = {row["country"]: row["count"] for row in engine.store.rows("users_by_country")}
            assert counted == dict(Counter(row["country"] for row in writer.rows.values()))
            assert engine.store.progress("users").rows == len(writer.rows)
            assert engine.status["users"].dead == 0


def test_plain_rows_and_changelogs_of_views_are_tables_too(bench: Bench) -> None:
    first = hw.App("first")
    first.stream("events", "k string, price decimal(20,2), at timestamp")

    @first.view(key=["k", "at"])
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("k", "at").agg(F.sum("price").cast("decimal(20,2)").alias("price"))

    second = hw.App("second")
    columns = "k string, at timestamp, price decimal(20,2)"
    second.table("first.totals", columns, key=["k", "at"], name="known")
    second.table("limits", "k string, most int", key="k")

    @second.view(key=["k", "at"])
    def above(known: DataFrame, limits: DataFrame) -> DataFrame:
        return known.join(limits, "k").where("price > most").select("k", "at", "price")

    clashing = hw.App("clashing")
    clashing.table("first.totals", columns, key=["k", "at"])
    at = "2026-01-02T03:04:05.000006Z"
    bench.send(
        "events", [{"k": "a", "price": 9007199254740993.01, "at": at}, {"k": "b", "price": 1, "at": at}]
    )
    bench.send("events", [b'{"k":"a","price":9007199254740993.01,"at":"2026-01-03T00:00:00Z"}'])
    with bench.running(first) as engine:
        settle(engine)
        expected = engine.store.rows("totals")
    with pytest.raises(ViewChanged, match="has a view of that name"), bench.running(clashing):
        pass
    put(
        bench,
        "limits",
        [(b"a", b'{"most":5}'), (b"b", b'{"k":"b","most":5}'), (b"c", b'{"most":1}'), (b"c", None)],
    )
    with bench.running(second) as engine:
        settled(engine, "above")
        assert engine.store.rows("known") == expected  # every digit
        assert table(engine, "limits", "k") == {"a": {"k": "a", "most": 5}, "b": {"k": "b", "most": 5}}
        assert [row["k"] for row in engine.store.rows("above")] == ["a", "a"]
        put(bench, "limits", [(b"a", None), (b"b", b'{"most":0}')])
        settled(engine, "above")
        assert [row["k"] for row in engine.store.rows("above")] == ["b"]


def test_a_value_that_debezium_leaves_out_stays_as_it_was(bench: Bench) -> None:
    unavailable = "__debezium_unavailable_value"
    put(
        bench,
        "shop.users",
        [
            record({"id": 1}, event("c", None, user(1, "a long story"))),
            record({"id": 1}, event("u", None, user(1, unavailable, "US"))),
            record({"id": 2}, event("c", None, user(2, "another"))),
        ],
    )
    with bench.running(shop()) as engine:
        settled(engine)
        assert table(engine)[1] == user(1, "a long story", "US")
        put(bench, "shop.users", [record({"id": 2}, event("u", None, user(2, unavailable, "FR")))])
        settled(engine)
        assert table(engine)[2] == user(2, "another", "FR")


@pytest.mark.wide
def test_a_table_that_was_away_longer_than_tombstones_are_kept_is_built_anew(bench: Bench) -> None:
    admin = Admin(bench.connection)
    admin.create_topic("shop.users", 1, configs={"cleanup.policy": "compact", "delete.retention.ms": "0"})
    put(bench, "shop.users", [record({"id": number}, event("c", None, user(number))) for number in (1, 2)])
    with bench.running(shop()) as engine:
        settled(engine)
    with bench.running(shop()) as engine:  # nothing has come meanwhile: nothing can have been missed
        assert engine.status["users"].build == 1
    put(bench, "shop.users", [record({"id": 1}, None)])
    with bench.running(shop()) as engine:
        assert engine.status["users"].build == 2
        wait_for(lambda: engine.store.progress("users").version == 2)
        assert sorted(table(engine)) == [2]


def test_a_truncate_among_several_partitions_stops_the_table_and_says_why(bench: Bench) -> None:
    Admin(bench.connection).create_topic("shop.users", 2)
    put(bench, "shop.users", [record({"id": number}, event("c", None, user(number))) for number in range(9)])
    with bench.running(shop()) as engine:
        settled(engine)
        assert len(table(engine)) == 9
        put(bench, "shop.users", [record(None, event("t", None, None))])
        wait_for(lambda: "2 partitions" in (engine.status["users"].error or ""))
        assert engine.status["users"].state == "failed" and len(table(engine)) == 9


def test_what_cannot_be_wired_is_refused_in_one_sentence(bench: Bench) -> None:
    mixed = hw.App("bench")
    mixed.stream("clicks", "user_id long, page string")
    mixed.table("shop.users", USERS, key="id")

    @mixed.view(key="page")
    def by_page(clicks: DataFrame, users: DataFrame) -> DataFrame:
        return clicks.join(users, clicks.user_id == users.id).groupBy("page").count()

    onward = hw.App("bench")
    onward.table("shop.users", USERS, key="id")

    @onward.topic("copied")
    def copied(users: DataFrame) -> DataFrame:
        return users

    keyless = hw.App("bench")
    keyless.table("shop.users", "name string", key="id")
    for app, words in ((mixed, "hw.enrich"), (onward, "read by views alone"), (keyless, "its key is 'id'")):
        with pytest.raises(ApplicationInvalid, match=words), bench.running(app):
            pass
    with pytest.raises(ApplicationInvalid, match="'avro' is not a format"):
        hw.App("bench").table("shop.users", USERS, key="id", format="avro")
    assert not [topic.name for topic in Admin(bench.connection).topics()]
