"""Every type, read by the snapshot and by the stream, in Debezium's encoding and without its losses."""

import base64
import json
from collections.abc import Callable
from typing import Any

import psycopg

from tests.connect.postgres.following import Following


def number(digits: str | int) -> str:
    value = int(digits)
    return base64.b64encode(
        value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)
    ).decode()


# type, literal, JSON
CASES: list[tuple[str, str | None, Any]] = [
    ("bool", "true", True),
    ("smallint", "-32768", -32768),
    ("int", "2147483647", 2147483647),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("oid", "4294967295", 4294967295),
    ("real", "'0.1'", 0.1),
    ("float8", "'1e300'", 1e300),
    ("float8", "3", 3.0),
    ("float8", "'NaN'", "NaN"),
    ("real", "'-Infinity'", "-Infinity"),
    ("numeric(10,2)", "-1.5", number("-150")),
    ("numeric(3,-2)", "12345", number("123")),
    ("numeric(5,0)", "0", number("0")),
    ("numeric(10,2)", "'NaN'", "NaN"),
    ("numeric", "100", {"scale": 0, "value": number("100")}),
    ("numeric", "-1.2500", {"scale": 2, "value": number("-125")}),
    ("numeric", "'NaN'", "NaN"),
    ("numeric", "'-Infinity'", "-Infinity"),
    ("numeric", "1e40", {"scale": 0, "value": number("1" + "0" * 40)}),
    ("numeric", "repeat('9', 5000)", {"scale": 0, "value": number(10**5000 - 1)}),
    ("numeric", "'-' || repeat('9', 5000) || '.50'", {"scale": 1, "value": number(5 - 10**5001)}),
    ("money", "'-92233720368547758.08'", number("-9223372036854775808")),
    ("text", "'ä\"\\ \n\t\x07€😀'", 'ä"\\ \n\t\x07€😀'),
    ("text", "''", ""),
    ("text", "'\\N'", "\\N"),
    ("text", "E'\\\\\\\\x\\\\tn'", "\\\\x\\tn"),
    ("varchar(5)", "'ab'", "ab"),
    ("char(5)", "'ab'", "ab   "),
    ('"char"', "'x'", "x"),
    ("name", "'a name'", "a name"),
    ("bytea", "'\\x00ff10'", "AP8Q"),
    ("bytea", "''", ""),
    ("date", "'2024-02-29'", 19782),
    ("date", "'0044-03-15 BC'", -735160),
    ("date", "'5874897-12-31'", 2145042905),
    ("date", "'infinity'", 2147483647),
    ("date", "'-infinity'", -2147483648),
    ("time", "'24:00'", 86400000000),
    ("time", "'12:34:56.789012'", 45296789012),
    ("time(3)", "'12:34:56.789'", 45296789),
    ("timetz", "'10:00:00-15:59:59'", "01:59:59Z"),
    ("timetz", "'12:00:00.5+02'", "10:00:00.5Z"),
    ("timestamp", "'2024-01-01 00:00:00.000001'", 1704067200000001),
    ("timestamp", "'0001-01-01 00:00:00 BC'", -62167219200000000),
    ("timestamp", "'infinity'", 9223372036825200000),
    ("timestamp(0)", "'1969-12-31 23:59:59'", -1000),
    ("timestamp(3)", "'2024-01-01 00:00:00.123'", 1704067200123),
    ("timestamp", "'294276-12-31 23:59:59.999999'", 9224318015999999999),
    ("timestamptz", "'2024-06-01 12:00:00+02'", "2024-06-01T10:00:00.000000Z"),
    ("timestamptz(0)", "'2024-06-01 12:00:00+02'", "2024-06-01T10:00:00Z"),
    ("timestamptz(3)", "'2024-06-01 12:00:00.12+02'", "2024-06-01T10:00:00.120Z"),
    ("timestamptz", "'0044-03-15 00:00:00+00 BC'", "-0043-03-15T00:00:00.000000Z"),
    ("timestamptz", "'20000-01-01 00:00:00+00'", "+20000-01-01T00:00:00.000000Z"),
    ("timestamptz", "'-infinity'", "-infinity"),
    ("interval", "'1 year 2 mons -3 days 04:05:06.789'", "P1Y2M-3DT4H5M6.789S"),
    ("interval", "'0'", "P0Y0M0DT0H0M0S"),
    ("bit(1)", "B'1'", True),
    ("bit(10)", "B'1000000001'", "AQI="),
    ("varbit", "B'00101'", "00101"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("json", "'{\"a\":  1}'", '{"a":  1}'),
    ("jsonb", "'{\"a\":  1}'", '{"a": 1}'),
    ("xml", "'<a/>'", "<a/>"),
    ("inet", "'10.0.0.1/32'", "10.0.0.1"),
    ("cidr", "'10.0.0.0/8'", "10.0.0.0/8"),
    ("macaddr", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    ("mood", "'so so'", "so so"),
    ("mood[]", "'{happy,NULL,\"so so\"}'", ["happy", None, "so so"]),
    ("positive", "5", 5),
    ("cents", "1.5", number("150")),
    ("positive[]", "'{1,2}'", [1, 2]),
    ("address", "ROW('a \"b\", c', 5, NULL)", {"street": 'a "b", c', "number": 5, "since": None}),
    (
        "address[]",
        "ARRAY[ROW('x', 1, '2024-02-29')::address, NULL]",
        [{"street": "x", "number": 1, "since": 19782}, None],
    ),
    ("int4range", "'[1,10]'", "[1,11)"),
    ("tstzrange", "'[2024-01-01 00:00+02,)'", '["2023-12-31 22:00:00+00",)'),
    ("int4multirange", "'{[1,3),[5,8)}'", "{[1,3),[5,8)}"),
    ("tsvector", "'a fat cat'", "'a' 'cat' 'fat'"),
    ("tsquery", "'fat & cat'", "'fat' & 'cat'"),
    ("pg_lsn", "'16/B374D848'", "16/B374D848"),
    ("point", "'(1,2.5)'", {"x": 1.0, "y": 2.5, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAARA", "srid": None}),
    ("line", "'{1,2,3}'", "{1,2,3}"),
    ("box", "'(1,1),(0,0)'", "(1,1),(0,0)"),
    ("circle", "'<(0,0),2>'", "<(0,0),2>"),
    ("polygon", "'((0,0),(1,1))'", "((0,0),(1,1))"),
    ("int[]", "'{1,NULL,3}'", [1, None, 3]),
    ("int[]", "'{}'", []),
    ("int[]", "'{{1,2},{3,4}}'", [[1, 2], [3, 4]]),
    ("int[]", "'[0:1]={7,8}'", [7, 8]),
    ("text[]", "ARRAY['a,b', 'c\"d', 'e\\f', '', NULL, 'NULL', '{}']", ["a,b", 'c"d', "e\\f", "", None, "NULL", "{}"]),
    ("time[]", "'{24:00,12:34:56.789012}'", [86400000000, 45296789012]),
    ("timestamptz[]", "'{2024-06-01 12:00:00+02}'", ["2024-06-01T10:00:00.000000Z"]),
    ("numeric(5,1)[]", "'{1.5,NULL}'", [number("15"), None]),
    ("interval[]", "'{1 day}'", ["P0Y0M1DT0H0M0S"]),
    ("money[]", "'{1.50}'", [number("150")]),
    ("bytea[]", "ARRAY['\\x01'::bytea]", ["AQ=="]),
    ("box[]", "'{(1,1),(0,0);(2,2),(0,0)}'", ["(1,1),(0,0)", "(2,2),(0,0)"]),
    ("int2vector", "'1 2'", "1 2"),
    ("hstore", "'\"a b\"=>\"1\\\"\", c=>NULL'", '{"c":null,"a b":"1\\""}'),
    ("citext", "'MiXed'", "MiXed"),
    ("text", None, None),
    ("numeric", None, None),
]  # fmt: skip


def test_types_are_the_same_from_snapshot_and_stream(
    db: psycopg.Connection[Any], follow: Callable[..., Following]
) -> None:
    db.execute("CREATE EXTENSION hstore")
    db.execute("CREATE EXTENSION citext")
    db.execute("CREATE TYPE mood AS ENUM ('happy', 'so so')")
    db.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    db.execute("CREATE DOMAIN cents AS numeric(10,2)")
    db.execute("CREATE TYPE address AS (street text, number int, since date)")
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _, _) in enumerate(CASES))
    db.execute(f"CREATE TABLE types (id int PRIMARY KEY, {columns})")
    db.execute("ALTER TABLE types REPLICA IDENTITY FULL")
    # None of this may show in the values.
    for setting in (
        "timezone = 'Asia/Tokyo'",
        "datestyle = 'German'",
        "intervalstyle = 'iso_8601'",
        "bytea_output = 'escape'",
    ):
        db.execute(f"ALTER DATABASE {db.info.dbname} SET {setting}")
    insert = "INSERT INTO types VALUES ({id}, {values})"
    values = ", ".join(
        "NULL" if literal is None else f"CAST({literal} AS {kind})" for kind, literal, _ in CASES
    )
    db.execute(insert.format(id=1, values=values))
    following = follow()
    following.until(lambda: len(following.log.table("shop.types")) == 1)
    db.execute(insert.format(id=2, values=values))
    db.execute("UPDATE types SET id = 3 WHERE id = 2")
    following.catch_up()
    read, inserted, deleted, tombstone, created = following.log.events("shop.types")
    assert (read.value["op"], inserted.value["op"], deleted.value["op"], tombstone.value) == (
        "r",
        "c",
        "d",
        None,
    )
    for event, row in ((read, "after"), (inserted, "after"), (deleted, "before"), (created, "after")):
        wrong = [
            (kind, literal, found, expected)
            for n, (kind, literal, expected) in enumerate(CASES)
            if json.dumps(found := event.value[row][f"c{n}"]) != json.dumps(expected)
        ]
        assert wrong == [], (event.value["op"], row)


def test_names_of_all_kinds_are_kept(db: psycopg.Connection[Any], follow: Callable[..., Following]) -> None:
    db.execute('CREATE SCHEMA "Übersee"')
    db.execute(
        'CREATE TABLE "Übersee"."Order ""Line"" 100%" ("Größe (%s)" int PRIMARY KEY, "a ""b""" text, "数" int)'
    )
    db.execute('INSERT INTO "Übersee"."Order ""Line"" 100%" VALUES (1, \'x\', 2)')
    following = follow()
    following.until(lambda: len(following.log.records) > 1)
    db.execute('UPDATE "Übersee"."Order ""Line"" 100%" SET "数" = 3')
    following.catch_up()
    read, updated = following.log.events("shop._bersee.Order__Line__100_")
    assert read.key == updated.key == {"Größe (%s)": 1}
    assert read.value["after"] == {"Größe (%s)": 1, 'a "b"': "x", "数": 2}
    assert updated.value["after"] == {"Größe (%s)": 1, 'a "b"': "x", "数": 3}
    assert updated.value["source"]["table"] == 'Order "Line" 100%'


def test_a_type_that_was_dropped_is_passed_on_as_text(
    db: psycopg.Connection[Any], follow: Callable[..., Following]
) -> None:
    db.execute("CREATE TYPE mood AS ENUM ('happy')")
    db.execute("CREATE TABLE people (id int PRIMARY KEY, mood mood)")
    following = follow()
    following.catch_up()
    following.close()
    db.execute("INSERT INTO people VALUES (1, 'happy')")
    db.execute("ALTER TABLE people DROP COLUMN mood")
    db.execute("DROP TYPE mood")
    following.catch_up()
    [event] = [each for each in following.log.events("shop.people") if each.value["op"] == "c"]
    assert event.value["after"] == {"id": 1, "mood": "happy"}
