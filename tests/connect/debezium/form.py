"""Records as they are compared: what names the connector, a moment or a place is checked for its form and dropped."""

import json
import zlib
from typing import Any

from tests.connect.debezium.databases import NAME
from tests.connect.debezium.topics import Event, Transcript

ENVELOPE = ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
_FIRST = ["version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns"]
SOURCE = {
    "postgres": [*_FIRST, "schema", "table", "txId", "lsn", "xmin"],
    "mariadb": [*_FIRST, "table", "server_id", "gtid", "file", "pos", "row", "thread", "query"],
}
# Where a change lies in the database's log: the same on both sides when they read the same server.
PLACES = {
    "postgres": ["ts_us", "txId", "lsn", "sequence"],
    "mariadb": ["ts_ms", "server_id", "gtid", "file", "pos", "row"],
}
SNAPSHOT = ["first", "first_in_data_collection", "true", "last_in_data_collection", "last"]
LONG = 200  # characters, or elements


def comparable(kind: str, found: Transcript, places: bool = False) -> Transcript:
    """The records of a side, by the names that our topics have, those of the snapshot in one order."""
    renamed: Transcript = {}
    for topic, events in found.items():
        own = topic.removeprefix(f"{NAME}.{'public' if kind == 'postgres' else NAME}.")
        name = topic if own == topic else f"{NAME}.{own}"
        if name == f"{NAME}.transaction":
            renamed[name] = [_boundary(event) for event in events]
        else:
            changes = [_change(kind, event, places) for event in without_read_again(events)]
            read = sorted((event for event in changes if event.get("op") == "r"), key=json.dumps)
            renamed[name] = read + [event for event in changes if event.get("op") != "r"]
    return renamed


def without_read_again(events: list[Event]) -> list[Event]:
    """Ours reads a table again when DDL has changed its rows or their keys: rows of a snapshot after changes."""
    first = next((number for number, event in enumerate(events) if _op(event) != "r"), len(events))
    return events[:first] + [event for event in events[first:] if _op(event) != "r"]


def _op(event: Event) -> str:
    return str(event["value"]["op"]) if event["value"] else ""


def _change(kind: str, event: Event, places: bool) -> Event:
    value = event["value"]
    if value is None:
        return {"key": event["key"], "tombstone": True, "headers": event["headers"]}
    check(kind, value)
    source = value["source"]
    from_snapshot = source["snapshot"] in SNAPSHOT
    kept = ["name", "db", "schema", "table"] if kind == "postgres" else ["name", "db", "table"]
    transaction = value["transaction"]
    if places and transaction is not None:
        kept += PLACES[kind]
    return {
        "key": event["key"],
        "op": value["op"],
        "before": _short(value["before"]),
        "after": _short(value["after"]),
        "source": {**{name: source[name] for name in kept}, "snapshot": from_snapshot},
        "transaction": transaction and {name: transaction[name] for name in transaction if name != "id"},
        "headers": event["headers"],
    }


def check(kind: str, value: dict[str, Any]) -> None:
    """What every envelope has: these fields, in this order, of these types, and moments that agree."""
    assert list(value) == ENVELOPE, list(value)
    source = value["source"]
    assert list(source) == SOURCE[kind], list(source)
    assert source["connector"] == {"postgres": "postgresql"}.get(kind, kind), source
    for moments in (value, source):
        assert moments["ts_us"] // 1000 == moments["ts_ms"], moments
        assert moments["ts_ns"] // 1000 == moments["ts_us"], moments
    assert source["snapshot"] in ([*SNAPSHOT] if value["op"] == "r" else ["false"]), source
    if kind == "postgres":
        assert type(source["lsn"]) is int and type(source["txId"]) is int and source["xmin"] is None, source
        last, own = json.loads(source["sequence"])
        assert own == str(source["lsn"]) and (last is None or last.isdigit()), source
    else:
        assert source["sequence"] is None and source["query"] is None, source
        assert type(source["pos"]) is int and type(source["row"]) is int, source
        assert (source["gtid"] is None) <= (value["transaction"] is None), source
    transaction = value["transaction"]
    if transaction is None:
        assert value["op"] in "rd", (
            value
        )  # deletes by which ours empties a topic stand outside of transactions
    else:
        assert list(transaction) == ["id", "total_order", "data_collection_order"], transaction
        number = source["gtid"] if kind == "mariadb" else str(source["txId"])
        assert transaction["id"].split(":")[0] == number, (transaction, source)


def _boundary(event: Event) -> Event:
    """BEGIN or END of a transaction; which tables it names first depends on a hash table of Java's."""
    value = event["value"]
    assert list(value) == ["status", "id", "event_count", "data_collections", "ts_ms"], value
    assert event["key"] == {"id": value["id"]}, event
    collections = value["data_collections"]
    return {
        "status": value["status"],
        "event_count": value["event_count"],
        "data_collections": collections and sorted(collections, key=lambda one: str(one["data_collection"])),
    }


def _short(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return row and {name: _shorten(value) for name, value in row.items()}


def _shorten(value: Any) -> Any:
    """
    >>> _shorten("x" * 3000)
    'xxxxxxxxxxxxxxxxxxxx... 3000 characters, crc 98ee17e7'
    """
    text = value if isinstance(value, str) else json.dumps(value)
    if "[Ljava.lang" in text:
        return "an object of Java, and where it lay"
    if len(text) <= LONG:
        return value
    return f"{text[:20]}... {len(text)} characters, crc {zlib.crc32(text.encode()):08x}"
