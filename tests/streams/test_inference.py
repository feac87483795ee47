"""Columns of a table from records of its topic, from types of databases, and kept with a build. Without I/O."""

import json
from typing import Any

import pytest

from headwater.connect.cdc.mysql import columns as mysql
from headwater.connect.cdc.mysql.schema import Column as MySQLColumn
from headwater.connect.cdc.postgres import columns as postgres
from headwater.connect.cdc.postgres.types import TypeRow, Types
from headwater.connect.cdc.sqlite import columns as sqlite
from headwater.connect.columns import BIGINT, STRING, Column, Reading
from headwater.errors import ApplicationInvalid
from headwater.streams.columns import Found, kept_columns, noted, reading_notes, with_columns
from headwater.streams.declarations import Table
from headwater.streams.formats.changes import ChangeReader
from headwater.streams.inference import Record, Sample
from headwater.views import model

USERS = Table("users", "shop.users", ("id",))


def types(found: Found | None) -> dict[str, str]:
    assert found is not None
    return {column.name: column.type for column in found.columns}


def records(*values: Any, key: Any = None) -> list[Record]:
    raw = None if key is None else json.dumps(key).encode()
    return [Record(raw, json.dumps(value).encode()) for value in values]


def change(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": source}


def test_rows_have_the_columns_of_all_records_in_the_order_in_which_they_come() -> None:
    sample = Sample(records({"id": 1, "a": None}, {"id": 2.5, "b": [1, None]}, {"b": [], "c": {"x": 1}}))
    assert types(sample.found(("id",), "")) == {
        "id": "double",
        "a": "string",
        "b": "array<bigint>",
        "c": "string",
    }
    assert sample.found(("id",), "").is_typed is False  # type: ignore[union-attr]


def test_change_events_tell_by_the_row_after_them_or_before_a_delete() -> None:
    events = records(
        change("d", before={"id": 1, "name": None}),
        change("c", after={"id": 2, "name": "Ada", "big": 2**64 - 1}),
        change("t"),
    )
    broken = [Record(b"{}", b"{no json"), Record(b"{}", None), Record(None, b"7")]
    found = {"id": "bigint", "name": "string", "big": "decimal(38,0)"}
    assert types(Sample([*broken, *events]).found(("id",), "")) == found
    assert Sample(broken).found(("id",), "") is None
    plain = records({"op": "plus", "id": 1})
    assert Sample(plain, "debezium").found(("id",), "") is None
    assert types(Sample(plain).found(("id",), "")) == {"op": "string", "id": "bigint"}


@pytest.mark.parametrize(
    ("key", "named", "found"),
    [
        ({"id": 7}, ("id",), {"id": "bigint", "n": "bigint"}),
        (7, ("id",), {"id": "bigint", "n": "bigint"}),
        ("seven", ("id",), {"id": "string", "n": "bigint"}),
        ({"id": 7}, ("other",), {"n": "bigint"}),
        ({"schema": {"fields": [{"field": "id", "type": "int32"}]}, "payload": {"id": 7}}, ("id",),
         {"id": "bigint", "n": "bigint"}),
    ],
)  # fmt: skip
def test_columns_that_only_the_key_has_are_found_there(key: Any, named: tuple[str, ...], found: Any) -> None:
    assert types(Sample(records({"n": 1}, key=key)).found(named, "")) == found


def test_a_schema_of_connect_beside_the_payload_says_the_types() -> None:
    fields = [
        {"field": "id", "type": "int32"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "seen", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        {"field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
         "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        {"field": "loose", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
         "parameters": {"scale": "2"}},
        {"field": "free", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
        {"field": "raw", "type": "bytes"},
        {"field": "tags", "type": "array", "items": {"type": "string"}},
        {"field": "doc", "type": "string", "name": "io.debezium.data.Json"},
    ]  # fmt: skip
    schema = {"fields": [{"field": "after", "type": "struct", "fields": fields}]}
    row = {
        "id": 1,
        "at": 5,
        "free": {"scale": 1, "value": "Dw=="},
        "loose": "AN3u",
        "day": 2**31,
        "tags": ["a"],
    }
    (record,) = records({"schema": schema, "payload": change("c", after=row)})
    found = Sample([record]).found(("id",), "the topic")
    assert types(found) == {
        "id": "bigint",
        "day": "date",
        "at": "timestamp_ntz",
        "seen": "timestamp",
        "price": "decimal(10,2)",
        "loose": "string",
        "free": "string",
        "raw": "binary",
        "tags": "array<string>",
        "doc": "string",
    }
    assert found is not None and found.is_typed
    notes = reading_notes(with_columns(USERS, found).format)
    reader = ChangeReader(types(found), ("id",), digits=notes["digits"], misfits="null")
    read = reader.read(record.key, record.value)
    assert read is not None and json.loads(read.row) == {
        **row,
        "at": "1970-01-01T00:00:00.000005",
        "free": "1.5",
        "loose": "568.14",
        "day": None,
    }


def test_what_a_schema_event_says_goes_before_what_values_look_like() -> None:
    told = {
        "at": postgres.reading_of("timestamp(3)", []),
        "mood": postgres.reading_of("public.mood", ["good"]),
    }
    found = Sample(records(change("r", after={"at": 5, "mood": "good"}))).found((), "", told)
    assert types(found) == {"at": "timestamp_ntz", "mood": "string"}
    assert mysql.reading_of("decimal(65,30)", []) == Reading("string", scale=30)


@pytest.mark.parametrize(
    ("declared", "found", "read"),
    [
        ("INTEGER", {"integer", "null"}, "bigint"),
        ("INTEGER", {"integer", "real"}, "double"),
        ("UNSIGNED BIG INT", {"blob"}, "string"),
        ("REAL", {"real", "text"}, "string"),
        ("NUMERIC", {"integer"}, "double"),
        ("BOOLEAN", {"integer"}, "bigint"),
        ("TIMESTAMP", {"integer"}, "string"),
        ("JSON", set(), "string"),
    ],
)
def test_types_of_sqlite_are_checked_against_its_values(declared: str, found: set[str], read: str) -> None:
    assert sqlite.reading(declared, found).type == read


def test_types_of_postgresql_are_taken_apart() -> None:
    rows = [
        TypeRow(20, "int8", "b"),
        TypeRow(1082, "date", "b"),
        TypeRow(1700, "numeric", "b"),
        TypeRow(1016, "_int8", "b", element=20),
        TypeRow(20000, "price", "d", base=1700, modifier=(12 << 16 | 2) + 4),
        TypeRow(
            20001, "pair", "c", fields=(("a", 20, -1), ("d", 1082, -1), ("n", 1700, -1), ("l", 1016, -1))
        ),
        TypeRow(20002, "odd", "c", fields=(("a,b", 20, -1),)),
        TypeRow(20003, "_pair", "b", element=20001),
        TypeRow(20004, "mood", "e"),
    ]
    known = Types(lambda oids: rows)
    read = {row.name: postgres.reading(known, row.oid, -1).type for row in rows}
    assert (read["price"], read["mood"], read["odd"], read["_int8"]) == (
        "decimal(12,2)",
        "string",
        "string",
        "array<bigint>",
    )
    assert (
        read["pair"] == "struct<a:bigint,d:bigint,n:string,l:string>"
        and read["_pair"] == f"array<{read['pair']}>"
    )
    assert postgres.reading(known, 1016, -1, dimensions=2).type == "array<array<bigint>>"
    negative = (3 << 16 | (-2 & 0x7FF)) + 4
    assert postgres.reading(known, 1700, negative) == Reading("string", scale=-2)


@pytest.mark.parametrize(
    ("declared", "read"),
    [
        ("int(10) unsigned", "bigint"),
        ("bigint(20) unsigned zerofill", "decimal(20,0)"),
        ("datetime(3)", "timestamp_ntz"),
        ("bit(10)", "binary"),
        ("enum('a','b')", "string"),
        ("polygon", "struct<wkb:binary,srid:bigint>"),
        ("vector(3)", "binary"),
    ],
)
def test_types_of_mysql(declared: str, read: str) -> None:
    assert mysql.reading(MySQLColumn("c", declared)).type == read


def test_columns_that_were_found_are_kept_with_the_build() -> None:
    columns = (
        Column("id", BIGINT),
        Column("at", Reading("timestamp_ntz", "micros")),
        Column("free", Reading("string", scale="any")),
        Column("wide", Reading("string", scale=3)),
        Column("_offset", BIGINT),
    )
    first = with_columns(USERS, Found(columns, "a database"), ("_offset",))
    assert first.schema == "`id` bigint, `at` timestamp_ntz, `free` string, `wide` string"
    info = _built(json.dumps({"version": 1, "kind": "table", "rows": noted(first)}))
    assert kept_columns(USERS, info) == first  # and so has the same fingerprint
    assert kept_columns(Table("users", "shop.users", ("id",), version=2), info) is None
    assert (
        kept_columns(USERS, None) is None
        and kept_columns(USERS, _built('{"version":1,"kind":"view"}')) is None
    )
    declared = Table("users", "shop.users", ("id",), "id long")
    info = _built(json.dumps({"version": 1, "kind": "table", "rows": noted(declared)}))
    assert kept_columns(USERS, info) == declared
    before = kept_columns(USERS, _built('{"version":1,"kind":"table"}'))
    assert before is not None and before.schema == "`id` bigint"


def _built(fingerprint: str) -> model.ViewInfo:
    schema = model.ViewSchema("users", 1, (model.Column("id", "bigint"),), ("id",))
    progress = model.Progress(1, 0, {}, None, None, 0)
    return model.ViewInfo("users", 1, 0, (model.VersionInfo(schema, fingerprint, "serving", progress),))


def test_a_key_that_is_no_column_and_names_that_differ_in_case_are_refused() -> None:
    with pytest.raises(ApplicationInvalid, match="its key is 'id', and the source shop has the columns a, b"):
        with_columns(USERS, Found((Column("a", BIGINT), Column("b", STRING)), "the source shop"))
    with pytest.raises(ApplicationInvalid, match="differ in case alone: n, N"):
        with_columns(USERS, Found((Column("id", BIGINT), Column("n", STRING), Column("N", STRING)), "it"))


def test_values_without_a_place_are_null_and_keys_are_refused() -> None:
    columns = {
        "id": "bigint",
        "n": "bigint",
        "at": "timestamp_ntz",
        "stamps": "array<timestamp_ntz>",
        "raw": "binary",
    }
    reader = ChangeReader(columns, ("id",), timestamps={"at": "micros", "stamps": "micros"}, misfits="null")
    row = {"id": 1, "n": "x", "at": 1, "stamps": [2**62, 1, [1]], "raw": "?"}
    read = reader.read(None, records(change("c", after=row, connector="postgresql"))[0].value)
    assert read is not None and json.loads(read.row) == {
        "id": 1,
        "n": None,
        "at": "1970-01-01T00:00:00.000001",
        "stamps": [None, "1970-01-01T00:00:00.000001", None],
        "raw": None,
    }
    strict = ChangeReader(columns, ("id",), timestamps="micros")
    with pytest.raises(ValueError, match="not in the years"):
        strict.read(None, records(change("c", after={"id": 1, "at": 2**62}))[0].value)
