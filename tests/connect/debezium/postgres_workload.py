"""The workload for PostgreSQL: every type, every kind of change, and what Debezium is known to lose.

Tables whose names begin with ``lost_`` hold what Debezium loses; in the others both sides have to agree.
"""

from tests.connect.debezium.workload import END, Workload

LONG = ["words", "bounded", "raw", "list", "numbers", "ids", "plain_json", "binary_json", "pairs"]


def workload() -> Workload:
    """The statements, in their order."""
    made = Workload()
    made.setup += [
        "create extension hstore",
        "create extension citext",
        "create type mood as enum ('sad', 'so so', 'it''s, \"fine\"')",
        "create domain positive as int check (value > 0)",
        "create domain label as varchar(10)",
        "create type pair as (x int, y text)",
        "create schema other",
    ]
    types(made)
    lost_types(made)
    keys(made)
    identities(made)
    toast(made)
    shapes(made)
    transactions(made)
    made.setup += [f"create table {END} (id int primary key)", f"insert into {END} values (0)"]
    made.stream.append([f"insert into {END} values (1)"])
    return made


def types(made: Workload) -> None:
    """Tables of one column a type, with NULLs, limits and odd contents."""
    made.typed(
        "numbers",
        {
            "small": ("smallint", ["-5", "32767", "-32768"]),
            "whole": ("integer", ["42", "2147483647", "-2147483648"]),
            "large": ("bigint", ["42", "9223372036854775807", "-9223372036854775808"]),
            "exact": ("numeric(10,2)", ["12.34", "-99999999.99", "0", "1.28", "-0.01"]),
            "units": ("numeric(5,0)", ["7", "-99999", "0"]),
            "huge": ("numeric(40,20)", ["12345678901234567890.12345678901234567891", "-1", "0.5"]),
            "free": (
                "numeric",
                ["1.50", "100", "-1e30", "0", "0.000000001", "123456789012345678901234567890"],
            ),
            "real4": ("real", ["1.5", "0.1", "'NaN'", "'Infinity'", "3.4028235e38", "-0.0", "1.5e-30"]),
            "double8": (
                "double precision",
                ["0.1", "1e300", "'NaN'", "'-Infinity'", "1e16", "123456789.125", "5e-324", "100"],
            ),
            "cash": ("money", ["'12.34'", "'-1'", "'0'", "'1234567.89'"]),
            "flag": ("boolean", ["true", "false"]),
            "domained": ("positive", ["7"]),
            "object": ("oid", ["7", "4294967295"]),
        },
    )
    made.typed(
        "texts",
        {
            "fixed": ("char(5)", ["'ab'", "'abcde'", "''"]),
            "bounded": ("varchar(20)", ["'hello'", "''", "'ünïcödé €'"]),
            "free": (
                "text",
                ["'tab\t \"quoted\" \\ / end'", "E'line\\nfeed\\r\\b\\f\\x01\\x7f'", "'😀 \u2028'"],
            ),
            "plain_json": ("json", ['\'{"a": [1, 2.50, null],  "b": "x"}\'', "'null'", "'\"s\"'"]),
            "binary_json": ("jsonb", ['\'{"b": 1, "a": [1, 2.50, null]}\'', "'null'", "'12.0'"]),
            "markup": ("xml", ["'<a>1</a>'"]),
            "unique_id": ("uuid", ["'123e4567-e89b-12d3-a456-426614174000'"]),
            "folded": ("citext", ["'MiXed'"]),
            "feeling": ("mood", ["'sad'", "'so so'", "'it''s, \"fine\"'"]),
            "labelled": ("label", ["'lbl'"]),
            "address": ("inet", ["'10.0.0.1'", "'10.0.0.1/8'", "'::1'", "'2001:db8::/32'"]),
            "network": ("cidr", ["'10.0.0.0/8'", "'10.1.2.3/32'"]),
            "hardware": ("macaddr", ["'08:00:2b:01:02:03'"]),
            "hardware8": ("macaddr8", ["'08:00:2b:01:02:03:04:05'"]),
            "one_bit": ("bit(1)", ["'1'", "'0'"]),
            "bits": ("bit(12)", ["'100000000011'", "'100000000000'"]),
            "raw": ("bytea", ["'\\x00ff10'", "''", "'\\xdeadbeef'"]),
            "lexemes": ("tsvector", ["'a fat cat'::tsvector"]),
            "pairs": ("hstore", ['\'a=>1, b=>NULL, "c d"=>"e\\"f"\'', "''"]),
            "place": ("point", ["'(1.5,-2)'"]),
        },
    )
    made.typed(
        "times",
        {
            "day": ("date", ["'2024-02-29'", "'1969-12-31'", "'1582-10-15'", "'9999-12-31'"]),
            "time0": ("time(0)", ["'13:14:15'", "'00:00:00'", "'23:59:59'"]),
            "time3": ("time(3)", ["'13:14:15.123'", "'00:00:00.001'"]),
            "time6": ("time", ["'13:14:15.123456'", "'00:00:00'", "'24:00:00'"]),
            "stamp0": (
                "timestamp(0)",
                ["'2024-02-29 13:14:15'", "'1969-12-31 23:59:59'", "'1583-01-01 00:00:00'"],
            ),
            "stamp3": ("timestamp(3)", ["'2024-02-29 13:14:15.123'", "'1969-12-31 23:59:59.999'"]),
            "stamp6": ("timestamp", ["'2024-02-29 13:14:15.123456'", "'1969-12-31 23:59:59.999999'"]),
            "zoned0": ("timestamptz(0)", ["'2024-02-29 13:14:15+02'", "'1969-12-31 23:59:59-05:30'"]),
            "zoned3": ("timestamptz(3)", ["'2024-02-29 13:14:15.120+02'", "'2024-02-29 13:14:15+00'"]),
            "zoned6": ("timestamptz", ["'2024-02-29 13:14:15.123456+02'", "'2024-07-01 00:00:00+00'"]),
            "time_zoned": ("timetz", ["'13:14:15.123456+02'", "'00:00:00-03'", "'23:00:00.5+00'"]),
        },
    )
    made.typed(
        "ranges",
        {
            "ints": ("int4range", ["'[1,10)'", "'empty'", "'(,5]'"]),
            "longs": ("int8range", ["'[1,10)'", "'[5,)'"]),
            "numbers": ("numrange", ["'[1.50,2)'", "'(,)'"]),
            "days": ("daterange", ["'[2024-01-01,2024-02-01)'", "'[2024-01-01,infinity)'"]),
            "stamps": ("tsrange", ["'[2024-01-01 10:00,2024-02-01)'"]),
            "zoned": ("tstzrange", ["'[2024-01-01 10:00+02,2024-02-01 00:00+00)'"]),
        },
    )
    made.typed(
        "arrays",
        {
            "smalls": ("smallint[]", ["'{1,-2}'", "'{}'", "'{NULL}'"]),
            "wholes": ("integer[]", ["'{1,-2,NULL}'", "'{}'"]),
            "larges": ("bigint[]", ["'{9223372036854775807}'"]),
            "words": ("text[]", ["array['a', 'b c', 'q\"u,o{t}e\\', NULL, '', 'NULL']", "'{}'"]),
            "bounded": ("varchar(5)[]", ["'{ab,cd}'"]),
            "fixed": ("char(3)[]", ["'{ab,cde}'"]),
            "exacts": ("numeric(6,2)[]", ["'{1.50,-2}'"]),
            "flags": ("boolean[]", ["'{t,f,NULL}'"]),
            "reals": ("real[]", ["'{1.5,-0.25}'"]),
            "doubles": ("double precision[]", ["'{0.1,1e300}'"]),
            "days": ("date[]", ["'{2024-02-29,1970-01-01}'"]),
            "stamps": ("timestamp[]", ["'{2024-02-29 13:14:15.123456}'"]),
            "zoned": ("timestamptz[]", ["'{2024-02-29 13:14:15.123456+02}'"]),
            "ids": ("uuid[]", ["'{123e4567-e89b-12d3-a456-426614174000}'"]),
            "jsons": ("json[]", ["array['{\"a\": 1}'::json, 'null']"]),
            "binary_jsons": ("jsonb[]", ["array['{\"a\": 1}'::jsonb]"]),
            "feelings": ("mood[]", ["'{sad,\"so so\"}'"]),
            "raws": ("bytea[]", ["array['\\x00ff'::bytea]"]),
            "addresses": ("inet[]", ["'{10.0.0.1,10.0.0.0/8}'"]),
            "folded": ("citext[]", ["'{aB}'"]),
            "objects": ("oid[]", ["'{7}'"]),
        },
    )
    made.typed("other.accounts", {"name": ("text", ["'Ada'", "'Grace'"])})


