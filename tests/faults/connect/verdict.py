"""What the topics must hold: the tables rebuilt from them alone, every change once, in its order."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.faults.connect.databases import Session

Row = dict[str, Any]
KEY_OF: Mapping[str, Callable[[Row], str]] = {
    "items": lambda key: str(key["id"]),
    "pairs": lambda key: f"{key['b']}/{key['a']}",
    "scratch": lambda key: str(key["id"]),
    "marks": lambda key: str(key["id"]),
}


class Event(NamedTuple):
    """One record of a topic; without a value it is a tombstone."""

    key: Row | None
    value: dict[str, Any] | None

    @property
    def op(self) -> str:
        return "" if self.value is None else str(self.value["op"])

    @property
    def place(self) -> tuple[Any, ...]:
        """Where the change lies in the order of commits; PostgreSQL's places begin with the commit before."""
        assert self.value is not None
        source = self.value["source"]
        if "lsn" in source:
            return tuple(int(number or 0) for number in json.loads(source["sequence"]))
        return source["file"], source["pos"], source["row"]


def read(bootstrap: str, table: str) -> list[Event]:
    """Everything committed in a table's topic."""
    topic = f"shop.{table}"
    known = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=20).topics
    if topic not in known:
        return []
    assert list(known[topic].partitions) == [0], "a topic of capture has one partition unless told otherwise"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verdict",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    events = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            for message in consumer.consume(5000, timeout=0.1):
                problem = message.error()
                if problem is None:
                    key, value = message.key(), message.value()
                    events.append(Event(_object(key), _object(value)))
                elif problem.code() == KafkaError._PARTITION_EOF:
                    return events
                else:
                    raise AssertionError(f"cannot read {topic}: {problem}")
    finally:
        consumer.close()


def _object(content: bytes | None) -> Any:
    return None if content is None else json.loads(content)


def rebuild(table: str, events: Iterable[Event]) -> dict[str, Row]:
    """The table as a reader of its topic has it, the last value of each key."""
    rows: dict[str, Row] = {}
    for event in events:
        if event.op == "t":
            rows.clear()
        elif event.key is not None:
            if event.value is None or event.op == "d":
                rows.pop(KEY_OF[table](event.key), None)
            else:
                rows[KEY_OF[table](event.key)] = event.value["after"]
    return rows


def rebuild_bag(events: Iterable[Event], columns: Sequence[str] = ("a", "b")) -> Counter[str]:
    """A table without a key: what was added less what was taken away, by the columns that it has now."""

    def text(row: Row) -> str:
        return json.dumps({name: row.get(name) for name in columns})

    bag: Counter[str] = Counter()
    for event in events:
        if event.value is None:
            continue
        if event.op == "t":
            bag.clear()
        if event.value["before"] is not None:
            bag[text(event.value["before"])] -= 1
        if event.value["after"] is not None:
            bag[text(event.value["after"])] += 1
    negative = {row: count for row, count in bag.items() if count < 0}
    assert not negative, f"rows were taken away that were not there: {list(negative.items())[:5]}"
    return +bag


class Column(NamedTuple):
    name: str
    bare: (
        bool  # NULL in rows that were there before it: nothing is read for it, and they lack it in the topic
    )


def table_columns(session: Session, table: str) -> list[Column]:
    """The columns of a table, in their order."""
    found = session.run(
        "select column_name, is_nullable, column_default from information_schema.columns"
        " where table_name = %s and table_schema in ('public', 'shop') order by ordinal_position",
        (table,),
    )
    # MariaDB shows the default of a nullable column that has none as the text NULL.
    return [
        Column(name, nullable == "YES" and default in (None, "NULL")) for name, nullable, default in found
    ]


def table_rows(session: Session, table: str) -> list[Row]:
    """The table as the database has it."""
    columns = [column.name for column in table_columns(session, table)]
    rows = session.run(f"select {', '.join(columns)} from {table}")
    session.commit()
    return [dict(zip(columns, row, strict=True)) for row in rows]


