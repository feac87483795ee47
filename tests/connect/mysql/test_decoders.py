"""The pure parts on bytes and texts. What only MySQL writes is made here as its documentation describes it:
Debian has no MySQL server to run."""

import json
import random
import socket
import struct
import zlib
from collections.abc import Callable

import cramjam
import orjson
import pytest

from headwater.connect.cdc.envelope import envelope
from headwater.connect.cdc.mysql import binlog, changes
from headwater.connect.cdc.mysql.changes import Naming
from headwater.connect.cdc.mysql.ddl import effects
from headwater.connect.cdc.mysql.definitions import Defaults
from headwater.connect.cdc.mysql.gtid import MariaGtids, MySQLGtids
from headwater.connect.cdc.mysql.history import History
from headwater.connect.cdc.mysql.json_binary import json_text, plain_json
from headwater.connect.cdc.mysql.packets import Packets
from headwater.connect.cdc.mysql.pauses import ReplayPause
from headwater.connect.cdc.mysql.schema import Column, Filter, Table
from headwater.connect.cdc.mysql.state import LogState
from headwater.connect.cdc.mysql.stream import Stream
from headwater.connect.cdc.options import CdcOptions
from headwater.errors import ChangesMissed, ConnectionLost

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


# -- ids


def test_sets_of_mysql_ids() -> None:
    chance = random.Random(5)
    seen, plain = MySQLGtids(), set()
    for _ in range(500):
        number = chance.randrange(1, 120)
        seen.add(UUID, number)
        plain.add(number)
    assert all(seen.has(UUID, n) == (n in plain) for n in range(130))
    again = MySQLGtids.parse(str(seen))
    assert again == seen and again <= seen
    assert binlog.previous_gtids(seen.encoded()).count("-") > 4
    assert MySQLGtids.parse(binlog.previous_gtids(seen.encoded())) == seen
    assert not MySQLGtids.parse(f"{UUID}:1-1000") <= seen
    assert MySQLGtids.parse(f"{UUID}:tag:1-3").has_tags and not seen.has_tags
    assert str(MariaGtids.parse("1-2-3,0-1-5")) == "0-1-5,1-2-3"


# -- a server of MySQL in bytes


class MySQLEvents:
    """Writes events as MySQL does: packets with a status byte, headers and checksums."""

    def __init__(self) -> None:
        self.place = 4
        self.packets: list[bytes] = []

    def event(self, kind: int, body: bytes, checksum: bool = True, flags: int = 0) -> bytes:
        length = 19 + len(body) + 4 * checksum
        self.place += length
        event = struct.pack("<IBIIIH", 1_700_000_000, kind, 7, length, self.place, flags) + body
        return event + struct.pack("<I", zlib.crc32(event)) if checksum else event

    def send(self, kind: int, body: bytes, flags: int = 0) -> None:
        self.packets.append(b"\0" + self.event(kind, body, flags=flags))

    def begin(self) -> None:
        self.send(binlog.ROTATE, struct.pack("<Q", 4) + b"mysql-bin.000001", flags=binlog.ARTIFICIAL)
        description = struct.pack("<H50sIB", 4, b"8.0.36", 0, 19) + bytes(40) + b"\x01"
        self.send(binlog.FORMAT_DESCRIPTION, description)

    def gtid(self, number: int) -> None:
        body = b"\x01" + bytes.fromhex(UUID.replace("-", "")) + struct.pack("<QBQQ", number, 2, 0, 1)
        self.send(binlog.MYSQL_GTID, body)

    @staticmethod
    def query(text: str) -> bytes:
        return struct.pack("<IIBHH", 99, 0, 4, 0, 0) + b"shop\0" + text.encode()

    @staticmethod
    def table_map(*, full: bool = True) -> bytes:
        """``create table t (id int unsigned primary key, j json, e enum('a,b','c'), p point)``"""
        body = struct.pack("<IHH", 33, 0, 1) + b"\x04shop\0\x01t\0\x04" + bytes([3, 245, 254, 255])
        body += b"\x04" + bytes([4, 247, 1, 4]) + b"\x0e"
        if full:
            body += b"\x01\x01\x80" + b"\x04\x09\x02id\x01j\x01e\x01p" + b"\x06\x07\x02\x03a,b\x01c"
            body += b"\x08\x01\x00"
        return body

    @staticmethod
    def written(identity: int, document: bytes) -> bytes:
        header = struct.pack("<IHHH", 33, 0, 1, 2) + b"\x04\x0f"
        return header + b"\xf8" + struct.pack("<II", identity, len(document)) + document + b"\x01"

    def spans(self) -> tuple[bytes, list[tuple[int, int]]]:
        data, spans = b"", []
        for packet in self.packets:
            spans.append((len(data), len(data) + len(packet)))
            data += packet
        self.packets = []
        return data, spans