def lost_types(made: Workload) -> None:
    """What Debezium leaves out, cuts, or turns into another value."""
    made.typed(
        "lost_numbers",
        {
            "free": ("numeric", ["'NaN'", "'Infinity'", "'-Infinity'"]),
            "exact": ("numeric(10,2)", ["'NaN'"]),
            "cash": ("money", ["'92233720368547758.07'", "'-90071992547409.93'"]),
            "span": (
                "interval",
                [
                    "'1 month'",
                    "'1 year 2 months 3 days 04:05:06.789'",
                    "'170000000 years'",
                    "'1 day 02:03:04.5'",
                    "'00:00:00'",
                    "'-3 hours'",
                ],
            ),
        },
    )
    made.typed(
        "lost_times",
        {
            "day": ("date", ["'1582-10-04'", "'0001-01-01'", "'0044-03-15 BC'", "'infinity'", "'-infinity'"]),
            "stamp6": (
                "timestamp",
                ["'1582-10-04 12:00'", "'0001-01-01'", "'0044-03-15 BC'", "'infinity'", "'-infinity'"],
            ),
            "stamp3": (
                "timestamp(3)",
                ["'1582-10-04 12:00'", "'0001-01-01'", "'0044-03-15 BC'", "'infinity'", "'-infinity'"],
            ),
            "zoned": (
                "timestamptz",
                [
                    "'1582-10-04 12:00+00'",
                    "'0001-01-01 00:00+00'",
                    "'0044-03-15 00:00+00 BC'",
                    "'infinity'",
                    "'-infinity'",
                ],
            ),
        },
    )
    made.typed(
        "lost_arrays",
        {
            "times": ("time[]", ["'{13:14:15.123456,24:00:00}'"]),
            "grid": ("integer[]", ["'{{1,2},{3,4}}'"]),
            "word_grid": ("text[]", ["'{{a,b},{c,NULL}}'"]),
            "feelings": ("mood[]", ["'{sad,NULL}'"]),
            "spans": ("interval[]", ["'{1 day,02:00:00}'"]),
            "cash": ("money[]", ["'{1.50,2}'"]),
            "places": ("point[]", ["array['(1,2)'::point]"]),
            "labels": ("label[]", ["'{a,b}'"]),
            "frees": ("numeric[]", ["'{1.50,100,NULL}'"]),
            "bits": ("bit(3)[]", ["'{101}'"]),
            "ranges": ("int4range[]", ["array['[1,5)'::int4range]"]),
        },
    )
    made.typed(
        "lost_kinds",
        {
            "composed": ("pair", ["'(1,\"a b\")'"]),
            "many": ("int4multirange", ["'{[1,3),[5,8)}'"]),
            "query": ("tsquery", ["'fat & cat'"]),
            "place": ("pg_lsn", ["'16/B374D848'"]),
            "area": ("box", ["'(2,2),(1,1)'"]),
            "round": ("circle", ["'<(1,2),3>'"]),
            "way": ("path", ["'[(1,2),(3,4)]'"]),
            "named": ("name", ["'a_name'"]),
            "bits": ("bit varying(10)", ["'0001'", "'1'", "'0000000011'", "''"]),
            "zeros": ("bit(12)", ["'000000000000'", "'000000000001'"]),
        },
    )
    made.setup += [
        'create table lost_names (id int primary key, "größe" int, "日本" text)',
        "insert into lost_names values (1, 5, 'x')",
        "create table lost_defaults (id int primary key, whole int default 5, word text default 'w',"
        " flag boolean default true)",
        "insert into lost_defaults values (1, NULL, NULL, NULL), (2, 6, 'v', false)",
    ]
    made.stream += [
        ["insert into lost_names values (101, 6, 'y')", 'update lost_names set "größe" = 7 where id = 1'],
        [
            "insert into lost_defaults values (101, NULL, NULL, NULL)",
            "insert into lost_defaults (id) values (102)",
        ],
        ["update lost_defaults set whole = NULL where id = 2", "delete from lost_defaults where id = 1"],
    ]