def compare(session: Session, bootstrap: str, table: str) -> int:
    """The rebuilt table equals the table, each row with all of its columns; how many rows it has.

    Only a column that can be NULL and has no default may be missing in a row that nobody wrote since it came. What
    columns that are gone have left behind in such rows does not count.
    """
    events = read(bootstrap, table)
    columns = table_columns(session, table)
    if table == "bag":
        expected = Counter(json.dumps(row) for row in table_rows(session, table))
        bag = rebuild_bag(events, [column.name for column in columns])
        assert bag == expected, _difference(dict(bag), dict(expected))
        return expected.total()
    rebuilt = rebuild(table, events)
    there = {KEY_OF[table](row): row for row in table_rows(session, table)}
    shown = {key: _shown(row, columns) for key, row in rebuilt.items()}
    assert shown == there, _difference(shown, there)
    return len(there)


def _shown(row: Row, columns: Iterable[Column]) -> Row:
    return {column.name: row.get(column.name) for column in columns if column.bare or column.name in row}


def _difference(rebuilt: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    wrong = [key for key in {**rebuilt, **there} if rebuilt.get(key) != there.get(key)]
    shown = [f"{key}: topic {rebuilt.get(key)}, table {there.get(key)}" for key in wrong[:5]]
    return f"{len(wrong)} wrong rows of {len(there)}, such as {shown}"


class Change(NamedTuple):
    number: int
    op: str
    version: int | None


def every_change_once(session: Session, bootstrap: str, table: str, since: int) -> int:
    """The topic has every change that the audit has from `since` on, once, in its order; how many those are.

    What the audit has of a key ends with what the stream has of it. Rows of the snapshot may stand between, and none
    is older than what came before it.
    """
    kept: dict[str, list[Change]] = defaultdict(list)
    for number, op, key, version in session.run(
        "select n, op, k, version from audit where tbl = %s order by n", (table,)
    ):
        kept[key].append(Change(number, op, version))
    session.commit()
    found: dict[str, list[Event]] = defaultdict(list)
    place: tuple[Any, ...] = ()
    for event in read(bootstrap, table):
        assert event.key is not None
        found[KEY_OF[table](event.key)].append(event)
        if event.op not in ("", "r"):
            assert event.place >= place, f"{event} comes after {place}"
            place = event.place
    seen = 0
    for key in {**kept, **found}:
        seen += _in_order(f"{table} {key}", kept[key], found[key], since)
    return seen


def _in_order(what: str, kept: list[Change], found: list[Event], since: int) -> int:
    streamed = [event for event in found if event.op not in ("", "r")]
    must = sum(change.number > since for change in kept)
    assert must <= len(streamed) <= len(kept), (
        f"{what}: {len(streamed)} changes in the topic, {must} to {len(kept)} in the audit: {kept[-5:]}"
    )
    at = len(kept) - len(streamed)  # the next change of the audit
    newest = -1  # the place in the audit of what the topic has of the key
    by_version = {change.version: place for place, change in enumerate(kept) if change.version is not None}
    for position, event in enumerate(found):
        if event.op == "":
            assert position and found[position - 1].op == "d", f"{what}: a tombstone without a delete"
        elif event.op == "r":
            assert event.value is not None
            read_at = by_version[event.value["after"]["version"]]
            assert read_at >= newest, f"{what}: a row of the snapshot is older than what came before it"
            newest = read_at
        else:
            assert event.value is not None
            change = kept[at]
            after = event.value["after"]
            version = after["version"] if after else None
            assert (event.op, version) == (change.op, change.version), f"{what}: {event} is not {change}"
            if event.op == "d":
                following = found[position + 1] if position + 1 < len(found) else None
                assert following is not None and following.op == "", f"{what}: a delete without a tombstone"
            newest, at = at, at + 1
    return len(streamed)


def topic_end(bootstrap: str, table: str) -> int:
    """How many offsets a table's topic has, those of transactions' marks among them; 0 for one that is not there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "verdict", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(f"shop.{table}", 0), timeout=10)[1])
    except KafkaException:
        return 0
    finally:
        consumer.close()