def mysql_stream(**options: object) -> Stream:
    naming = Naming(CdcOptions("mysql://db/shop", **options), "mysql")  # type: ignore[arg-type]
    columns = (
        Column("id", "int unsigned", nullable=False),
        Column("j", "json"),
        Column("e", "enum('a,b','c')", "utf8mb4"),
        Column("p", "point"),
    )
    tables = {("shop", "t"): Table("shop", "t", columns, ("id",))}
    history = History(Filter("shop", None), tables, lambda name: None, {255: "utf8mb4"})
    return Stream(naming, history, LogState(False, MySQLGtids()), checksummed=True)


DOCUMENT = b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x07\x00a"  # {"a": 7}


@pytest.mark.parametrize("full", [True, False])
def test_a_transaction_of_mysql(full: bool) -> None:
    server, stream = MySQLEvents(), mysql_stream(transactions=True)
    server.begin()
    server.gtid(1)
    server.send(binlog.QUERY, server.query("BEGIN"))
    server.send(binlog.TABLE_MAP, server.table_map(full=full))
    server.send(30, server.written(4_000_000_000, DOCUMENT))
    server.send(binlog.XID, struct.pack("<Q", 5))
    data, spans = server.spans()
    assert stream.feed(data, spans) == len(spans)
    begin, created, end = stream.take()
    assert orjson.loads(begin[2])["id"] == orjson.loads(end[2])["id"] == f"{UUID}:1"
    event = orjson.loads(created[2])
    assert created[1] == b'{"id":4000000000}'
    assert event["after"] == {"id": 4_000_000_000, "j": '{"a":7}', "e": "a,b", "p": None}
    assert event["source"]["connector"] == "mysql"
    assert (event["source"]["gtid"], event["source"]["thread"]) == (f"{UUID}:1", 99)
    position = stream.position()
    assert (position["gtid"], position["file"]) == (f"{UUID}:1", "mysql-bin.000001")
    assert position["pos"] == server.place


def test_a_compressed_transaction_of_mysql() -> None:
    server, stream = MySQLEvents(), mysql_stream()
    server.begin()
    server.gtid(1)
    inner = MySQLEvents()
    plain = b"".join(
        inner.event(kind, body, checksum=False)
        for kind, body in (
            (binlog.QUERY, server.query("BEGIN")),
            (binlog.TABLE_MAP, server.table_map()),
            (30, server.written(1, DOCUMENT)),
            (binlog.XID, struct.pack("<Q", 5)),
        )
    )
    packed = bytes(cramjam.zstd.compress(plain))

    def field(kind: int, value: int) -> bytes:
        encoded = b"\xfc" + struct.pack("<H", value)
        return bytes([kind, len(encoded)]) + encoded

    body = field(2, 0) + field(3, len(plain)) + field(1, len(packed)) + b"\0" + packed
    server.send(binlog.TRANSACTION_PAYLOAD, body)
    data, spans = server.spans()
    stream.feed(data, spans)
    (record,) = stream.take()
    assert orjson.loads(record[2])["after"]["id"] == 1
    assert stream.position()["gtid"] == f"{UUID}:1"
    assert stream.position()["pos"] == server.place


def test_xa_of_mysql_waits_for_its_commit() -> None:
    server, stream = MySQLEvents(), mysql_stream()
    server.begin()
    server.gtid(1)
    start = server.place
    server.send(binlog.QUERY, server.query("XA START X'7831',X'',1"))
    server.send(binlog.TABLE_MAP, server.table_map())
    server.send(30, server.written(1, DOCUMENT))
    server.send(binlog.QUERY, server.query("XA END X'7831',X'',1"))
    server.send(binlog.XA_PREPARE, struct.pack("<BIII", 0, 1, 2, 0) + b"x1")
    prepared = server.spans()
    stream.feed(*prepared)
    assert not stream.take() and stream.pause is None
    ((_, place),) = stream.state.prepared.values()
    assert place < start
    server.gtid(2)
    server.send(binlog.QUERY, server.query("XA COMMIT X'7831',X'',1"))
    stream.feed(*server.spans())
    assert isinstance(stream.pause, ReplayPause)
    assert stream.replay(*prepared)
    (record,) = stream.take()
    assert orjson.loads(record[2])["source"]["gtid"] == f"{UUID}:2"
    assert stream.position()["gtid"] == f"{UUID}:1-2" and "prepared" not in stream.position()