def keys(made: Workload) -> None:
    """Keys of every kind, keys that change, and tables that have none."""
    made.setup += [
        "create table simple (id int primary key, name text)",
        "insert into simple select n, 'name ' || n from generate_series(1, 10) n",
        'create table "Order Line" ("Line No" int, "per%cent" text, "Order" int, "a""quote" text,'
        ' primary key ("Order", "Line No"))',
        "insert into \"Order Line\" values (1, '100%', 7, 'x'), (2, '%s %d', 7, NULL)",
        "create table unique_key (note text, a int not null, b varchar(10) not null)",
        "create unique index unique_key_b_a on unique_key (b, a)",
        "alter table unique_key replica identity using index unique_key_b_a",
        "insert into unique_key values ('n', 1, 'one'), (NULL, 2, 'two')",
        "create table keyless (a int, b text)",
        "insert into keyless values (1, 'x'), (1, 'x'), (2, NULL)",
        "create table keyless_full (a int, b text)",
        "alter table keyless_full replica identity full",
        "insert into keyless_full values (1, 'x'), (1, 'x'), (2, NULL)",
        "create table stamped_key (at timestamptz, code char(3), amount numeric(6,2), primary key (amount, at, code))",
        "insert into stamped_key values ('2024-01-01 00:00+00', 'a', 1.50)",
        'create table "with.dots and-dashes" (id uuid primary key, "select" text)',
        "insert into \"with.dots and-dashes\" values ('123e4567-e89b-12d3-a456-426614174000', 'x')",
    ]
    made.stream += [
        ["insert into simple values (11, 'eleven')"],
        ["update simple set name = 'one' where id = 1"],
        ["update simple set name = name where id = 2"],
        ["delete from simple where id = 3"],
        ["update simple set id = 40, name = 'forty' where id = 4"],
        ["update simple set id = id + 1000 where id in (5, 6)"],
        ["insert into simple values (3, 'three again')"],
        ["insert into simple values (11, 'x') on conflict (id) do update set name = 'upserted'"],
        ['update "Order Line" set "per%cent" = \'5%\' where "Line No" = 1'],
        ['update "Order Line" set "Line No" = 3 where "Line No" = 2'],
        ['delete from "Order Line" where "Line No" = 3'],
        [
            "update unique_key set note = 'changed' where a = 1",
            "update unique_key set b = 'deux' where a = 2",
        ],
        ["delete from unique_key where a = 1"],
        ["insert into keyless values (3, 'z')"],
        ["insert into keyless_full values (3, 'z')", "update keyless_full set b = 'y' where a = 2"],
        ["update keyless_full set b = 'both' where a = 1", "delete from keyless_full where a = 3"],
        ["update stamped_key set code = 'b'", "delete from stamped_key"],
        ['update "with.dots and-dashes" set "select" = \'y\''],
    ]


