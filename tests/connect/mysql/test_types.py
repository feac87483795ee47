"""Every type, in the stream and in the snapshot: the same JSON from both, and the right one."""

import pytest

from tests.connect.mysql.harness import Capture, fresh_database
from tests.support.mariadb import MariaDB

# column type -> literals and what they are in JSON
VALUES: dict[str, list[tuple[str, object]]] = {
    "tinyint": [("-128", -128), ("127", 127)],
    "tinyint unsigned": [("255", 255)],
    "smallint": [("-32768", -32768)],
    "smallint unsigned": [("65535", 65535)],
    "mediumint": [("-8388608", -8388608), ("8388607", 8388607)],
    "mediumint unsigned zerofill": [("16777215", 16777215), ("7", 7)],
    "int": [("-2147483648", -2147483648)],
    "int unsigned": [("4294967295", 4294967295)],
    "bigint": [("-9223372036854775808", -9223372036854775808)],
    "bigint unsigned": [("18446744073709551615", 18446744073709551615), ("9223372036854775808", 1 << 63)],
    "float": [
        ("1.1", 1.1), ("16777217", 16777216.0), ("-3.4028235e38", -3.4028235e38), ("123456.789", 123456.79),
        ("3.14159274", 3.1415927), ("0", 0.0),
    ],
    "double": [("1.1", 1.1), ("1e300", 1e300), ("5e-324", 5e-324), ("0.1", 0.1)],
    "decimal(10,2)": [("12345678.91", "SZYC0w=="), ("-0.01", "/w=="), ("0", "AA=="), ("1.28", "AIA=")],
    "decimal(65,30)": [
        ("-12345678901234567890123456789012345.123456789012345678901234567891",
         "4f1D4Wh6dCOTRq+nDL2ygsWAE4T8HZlxwPUt"),
        ("0.000000000000000000000000000001", "AQ=="),
    ],
    "decimal(5,0) unsigned": [("99999", "AYaf")],
    "bit": [("1", True), ("0", False)],
    "bit(9)": [("257", "AQE=")],
    "bit(64)": [("9223372036854775809", "AQAAAAAAAIA=")],
    "year": [("2024", 2024), ("0", 0), ("1901", 1901)],
    "date": [
        ("'2024-02-29'", 19782), ("'1969-12-31'", -1), ("'1582-10-04'", -141438), ("'0050-01-01'", -701265),
        ("'0000-01-01'", -719528), ("'0000-00-00'", None), ("'2024-02-00'", None), ("'9999-12-31'", 2932896),
    ],
    "time": [("'-838:59:59'", -3020399000000), ("'24:00:00'", 86400000000)],
    "time(3)": [("'-00:00:00.001'", -1000), ("'12:34:56.789'", 45296789000)],
    "time(6)": [("'-00:00:00.000001'", -1), ("'838:59:59.999999'", 3020399999999)],
    "datetime": [("'2024-02-29 23:59:59'", 1709251199000), ("'0000-00-00'", None), ("'1582-10-04'", -12220243200000)],
    "datetime(2)": [("'1000-01-01 00:00:00.25'", -30610223999750), ("'2024-00-00'", None)],
    "datetime(3)": [("'0001-01-01 00:00:00.123'", -62135596799877)],
    "datetime(6)": [
        ("'9999-12-31 23:59:59.999999'", 253402300799999999), ("'0012-03-04 05:06:07'", -61783066433000000),
    ],
    "timestamp null": [("'2024-01-01 00:00:01'", "2024-01-01T00:00:01Z"), ("0", None)],
    "timestamp(3) null": [("'2024-01-01 00:00:01.5'", "2024-01-01T00:00:01.500Z")],
    "timestamp(6) null": [("'2038-01-19 03:14:07.999999'", "2038-01-19T03:14:07.999999Z")],
    "char(5)": [("'ab'", "ab"), ("''", "")],
    "char(255) character set utf8mb4": [("repeat('€', 255)", "€" * 255)],
    "char(5) character set latin1": [("'é€'", "é€"), ("x'8d'", "\x8d")],
    "varchar(300)": [("'a\"\\\\\\n€😀'", 'a"\\\n€😀'), ("repeat('x', 300)", "x" * 300), ("'\x01\x7f'", "\x01\x7f")],
    "varchar(20) character set latin1": [("'ÿ€'", "ÿ€"), ("x'81'", "\x81")],
    "varchar(20) character set cp1251": [("'привет'", "привет")],
    "varchar(20) character set ucs2": [("'ñ€'", "ñ€")],
    "varchar(20) character set utf16": [("'ñ😀'", "ñ😀")],
    "varchar(20) character set gbk": [("'中'", "中")],
    "varchar(20) character set sjis": [("'日本'", "日本")],
    "varchar(20) character set binary": [("x'00ff'", "AP8=")],
    "binary(4)": [("x'6100'", "YQAAAA=="), ("x'deadbeef'", "3q2+7w==")],
    "varbinary(300)": [("x'00ff00'", "AP8A"), ("''", "")],
    "tinytext": [("repeat('é', 100)", "é" * 100)],
    "text": [("repeat('x', 60000)", "x" * 60000)],
    "mediumtext": [("repeat('é', 70000)", "é" * 70000)],
    "longtext": [("'l'", "l")],
    "tinyblob": [("x'01'", "AQ==")],
    "blob": [("x'02'", "Ag==")],
    "mediumblob": [("x'03'", "Aw==")],
    "longblob": [("x''", "")],
    "enum('a,b','it''s','ü\\\\')": [("'a,b'", "a,b"), ("'it''s'", "it's"), ("3", "ü\\"), ("0", "")],
    "enum('x','y') character set latin1": [("'y'", "y")],
    "set('one','two','dr ei')": [("'one,dr ei'", "one,dr ei"), ("''", "")],
    "json": [("'{\"a\":  [1, 2.50, null]}'", '{"a":  [1, 2.50, null]}')],
    "uuid": [
        ("'12345678-9abc-4ef0-8234-56789abcde00'", "12345678-9abc-4ef0-8234-56789abcde00"),
        ("'12345678-9abc-1ef0-9234-56789abcdef0'", "12345678-9abc-1ef0-9234-56789abcdef0"),
        ("'00000000-0000-0000-0000-000000000000'", "00000000-0000-0000-0000-000000000000"),
    ],
    "inet4": [("'1.2.3.0'", "1.2.3.0"), ("'0.0.0.0'", "0.0.0.0")],
    "inet6": [
        ("'::'", "::"), ("'::1'", "::1"), ("'1::'", "1::"), ("'2001:db8::1:0:0:1'", "2001:db8::1:0:0:1"),
        ("'::ffff:1.2.3.4'", "::ffff:1.2.3.4"), ("'::1:2'", "::0.1.0.2"), ("'1:0:3:4:5:6:7:8'", "1::3:4:5:6:7:8"),
        ("'1:0:0:2:0:0:0:3'", "1:0:0:2::3"), ("'0:0:1::'", "0:0:1::"),
    ],
    "varchar(50) compressed": [("repeat('é', 40)", "é" * 40), ("''", "")],
    "text compressed": [("repeat('y', 3000)", "y" * 3000), ("'y'", "y")],
    "blob compressed": [("repeat(x'00ff', 50)", "AP8A/wD/" * 16 + "AP8A/w==")],
    "point": [("point(1, 2.5)", {"x": 1.0, "y": 2.5, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAARA", "srid": None})],
    "geometry": [
        ("ST_GeomFromText('LINESTRING(0 0,1 1)', 4326)",
         {"wkb": "AQIAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAPA/AAAAAAAA8D8=", "srid": 4326}),
    ],
    "int as (id + 1) virtual": [],
    "int as (id * 2) stored": [],
    "int invisible": [("7", 7)],
}  # fmt: skip


def rows_of_values() -> list[dict[str, tuple[str, object]]]:
    """As many rows as the longest list is, the others with NULL."""
    columns = {f"c{n}": values for n, values in enumerate(VALUES.values()) if values}
    longest = max(len(values) for values in columns.values())
    return [
        {name: values[n] if n < len(values) else ("null", None) for name, values in columns.items()}
        for n in range(longest + 1)
    ]


@pytest.mark.parametrize("metadata", ["NO_LOG", "MINIMAL", "FULL"])
def test_every_type(mariadb: MariaDB, metadata: str) -> None:
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(VALUES))
    rows = rows_of_values()
    mariadb.run(f"set global binlog_row_metadata = {metadata}")
    database = fresh_database(
        mariadb, f"create table t (id int primary key, {columns}) default charset utf8mb4"
    )
    stream = Capture(mariadb, database, snapshot="never")
    stream.take()
    inserts = [
        f"insert into t (id, {', '.join(row)}) values ({n}, {', '.join(literal for literal, _ in row.values())})"
        for n, row in enumerate(rows)
    ]
    mariadb.run("set sql_mode = ''", *inserts, database=database)
    stream.until_caught_up(mariadb)
    snapshot = Capture(mariadb, database)
    snapshot.until_caught_up(mariadb)
    try:
        for n, row in enumerate(rows):
            key = b'{"id":%d}' % n
            streamed, read = stream.rows("t")[key], snapshot.rows("t")[key]
            assert list(streamed) == list(read) == ["id", *(f"c{n}" for n in range(len(VALUES)))]
            for number, kind in enumerate(VALUES):
                name = f"c{number}"
                generated = {"int as (id + 1) virtual": n + 1, "int as (id * 2) stored": n * 2}
                expected = generated[kind] if kind in generated else row[name][1]
                assert streamed[name] == expected, (kind, row.get(name))
                assert read[name] == expected, (kind, row.get(name))
                assert type(streamed[name]) is type(read[name])
    finally:
        stream.close()
        snapshot.close()
        mariadb.run("set global binlog_row_metadata = FULL")