def test_heartbeats_move_the_position() -> None:
    server, stream = MySQLEvents(), mysql_stream()
    server.begin()
    stream.feed(*server.spans())
    server.send(binlog.HEARTBEAT_2, b"\x01\x10mysql-bin.000002" + b"\x02\x03\xfc\x10\x27" + b"\0")
    stream.feed(*server.spans())
    assert stream.is_at(("mysql-bin.000002", 10_000)) and not stream.is_at(("mysql-bin.000002", 10_001))


def test_damage_and_what_cannot_be_read_is_told() -> None:
    server, stream = MySQLEvents(), mysql_stream()
    server.begin()
    server.gtid(1)
    data, spans = server.spans()
    with pytest.raises(ConnectionLost, match="checksum"):
        stream.feed(data[:-6] + b"?" + data[-5:], spans)
    for kind, cause in ((binlog.INCIDENT, "lost events"), (binlog.MYSQL_GTID_TAGGED, "tagged")):
        server, stream = MySQLEvents(), mysql_stream()
        server.begin()
        server.send(kind, bytes(30))
        with pytest.raises(ChangesMissed, match=cause):
            stream.feed(*server.spans())
    server, stream = MySQLEvents(), mysql_stream()
    server.begin()
    server.gtid(1)
    server.send(binlog.QUERY, server.query("update t set e = 'c'"))
    with pytest.raises(ChangesMissed, match="as a statement"):
        stream.feed(*server.spans())


# -- JSON


def encoded_json(value: object) -> bytes:
    """MySQL's binary JSON in its small form, written for these tests from its description."""
    kind, body = _encoded(value)
    return bytes([kind]) + body


def _encoded(value: object) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        if -(1 << 15) <= value < 1 << 15:
            return 5, struct.pack("<h", value)
        if -(1 << 31) <= value < 1 << 31:
            return 7, struct.pack("<i", value)
        return (9, struct.pack("<q", value)) if value < 1 << 63 else (10, struct.pack("<Q", value))
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        raw = value.encode()
        size = bytes([len(raw)]) if len(raw) < 128 else bytes([len(raw) & 0x7F | 0x80, len(raw) >> 7])
        return 12, size + raw
    pairs = sorted(value.items(), key=lambda pair: len(pair[0])) if isinstance(value, dict) else None
    items = [item for _, item in pairs] if pairs is not None else list(value)  # type: ignore[call-overload]
    keys = [key.encode() for key, _ in pairs] if pairs is not None else []
    at = 4 + 4 * len(keys) + 3 * len(items)
    key_entries, entries, tail = b"", b"", b""
    for key in keys:
        key_entries += struct.pack("<HH", at + len(tail), len(key))
        tail += key
    for item in items:
        kind, body = _encoded(item)
        if kind in (4, 5):
            entries += bytes([kind]) + body.ljust(2, b"\0")
        else:
            entries += struct.pack("<BH", kind, at + len(tail))
            tail += body
    whole = struct.pack("<HH", len(items), at + len(tail)) + key_entries + entries + tail
    return (0 if pairs is not None else 2), whole


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -5, 40_000, -(1 << 31), 1 << 40, (1 << 64) - 1, 1.5, -0.1, "", "ü\"\\", "x" * 300,
        [], {}, [1, [2, [None]], "a"], {"a": 1, "bb": {"c": [True, 70_000]}, "": "x" * 200},
    ],
)  # fmt: skip
def test_binary_json(value: object) -> None:
    assert json.loads(plain_json(encoded_json(value))) == value
    assert json.loads(json.loads(json_text(encoded_json(value)))) == value


def test_values_of_sql_in_json() -> None:
    decimal = b"\x0f\xf6\x05\x05\x02\x80\x7b\x2d"  # opaque, DECIMAL(5,2): 123.45
    assert plain_json(decimal) == b"123.45"
    packed = ((2024 * 13 + 2) << 5 | 29) << 17 | 13 << 12 | 14 << 6 | 15
    moment = b"\x0f\x0c\x08" + struct.pack("<Q", packed << 24 | 123456)
    assert plain_json(moment) == b'"2024-02-29 13:14:15.123456"'
    time = b"\x0f\x0b\x08" + struct.pack("<q", -((1 << 12 | 2 << 6 | 3) << 24))
    assert plain_json(time) == b'"-01:02:03.000000"'
    assert plain_json(b"\x0f\xfc\x02\x00\xff") == b'"AP8="'