def identities(made: Workload) -> None:
    """What `before` holds under each replica identity."""
    made.setup += [
        "create table full_identity (id int primary key, name text, amount numeric(8,2), tags text[])",
        "alter table full_identity replica identity full",
        "insert into full_identity values (1, 'a', 1.5, '{x}'), (2, NULL, NULL, NULL), (3, 'c', 3, '{}')",
        "create table index_identity (id int primary key, code text not null, name text)",
        "create unique index index_identity_code on index_identity (code)",
        "alter table index_identity replica identity using index index_identity_code",
        "insert into index_identity values (1, 'a', 'x'), (2, 'b', 'y')",
    ]
    made.stream += [
        [
            "update full_identity set name = 'aa' where id = 1",
            "update full_identity set id = 20 where id = 2",
        ],
        ["delete from full_identity where id in (3, 20)"],
        ["update index_identity set name = 'xx' where id = 1"],
        ["update index_identity set code = 'aa' where id = 1"],
        ["delete from index_identity where id = 2"],
    ]


def toast(made: Workload) -> None:
    """Values so long that PostgreSQL keeps them elsewhere and leaves them out of updates that do not change them."""
    made.setup += [
        "create table long_values (id int primary key, n int, words text, bounded varchar, raw bytea, list text[],"
        " numbers int[], ids uuid[], plain_json json, binary_json jsonb, pairs hstore)",
        *(f"alter table long_values alter {column} set storage external" for column in LONG),
        "insert into long_values select g, 0, repeat('w', 3000), repeat('v', 3000), decode(repeat('ab', 3000), 'hex'),"
        " array[repeat('l', 3000)], (select array_agg(i) from generate_series(1, 1000) i),"
        " (select array_agg('123e4567-e89b-12d3-a456-426614174000'::uuid) from generate_series(1, 200)),"
        " ('\"' || repeat('j', 3000) || '\"')::json, ('\"' || repeat('b', 3000) || '\"')::jsonb,"
        " hstore('k', repeat('h', 3000)) from generate_series(1, 3) g",
        "create table long_full (id int primary key, n int, words text)",
        "alter table long_full replica identity full",
        "alter table long_full alter words set storage external",
        "insert into long_full select g, 0, repeat('f', 3000) from generate_series(1, 3) g",
    ]
    made.stream += [
        ["update long_values set n = 1 where id = 1"],
        ["update long_values set n = 2, words = 'short now' where id = 1"],
        ["update long_values set n = 3 where id = 1"],
        ["update long_values set id = 20 where id = 2"],
        ["insert into long_values (id, n, words) values (4, 0, repeat('z', 3000))"],
        ["update long_values set n = 5 where id = 4", "update long_values set n = 6 where id = 4"],
        ["delete from long_values where id = 3"],
        ["update long_full set n = 1 where id = 1", "update long_full set id = 20 where id = 2"],
        ["delete from long_full where id = 3"],
    ]


