"""The workload for MariaDB: every type, every kind of change, and what Debezium is known to lose.

Tables whose names begin with ``lost_`` hold what Debezium loses; in the others both sides have to agree.
"""

from tests.connect.debezium.workload import END, Columns, Workload


def workload() -> Workload:
    """The statements, in their order."""
    made = Workload()
    types(made)
    lost_types(made)
    keys(made)
    shapes(made)
    transactions(made)
    made.setup += [f"create table {END} (id int primary key)", f"insert into {END} values (0)"]
    made.stream.append([f"insert into {END} values (1)"])
    return made


def _typed(made: Workload, table: str, columns: Columns) -> None:
    made.typed(table, columns, quote="`")


def types(made: Workload) -> None:
    """Tables of one column a type, with NULLs, limits and odd contents."""
    _typed(
        made,
        "numbers",
        {
            "flag": ("boolean", ["true", "false", "2", "-128"]),
            "tiny": ("tinyint", ["-5", "127", "-128"]),
            "tiny_unsigned": ("tinyint unsigned", ["5", "255"]),
            "small": ("smallint", ["-5", "32767", "-32768"]),
            "small_unsigned": ("smallint unsigned", ["5", "65535"]),
            "medium": ("mediumint", ["-5", "8388607", "-8388608"]),
            "medium_unsigned": ("mediumint unsigned", ["5", "16777215"]),
            "whole": ("int", ["-5", "2147483647", "-2147483648"]),
            "whole_unsigned": ("int unsigned", ["5", "4294967295"]),
            "filled": ("int(8) zerofill", ["5", "12345678"]),
            "large": ("bigint", ["-5", "9223372036854775807", "-9223372036854775808"]),
            "large_unsigned": ("bigint unsigned", ["5", "9223372036854775807"]),
            "exact": ("decimal(10,2)", ["12.34", "-99999999.99", "0", "1.28", "-0.01"]),
            "units": ("decimal(5,0)", ["7", "-99999", "0"]),
            "huge": ("decimal(65,30)", ["12345678901234567890.123456789012345678901234567890", "-1", "0.5"]),
            "exact_unsigned": ("decimal(8,3) unsigned", ["1.5", "99999.999"]),
            "single": ("float", ["1.5", "-0.25", "0", "1024"]),
            "double8": ("double", ["0.1", "1e300", "-0.0", "5e-324", "123456789.125", "100"]),
            "one_bit": ("bit(1)", ["b'1'", "b'0'"]),
            "bits": ("bit(12)", ["b'100000000011'", "b'0'", "b'111111111111'"]),
            "bits64": ("bit(64)", ["b'1'", "0xffffffffffffffff"]),
            "in_year": ("year", ["2024", "1901", "2155"]),
        },
    )
    _typed(
        made,
        "texts",
        {
            "fixed": ("char(5)", ["'ab'", "'abcde'", "''"]),
            "bounded": ("varchar(20)", ["'hello'", "''", "'ünïcödé €'"]),
            "free": ("text", ["'tab\t \"quoted\" \\\\ / end'", "'line\\nfeed\\r\\b\x01\x7f'", "'😀 \u2028'"]),
            "tiny": ("tinytext", ["'t'"]),
            "medium": ("mediumtext", ["'m'"]),
            "long_text": ("longtext", ["repeat('l', 1000)"]),
            "latin": ("varchar(20) character set latin1", ["'café'", "'naïve'"]),
            "cyrillic": ("varchar(20) character set cp1251", ["'привет'"]),
            "wide": ("varchar(300) character set utf8mb3", ["'ü'"]),
            "sixteen": ("varchar(10) character set utf16", ["'a€'"]),
            "plain_json": ("json", ['\'{"a": [1, 2.50, null],  "b": "x"}\'', "'null'", "'\"s\"'"]),
            "size": ("enum('small', 'large', 'ünï')", ["'small'", "'large'", "'ünï'"]),
            "tags": ("set('a', 'b', 'c d')", ["'a'", "'a,c d'", "''"]),
            "fixed_raw": ("binary(4)", ["x'00ff'", "x'deadbeef'", "''"]),
            "raw": ("varbinary(300)", ["x'00ff10'", "''", "x'deadbeef'"]),
            "blobbed": ("blob", ["x'00ff10'", "''"]),
            "long_blob": ("longblob", ["x'010203'"]),
            "place": ("point", ["point(1.5, -2)"]),
            "shape": ("geometry", ["ST_GeomFromText('LINESTRING(0 0, 1 1, 2 3)')"]),
            "unique_id": (
                "uuid",
                ["'123e4567-e89b-12d3-a456-426614174001'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
            ),
        },
    )
    _typed(
        made,
        "times",
        {
            "day": ("date", ["'2024-02-29'", "'1969-12-31'", "'1582-10-15'", "'9999-12-31'"]),
            "time0": ("time", ["'13:14:15'", "'00:00:00'", "'-838:59:59'", "'838:59:59'"]),
            "time3": ("time(3)", ["'13:14:15.123'", "'-00:00:00.001'"]),
            "time6": ("time(6)", ["'13:14:15.123456'", "'-100:00:00.000001'"]),
            "stamp0": (
                "datetime",
                ["'2024-02-29 13:14:15'", "'1969-12-31 23:59:59'", "'1583-01-01 00:00:00'"],
            ),
            "stamp3": ("datetime(3)", ["'2024-02-29 13:14:15.123'", "'1969-12-31 23:59:59.999'"]),
            "stamp6": ("datetime(6)", ["'2024-02-29 13:14:15.123456'", "'1969-12-31 23:59:59.999999'"]),
            "zoned0": ("timestamp null", ["'2024-02-29 13:14:15'", "'1970-01-01 00:00:01'"]),
            "zoned3": ("timestamp(3) null", ["'2024-02-29 13:14:15.123'", "'2024-02-29 13:14:15.120'"]),
            "zoned6": ("timestamp(6) null", ["'2024-02-29 13:14:15.123456'", "'2024-07-01 00:00:00'"]),
        },
    )


def lost_types(made: Workload) -> None:
    """What Debezium leaves out, cuts, or turns into another value."""
    _typed(
        made,
        "lost_numbers",
        {
            "large_unsigned": ("bigint unsigned", ["18446744073709551615", "9223372036854775808"]),
            "single": ("float", ["0.1", "16777217", "3.4028235e38", "1234567.9"]),
        },
    )
    _typed(
        made,
        "lost_texts",
        {
            "unique_id": (
                "uuid",
                ["'123e4567-e89b-12d3-a456-426614174000'", "'ffffffff-ffff-ffff-ffff-ffffffff0000'"],
            ),
            "size": ("enum('a,b', 'c')", ["'a,b'", "'c'"]),
        },
    )
    _typed(
        made,
        "lost_times",
        {
            "day": ("date", ["'1582-10-04'", "'0050-01-01'", "'0000-00-00'", "'2024-00-10'"]),
            "day_required": (
                "date not null",
                ["'1582-10-04'", "'0050-01-01'", "'0000-00-00'", "'2024-02-00'"],
            ),
            "stamp0": (
                "datetime",
                ["'1582-10-04 12:00:00'", "'0050-01-01 00:00:00'", "'0000-00-00 00:00:00'"],
            ),
            "zoned0": (
                "timestamp null",
                ["'2024-01-01 00:00:00'", "'2024-01-01 00:00:00'", "'0000-00-00 00:00:00'"],
            ),
        },
    )
    made.setup += [
        "create table lost_defaults (id int primary key, whole int default 5, word varchar(10) default 'w')",
        "insert into lost_defaults values (1, NULL, NULL), (2, 6, 'v')",
    ]
    made.stream += [
        ["insert into lost_defaults values (101, NULL, NULL)", "insert into lost_defaults (id) values (102)"],
        ["update lost_defaults set whole = NULL where id = 2", "delete from lost_defaults where id = 1"],
    ]


def keys(made: Workload) -> None:
    """Keys of every kind, keys that change, and tables that have none."""
    made.setup += [
        "create table simple (id int primary key, name varchar(30))",
        *(f"insert into simple values ({n}, 'name {n}')" for n in range(1, 11)),
        'create table `Order Line` (`Line No` int, `per%cent` text, `Order` int, `a"quote` text,'
        " primary key (`Order`, `Line No`))",
        "insert into `Order Line` values (1, '100%', 7, 'x'), (2, '%s %d', 7, NULL)",
        "create table unique_key (note text, a int not null, b varchar(10) not null, unique key (b, a))",
        "insert into unique_key values ('n', 1, 'one'), (NULL, 2, 'two')",
        "create table keyless (a int, b text)",
        "insert into keyless values (1, 'x'), (1, 'x'), (2, NULL)",
        "create table stamped_key (at datetime(3), code char(3), amount decimal(6,2), primary key (amount, at, code))",
        "insert into stamped_key values ('2024-01-01 00:00', 'a', 1.50)",
        "create table `with-dashes äöü` (`größe` varchar(10) primary key, `select` text)",
        "insert into `with-dashes äöü` values ('日本', 'x')",
    ]
    made.stream += [
        ["insert into simple values (11, 'eleven')"],
        ["update simple set name = 'one' where id = 1"],
        ["update simple set name = name where id = 2"],
        ["delete from simple where id = 3"],
        ["update simple set id = 40, name = 'forty' where id = 4"],
        ["update simple set id = id + 1000 where id in (5, 6)"],
        ["insert into simple values (3, 'three again')"],
        ["insert into simple values (11, 'x') on duplicate key update name = 'upserted'"],
        ["replace into simple values (11, 'replaced')"],
        ["update `Order Line` set `per%cent` = '5%' where `Line No` = 1"],
        ["update `Order Line` set `Line No` = 3 where `Line No` = 2"],
        ["delete from `Order Line` where `Line No` = 3"],
        [
            "update unique_key set note = 'changed' where a = 1",
            "update unique_key set b = 'deux' where a = 2",
        ],
        ["delete from unique_key where a = 1"],
        ["insert into keyless values (3, 'z')", "update keyless set b = 'y' where a = 2"],
        ["update keyless set b = 'both' where a = 1", "delete from keyless where a = 3"],
        ["update stamped_key set code = 'b'", "delete from stamped_key"],
        ["update `with-dashes äöü` set `select` = 'y'", "update `with-dashes äöü` set `größe` = 'ß'"],
    ]


def shapes(made: Workload) -> None:
    """Tables that change while capture runs."""
    made.setup += [
        "create table evolving (id int primary key, a int, b varchar(20))",
        "insert into evolving values (1, 1, 'one'), (2, 2, 'two')",
        "create table emptied (id int primary key, name text)",
        "insert into emptied values (1, 'x'), (2, 'y')",
        "create table derived (id int primary key, a int, twice int as (a * 2) virtual, thrice int as (a * 3) stored)",
        "insert into derived (id, a) values (1, 5)",
        "create table renamed_before (id int primary key, name text)",
        "insert into renamed_before values (1, 'x')",
        "create table split (id int primary key, name text) partition by hash (id) partitions 3",
        "insert into split values (1, 'x'), (2, 'y')",
    ]
    made.stream += [
        ["insert into evolving values (3, 3, 'three')"],
        ["alter table evolving add column c decimal(6,2) default 1.5"],
        ["insert into evolving values (4, 4, 'four', 4.25)", "update evolving set a = 10 where id = 1"],
        ["alter table evolving add column z int first, add column y int after a"],
        ["update evolving set z = 1, y = 2 where id = 1"],
        ["alter table evolving rename column b to title"],
        ["update evolving set title = 'uno' where id = 1"],
        ["alter table evolving modify column a bigint"],
        ["update evolving set a = 5000000000 where id = 2"],
        ["alter table evolving drop column title, drop column z, drop column y"],
        ["insert into evolving values (5, 5, 5)", "delete from evolving where id = 3"],
        ["alter table evolving drop primary key, add primary key (id, a)"],
        ["insert into evolving values (6, 6, 6)", "update evolving set a = 7 where id = 6"],
        ["create table newcomer (id int primary key, name text)", "insert into newcomer values (1, 'n')"],
        ["update newcomer set name = 'm'"],
        ["insert into derived (id, a) values (2, 6)", "update derived set a = 7 where id = 1"],
        ["truncate emptied"],
        ["insert into emptied values (1, 'again')"],
        ["rename table renamed_before to renamed_after"],
        ["insert into renamed_after values (2, 'y')"],
        ["drop table newcomer"],
        ["create table newcomer (id int primary key, other int)", "insert into newcomer values (1, 7)"],
        [
            "insert into split values (3, 'z')",
            "update split set name = 'w' where id = 1",
            "delete from split where id = 2",
        ],
    ]


def transactions(made: Workload) -> None:
    """Transactions of several tables, with parts undone, and larger than one event of the binlog."""
    made.setup += [
        "create table accounts (id int primary key, amount decimal(10,2))",
        *(f"insert into accounts values ({n}, 100)" for n in range(1, 6)),
        "create table entries (id int primary key, account int, amount decimal(10,2))",
    ]
    made.stream += [
        [
            "update accounts set amount = amount - 10 where id = 1",
            "update accounts set amount = amount + 10 where id = 2",
            "insert into entries values (1, 1, -10), (2, 2, 10)",
        ],
        [
            "savepoint s",
            "insert into entries values (3, 3, 1)",
            "rollback to s",
            "insert into entries values (4, 4, 4)",
        ],
        ["insert into entries values (9, 9, 9)", "delete from entries where id = 9"],
        ["insert into entries select seq, seq % 5, seq from seq_1000_to_1099"],
        ["delete from entries where id >= 1090", "update accounts set amount = 0"],
    ]