# -- envelopes


def test_templates_give_the_envelope() -> None:
    table = Table("shop", "100%", (Column("id", "int"),), ("id",))
    naming = Naming(CdcOptions("mysql://db/shop"), "mysql")
    prefix = naming.source(table, b'"false"') % (1000, 1_000_000, 1_000_000_000, 7)
    source = changes.SOURCE % (prefix, b"null", b',"file":"f","pos":', 4, 0, b"null")
    assert list(orjson.loads(source)) == [
        "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns", "table",
        "server_id", "gtid", "file", "pos", "row", "thread", "query",
    ]  # fmt: skip
    parts = (prefix, b"null", b',"file":"f","pos":', 4, 0, b"null", b"null", changes.stamp(5_000_000_123))
    for template, images, before, after, op in (
        (changes.CREATED, (b"1",), b"null", b"1", b"c"),
        (changes.READ, (b"1",), b"null", b"1", b"r"),
        (changes.UPDATED, (b"1", b"2"), b"1", b"2", b"u"),
        (changes.DELETED, (b"1",), b"1", b"null", b"d"),
        (changes.TRUNCATED, (), b"null", b"null", b"t"),
    ):
        assert template % (*images, *parts) == envelope(op, before, after, source, 5_000_000_123)


# -- packets


@pytest.mark.parametrize("cut", [1, 7, 1000, 1 << 20])
def test_packets_however_they_come(cut: int) -> None:
    contents = [b"a", b"", b"b" * 1000, b"c" * 300_000, b"d"]
    if cut > 1000:
        contents += [b"e" * ((1 << 24) + 5), b"f" * ((1 << 24) - 1), b"g"]
    stream = b""
    for content in contents:
        at = 0
        while True:
            part = content[at : at + 0xFFFFFF]
            stream += len(part).to_bytes(3, "little") + b"\0" + part
            at += len(part)
            if len(part) < 0xFFFFFF:
                break
    if cut < 1000:
        stream, contents = stream[:1020], contents[:3]
    near, far = socket.socketpair()
    packets, found = Packets(near), []
    with near, far:
        for at in range(0, len(stream), cut):
            piece = stream[at : at + cut]
            while piece:
                far.setblocking(False)
                try:
                    piece = piece[far.send(piece) :]
                except BlockingIOError:
                    pass
                data, spans = packets.receive(1)
                found += [data[start:end] for start, end in spans]
        while len(found) < len(contents):
            data, spans = packets.receive(1)
            assert not packets.is_quiet
            found += [data[start:end] for start, end in spans]
    assert found == contents


# -- DDL

START = Table(
    "shop",
    "t",
    (
        Column("id", "int(11)", None, False, False),
        Column("a", "int(11)"),
        Column("b", "varchar(5)", "utf8mb4"),
    ),
    ("id",),
)


def named(table: Table) -> str:
    return ", ".join(f"{c.name} {c.type}" + (f" {c.charset}" if c.charset else "") for c in table.columns)