def shapes(made: Workload) -> None:
    """Tables that change while capture runs."""
    made.setup += [
        "create table evolving (id int primary key, a int, b text)",
        "insert into evolving values (1, 1, 'one'), (2, 2, 'two')",
        "create table emptied (id int primary key, name text)",
        "insert into emptied values (1, 'x'), (2, 'y')",
        "create table emptied_too (id int primary key, parent int references emptied)",
        "insert into emptied_too values (1, 1)",
        "create table derived (id int primary key, a int, twice int generated always as (a * 2) stored)",
        "insert into derived (id, a) values (1, 5)",
    ]
    made.stream += [
        ["insert into evolving values (3, 3, 'three')"],
        ["alter table evolving add column c numeric(6,2) default 1.5"],
        ["insert into evolving values (4, 4, 'four', 4.25)", "update evolving set a = 10 where id = 1"],
        ["alter table evolving rename column b to title"],
        ["update evolving set title = 'uno' where id = 1"],
        [
            "alter table evolving alter column a type bigint",
            "update evolving set a = 5000000000 where id = 2",
        ],
        ["alter table evolving drop column title"],
        ["insert into evolving values (5, 5, 5)", "delete from evolving where id = 3"],
        [
            "insert into evolving values (6, 6, 6)",
            "alter table evolving add column d text default 'd'",
            "insert into evolving values (7, 7, 7, 'in one transaction')",
        ],
        ["create table newcomer (id int primary key, name text)", "insert into newcomer values (1, 'n')"],
        ["update newcomer set name = 'm'"],
        ["truncate emptied cascade"],
        ["insert into emptied values (1, 'again')"],
        ["truncate emptied, emptied_too restart identity"],
        [
            "insert into emptied values (3, 'last')",
            "truncate evolving",
            "insert into evolving values (8, 8, 8, 'e')",
        ],
    ]


def transactions(made: Workload) -> None:
    """Transactions of several tables, with parts undone, and larger than one read."""
    made.setup += [
        "create table accounts (id int primary key, amount numeric(10,2))",
        "insert into accounts select n, 100 from generate_series(1, 5) n",
        "create table entries (id int primary key, account int, amount numeric(10,2))",
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
        ["insert into entries select n, n % 5, n from generate_series(1000, 1099) n"],
        ["delete from entries where id >= 1090", "update accounts set amount = 0"],
    ]
