"""Records as changes of a table: what real Debezium has written, and what may come besides."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.streams.formats.changes import Change, ChangeReader

RECORDED = Path(__file__).parents[1] / "connect" / "debezium"
CONNECTORS = {"postgres": "postgresql", "mariadb": "mariadb"}
TYPES = {
    "postgres": {
        "numbers": {"exact": "decimal(10,2)", "units": "decimal(5,0)", "free": "decimal(38,6)"},
        "times": {"day": "date", "stamp6": "timestamp_ntz", "zoned6": "timestamp", "time6": "bigint"},
        "stamped_key": {"amount": "decimal(10,2)", "at": "timestamp", "code": "string"},
    },
    "mariadb": {
        "numbers": {"exact": "decimal(10,2)", "units": "decimal(5,0)", "bits": "binary"},
        "times": {"day": "date", "stamp0": "timestamp_ntz", "zoned6": "timestamp", "time6": "bigint"},
    },
}


def recorded(kind: str) -> dict[str, list[dict[str, Any]]]:
    """What Debezium said to a workload of every kind of change, by table."""
    topics = json.loads((RECORDED / f"{kind}.json").read_text())["topics"]
    found = {topic.removeprefix("shop."): events for topic, events in topics.items()}
    found.pop("transaction")
    return found


def raw(event: dict[str, Any], kind: str, schema: Any = None) -> tuple[bytes | None, bytes | None]:
    """The record that a recorded event was."""
    key = None if event["key"] is None else json.dumps(event["key"]).encode()
    if "op" not in event:
        return key, None
    value = {name: event[name] for name in ("before", "after", "transaction", "op")}
    value["source"] = {**event["source"], "connector": CONNECTORS[kind]}
    return key, json.dumps(value if schema is None else {"schema": schema, "payload": value}).encode()


def fold(
    reader: ChangeReader, key: tuple[str, ...], records: list[tuple[bytes | None, bytes | None]]
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for record in records:
        change = reader.read(*record)
        if change is None:
            continue
        if change.kind == "truncate":
            rows.clear()
            continue
        row = json.loads(change.row)
        name = json.dumps([row[column] for column in key])
        if change.kind == "delete":
            rows.pop(name, None)
        else:
            rows[name] = row
    return rows


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_recorded_topics_of_debezium_fold_to_what_their_last_events_say(kind: str) -> None:
    tried = 0
    for name, events in recorded(kind).items():
        keys = {tuple(event["key"]) for event in events if event["key"] is not None}
        if len(keys) != 1 or "long_" in name:
            continue  # a table without a key, one whose key was declared anew, or values that were left out
        key = keys.pop()
        columns = {column: "string" for event in events for column in event.get("after") or {}}
        reader = ChangeReader(columns, key)
        expected: dict[str, Any] = {}
        for event in events:
            if event.get("op") == "t":
                expected.clear()
            elif event["key"] is not None:
                text = json.dumps([event["key"][column] for column in key])
                if event.get("after") is None:
                    expected.pop(text, None)
                else:
                    expected[text] = event["after"]
        assert fold(reader, key, [raw(event, kind) for event in events]) == expected
        assert expected or name in ("stamped_key", "emptied_too")
        # Without the events of deletes, as compaction leaves it: the tombstones say the same.
        left = [raw(event, kind) for event in events if event.get("op") != "d"]
        assert fold(reader, key, left) == expected
        tried += 1
    assert tried >= 12


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_values_that_debezium_encodes_become_those_of_the_declared_types(kind: str) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for name, types in TYPES[kind].items():
        key = ("id",) if name != "stamped_key" else ("amount", "at", "code")
        reader = ChangeReader(
            {"id": "bigint", **types}, key, timestamps="micros" if kind == "postgres" else None
        )
        changes = [reader.read(*raw(event, kind)) for event in recorded(kind)[name]]
        found[name] = [json.loads(change.row) for change in changes if change is not None]
    first, second = found["numbers"][:2]
    assert (first["exact"], first["units"]) == ("12.34", "7")
    assert (second["exact"], second["units"]) == ("-99999999.99", "-99999")
    first, second = found["times"][:2]
    assert (first["day"], second["day"]) == ("2024-02-29", "1969-12-31")
    if kind == "postgres":
        assert [row["free"] for row in found["numbers"][:3]] == ["1.5", "100", "-1" + 30 * "0"]
        assert first["stamp6"] == "2024-02-29T13:14:15.123456"
        assert first["zoned6"] == "2024-02-29T11:14:15.123456Z"
        # Keys of deletes and of tombstones, too.
        assert {(row["amount"], row["at"]) for row in found["stamped_key"]} == {
            ("1.50", "2024-01-01T00:00:00.000000Z")
        }
        assert len(found["stamped_key"]) == 6
    else:
        assert (first["stamp0"], second["stamp0"]) == (
            "2024-02-29T13:14:15.000000",
            "1969-12-31T23:59:59.000000",
        )


def field(column: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"field": column, "type": kind, "optional": True, **more}


def test_a_schema_says_what_numbers_and_bytes_mean() -> None:
    row = [
        field("id", "int32"),
        field("stamp", "int64", name="io.debezium.time.Timestamp", version=1),
        field("fine", "int64", name="io.debezium.time.NanoTimestamp", version=1),
        field("price", "bytes", name="org.apache.kafka.connect.data.Decimal", parameters={"scale": "4"}),
        field("text", "string"),
        field("days", "array", items={"type": "int32", "name": "io.debezium.time.Date"}),
    ]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": row, "field": "after"}]}
    after = {
        "id": 1,
        "stamp": -1,
        "fine": 1_700_000_000_123_456_789,
        "price": "ESIz",
        "text": "1234",
        "days": [0, None],
    }
    value = {"before": None, "after": after, "source": {"connector": "postgresql"}, "op": "c"}
    types = {"stamp": "timestamp", "fine": "timestamp", "price": "decimal(10,4)", "text": "decimal(10,2)"}
    reader = ChangeReader({"id": "int", **types, "days": "array<date>"}, ("id",))
    change = reader.read(
        b'{"schema":{},"payload":{"id":1}}', json.dumps({"schema": schema, "payload": value}).encode()
    )
    assert change is not None and json.loads(change.row) == {
        "id": 1,
        "stamp": "1969-12-31T23:59:59.999000Z",
        "fine": "2023-11-14T22:13:20.123456Z",
        "price": "112.2867",
        "text": "1234",
        "days": ["1970-01-01", None],
    }


def test_the_unit_of_a_timestamp_is_said_or_certain_never_guessed() -> None:
    def read(value: Any, connector: str = "postgresql", **more: Any) -> str:
        event = {
            "before": None,
            "after": {"id": 1, "at": value},
            "source": {"connector": connector},
            "op": "c",
        }
        change = ChangeReader({"id": "int", "at": "timestamp"}, ("id",), **more).read(
            None, json.dumps(event).encode()
        )
        assert change is not None
        return str(json.loads(change.row)["at"])

    micros, millis = 1709212455123456, 1709212455123
    assert read(micros) == "2024-02-29T13:14:15.123456Z"
    assert read(millis, "mysql") == "2024-02-29T13:14:15.123000Z"
    assert read(0) == "1970-01-01T00:00:00.000000Z"
    assert read(1709212455, "sqlite") == "2024-02-29T13:14:15.000000Z"
    assert read("2024-02-29 13:14:15", "sqlite") == "2024-02-29 13:14:15"
    for value, connector in (
        (millis, "postgresql"),
        (micros, "mysql"),
        (millis, "sqlite"),
        (micros, "unheard-of"),
    ):
        with pytest.raises(ValueError, match=r"at: nothing says for certain .*hw.debezium\(timestamps"):
            read(value, connector)
    assert read(millis, timestamps="millis") == "2024-02-29T13:14:15.123000Z"
    assert read(-1, timestamps={"at": "micros"}) == "1969-12-31T23:59:59.999999Z"
    with pytest.raises(ValueError, match="not in the years 1 to 9999"):
        read(9223372036825200000, timestamps="micros")


@pytest.mark.parametrize(
    "key, value, expected",
    [
        (b"7", b'{"n": 1.50}', Change("upsert", '{"n": 1.50,"id":7}')),  # as it came
        (b"7", b'{"id": null, "n": 2}', Change("upsert", '{"id": null, "n": 2,"id":7}')),  # the last counts
        (b'{"id":7,"x":1}', None, Change("delete", '{"id":7}')),
        (b'{"id":7}', b"null", Change("delete", '{"id":7}')),
        (None, None, None),
        (b"null", None, None),
        (None, b'{"op":"t","before":null,"after":null,"source":{}}', Change("truncate")),
        (None, b'{"op":"m","before":null,"after":null,"source":{},"message":{}}', None),
        (b"7", b'{"op":"d","before":null,"after":null,"source":{}}', Change("delete", '{"id":7}')),
        (
            b"7",
            b'{"op":"sold","n":3,"id":7}',
            Change("upsert", '{"op":"sold","n":3,"id":7}'),
        ),  # a column called op
    ],
)
def test_a_record_is_one_change(key: bytes | None, value: bytes | None, expected: Change | None) -> None:
    assert ChangeReader({"id": "bigint", "n": "decimal(10,2)"}, ("id",)).read(key, value) == expected


@pytest.mark.parametrize(
    "key, value, reason",
    [
        (b"1", b"\xff", "not JSON"),
        (b"1", b"[1]", "not a JSON object"),
        (None, b'{"n": 1}', "has no key"),
        (b'{"number": 1}', None, "its key has no 'id'"),
        (b"1", b'{"op":"c","before":null,"after":null,"source":{}}', "no row after"),
        (b"1", b'{"op":"z","before":null,"after":null,"source":{}}', "operation 'z'"),
        (b"1", b'{"op":"c","after":{"id":1,"n":"####"},"source":{}}', "n: '####' is not a decimal"),
        (b"1", b'{"op":"c","after":{"id":1,"n":"AQAAAAAA"},"source":{}}', "more digits than decimal"),
    ],
)
def test_what_is_no_change_says_why(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ChangeReader({"id": "bigint", "n": "decimal(10,2)"}, ("id",)).read(key, value)