ALTERED: list[tuple[str, str]] = [
    ("add c int", "id int(11), a int(11), b varchar(5) utf8mb4, c int"),
    ("add column if not exists a int, drop if exists zz", "id int(11), a int(11), b varchar(5) utf8mb4"),
    ("ADD (c INT UNSIGNED, d TEXT CHARACTER SET latin1)",
     "id int(11), a int(11), b varchar(5) utf8mb4, c int unsigned, d text latin1"),
    ("add c decimal(5) first, add d numeric(8,3) after id",
     "c decimal(5,0), id int(11), d decimal(8,3), a int(11), b varchar(5) utf8mb4"),
    ("drop a, drop column b", "id int(11)"),
    ("modify a bigint zerofill comment 'a, (b' default 5",
     "id int(11), a bigint unsigned zerofill, b varchar(5) utf8mb4"),
    ("change `a` `select` enum('x,y','(''') not null default 'x,y' after b",
     "id int(11), b varchar(5) utf8mb4, select enum('x,y','(''') utf8mb4"),
    ("rename column a to A2, rename index x to y", "id int(11), A2 int(11), b varchar(5) utf8mb4"),
    ("convert to character set latin1 collate latin1_bin", "id int(11), a int(11), b varchar(5) latin1"),
    ("add index (a), add constraint c check (a > 5), add fulltext key (b), engine=InnoDB, comment='x'",
     "id int(11), a int(11), b varchar(5) utf8mb4"),
    ("add c varchar(10) binary collate latin1_swedish_ci generated always as (concat(b, ',')) virtual",
     "id int(11), a int(11), b varchar(5) utf8mb4, c varchar(10) latin1"),
    ("add c char byte, add d national varchar(3), add e long varbinary, add f json, add g bool, add h float(30)",
     "id int(11), a int(11), b varchar(5) utf8mb4, c binary(1), d varchar(3) utf8mb3, e mediumblob,"
     " f longtext utf8mb4, g tinyint(1), h double"),
    ("add c text(200), add d blob(70000), add e varchar(9) charset binary, add f uuid, add g double precision",
     "id int(11), a int(11), b varchar(5) utf8mb4, c tinytext utf8mb4, d mediumblob, e varbinary(9), f uuid,"
     " g double"),
    ("/*!50100 add c int */ /* drop a */, add d /*M!100301 int */ -- add x int",
     "id int(11), a int(11), b varchar(5) utf8mb4, c int, d int"),
    ("add c enum(\"x\", 'y', \"it's\", \"a\"\"b\", \"c\\\"d\")",
     "id int(11), a int(11), b varchar(5) utf8mb4, c enum('x','y','it''s','a\"b','c\\\"d') utf8mb4"),
    ("add c text, default character set = latin1, add d text, convert to character set default",
     "id int(11), a int(11), b varchar(5) utf8mb4, c text utf8mb4, d text utf8mb4"),
    ("default charset binary, add d text, add e varchar(3) charset latin1, modify b char(3), add (f text)",
     "id int(11), a int(11), b binary(3), d blob, e varchar(3) latin1, f blob"),
    ("add system versioning",
     "id int(11), a int(11), b varchar(5) utf8mb4, row_start timestamp(6), row_end timestamp(6)"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), ALTERED)
def test_alter_table(change: str, expected: str) -> None:
    (effect,) = effects(f"alter online table if exists `t` {change}", Defaults("shop"))
    make: Callable[[Table], Table | None] = effect.change  # type: ignore[union-attr]
    made = make(START)
    assert made is not None and named(made) == expected


CREATED: list[tuple[str, str, tuple[str, ...]]] = [
    ("create table t (id int primary key, n int)", "id int, n int", ("id",)),
    ("create table if not exists x.t (a int, b int not null, c int not null, unique u (c, b), unique (a))",
     "a int, b int, c int", ("c", "b")),
    ("create or replace table t (a int unique, `b``c` text, primary key using btree (`b``c`(10) desc)) charset=latin1",
     "a int, b`c text latin1", ("b`c",)),
    ("create table t (a serial, key (a)) engine = Aria collate latin1_bin", "a bigint(20) unsigned", ("a",)),
    ("CREATE TABLE `t` (\n  `id` int(11) NOT NULL,\n  `v` varchar(5) DEFAULT NULL,\n  PRIMARY KEY (`id`)\n)",
     "id int(11), v varchar(5) utf8mb4", ("id",)),
    ("create table t (a int references x (y) on delete cascade, b int, foreign key (b) references z (q))",
     "a int, b int", ()),
    ("create table t (a int, b int) partition by range (a) (partition p0 values less than (5))", "a int, b int", ()),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "columns", "key"), CREATED)
def test_create_table(statement: str, columns: str, key: tuple[str, ...]) -> None:
    (effect,) = effects(statement, Defaults("shop"))
    table: Table = effect.table  # type: ignore[union-attr, assignment]
    assert (named(table), table.key) == (columns, key)


def test_other_statements() -> None:
    def said(text: str) -> list[str]:
        return [type(effect).__name__ for effect in effects(text, Defaults("shop"))]

    assert said("rename table a to b, c.d wait 5 to e.f") == ["Renamed", "Renamed"]
    assert said("alter table a add x int, rename to b") == ["Altered", "Renamed"]
    assert said("set statement lock_wait_timeout=5 for truncate table a") == ["Truncated"]
    assert said("DROP TABLE `a`, b /* generated by server */") == ["Dropped", "Dropped"]
    assert said("drop database shop") == ["DatabaseDropped"]
    assert said("create unique index i on a (b)") == ["Altered"]
    assert said("alter table a ???") == ["Altered"] or said("alter table a ???") == []
    for text in ("create temporary table a (b int)", "grant all on *.* to x", "create view v as select 1",
                 "drop temporary table a", "create sequence s", "alter user x", "analyze table a", ""):  # fmt: skip
        assert said(text) == []
    assert said("create table t (a") == ["Unclear"]
