"""A random writer, kills of the source between any two commits: what the topics hold equals the tables."""

import contextlib
import os
import random
import threading
import time
from collections import Counter

import orjson
import pymysql
import pytest

from headwater.connect.cdc.mysql.connection import Database
from headwater.connect.cdc.mysql.snapshot import ChunkReader, log_end
from tests.connect.mysql.harness import Capture, fresh_database
from tests.support.mariadb import MariaDB

KILLS = int(os.environ.get("HEADWATER_KILLS", "12"))
TABLES = (
    "create table plain (id int primary key, name varchar(40), n int) default charset utf8mb4",
    "create table pairs (a varchar(10) collate utf8mb4_general_ci, b int, v text, primary key (a, b))",
    "create table labelled (e enum('z','y','x'), n int, v int, primary key (e, n))",
    "create table keyless (n int, v varchar(20))",
    "create table old (id int primary key, v int) engine=MyISAM",
)


class Writer(threading.Thread):
    """Changes the tables at random until it is told to stop."""

    def __init__(self, server: MariaDB, database: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.done = 0
        self._connection = server.connect(database)

    def run(self) -> None:
        try:
            with contextlib.closing(self._connection), self._connection.cursor() as cursor:
                while not self.stopping.is_set():
                    with contextlib.suppress(pymysql.err.IntegrityError):
                        self.change(cursor)
                    self.done += 1
        except BaseException as error:
            self.failure = error

    def change(self, cursor: "pymysql.cursors.Cursor") -> None:
        dice, r = self.random.random(), self.random
        if dice < 0.02:
            cursor.execute(r.choice(("truncate table plain", "truncate table keyless", "truncate table old")))
        elif dice < 0.04:
            with contextlib.suppress(pymysql.err.OperationalError):  # it has one already, or has none
                cursor.execute(
                    r.choice(
                        (
                            "alter table plain add column extra int after id",
                            "alter table plain drop column extra",
                            "alter table plain change name label varchar(60)",
                            "alter table plain change label name varchar(40)",
                        )
                    )
                )
        elif dice < 0.06:  # larger than a read of the socket
            start, size = r.randrange(3000), r.randrange(300, 2000)
            cursor.execute(
                f"insert ignore into plain (id, n) select seq, {start} from seq_{start}_to_{start + size}"
            )
        elif dice < 0.3:
            cursor.execute("begin")
            for _ in range(r.randrange(1, 12)):
                with contextlib.suppress(pymysql.err.IntegrityError):
                    self.small_change(cursor)
            cursor.execute(r.choice(("commit", "commit", "commit", "rollback")))
        else:
            self.small_change(cursor)

    def small_change(self, cursor: "pymysql.cursors.Cursor") -> None:
        r = self.random
        key, other, text = (
            r.randrange(400),
            r.randrange(400),
            "".join(r.choices('aäß"\\\n€', k=r.randrange(9))),
        )
        statements: tuple[tuple[str, tuple[object, ...]], ...] = (
            ("replace into plain (id, n) values (%s, %s)", (key, other)),
            ("update plain set n = n + 1 where id between %s and %s + 9", (key, key)),
            ("update plain set id = %s where id = %s", (other, key)),
            ("delete from plain where id between %s and %s + 3", (key, key)),
            ("replace into pairs values (%s, %s, %s)", (r.choice("abcABC"), key, text)),
            ("update pairs set a = %s, b = %s where b = %s limit 1", (r.choice("xyz"), other, key)),
            ("delete from pairs where b < %s limit 3", (key,)),
            ("insert into labelled values (%s, %s, 0)", (r.choice("xyz"), key)),
            ("update labelled set v = v + 1, e = %s where n = %s limit 1", (r.choice("xyz"), key)),
            ("delete from labelled where n = %s", (key,)),
            ("insert into keyless values (%s, %s), (%s, %s)", (key, text, key, text)),
            ("update keyless set v = %s where n = %s", (text, key)),
            ("delete from keyless where n = %s limit 1", (key,)),
            ("replace into old values (%s, %s)", (key, other)),
            ("delete from old where id = %s", (key,)),
        )
        cursor.execute(*r.choice(statements))


@pytest.mark.parametrize(
    ("metadata", "says_place"),
    [
        ("FULL", True),
        pytest.param("NO_LOG", True, marks=pytest.mark.wide),
        pytest.param("FULL", False, marks=pytest.mark.wide),
    ],
)
def test_topics_equal_tables_after_kills(
    mariadb: MariaDB, metadata: str, says_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not says_place:  # as MySQL: the place is asked for after the snapshot has begun, while others write
        monkeypatch.setattr(ChunkReader, "says_place", False)
        monkeypatch.setattr("headwater.connect.cdc.mysql.snapshot.log_end", _late_end)
    mariadb.run(f"set global binlog_row_metadata = {metadata}")
    database = fresh_database(mariadb, *TABLES)
    mariadb.run(
        "insert into plain (id, n) select seq, 0 from seq_1_to_1500",
        "insert into keyless select seq % 700, 'x' from seq_1_to_900",
        "insert into pairs select char(97 + seq % 5), seq, 'x' from seq_1_to_300",
        "insert into labelled select 1 + seq % 3, seq, 0 from seq_1_to_250",
        database=database,
    )
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    capture = Capture(mariadb, database, chunk_rows=60 if says_place else 400)
    writer = Writer(mariadb, database, seed)
    writer.start()
    try:
        for _ in range(KILLS):
            for _ in range(chance.randrange(1, 40)):
                capture.take(commits=chance.random() < 0.6)
            capture.kill()
            assert writer.failure is None, writer.failure
    finally:
        writer.stopping.set()
        writer.join(20)
        mariadb.run("set global binlog_row_metadata = FULL")
    assert writer.failure is None, writer.failure
    capture.until_caught_up(mariadb)
    compare(mariadb, database, capture)
    assert writer.done > 50
    check_order(capture)
    capture.close()


def _late_end(database: Database) -> object:
    time.sleep(0.05)
    return log_end(database)


def compare(server: MariaDB, database: str, capture: Capture) -> None:
    for table, key in {"plain": ["id"], "pairs": ["a", "b"], "labelled": ["e", "n"], "old": ["id"]}.items():
        columns = [row[0] for row in server.run(f"describe {table}", database=database)]
        there = {}
        for values in server.run(f"select * from {table}", database=database):
            row = dict(zip(columns, values, strict=True))
            there[orjson.dumps({name: row[name] for name in key})] = row
        ours = {k: {name: row.get(name) for name in columns} for k, row in capture.rows(table).items()}
        wrong = {k for k in ours.keys() | there.keys() if ours.get(k) != there.get(k)}
        # A column that was renamed or added has no event for rows that were not changed since.
        wrong = {
            k for k in wrong
            if table != "plain" or k not in ours or k not in there or ours[k]["n"] != there[k]["n"]
        }  # fmt: skip
        assert not wrong, [(table, k, ours.get(k), there.get(k)) for k in sorted(wrong)[:5]]
    bag = Counter(
        orjson.dumps({"n": n, "v": v}) for n, v in server.run("select * from keyless", database=database)
    )
    assert capture.bag("keyless") == bag, (capture.bag("keyless") - bag, bag - capture.bag("keyless"))


def check_order(capture: Capture) -> None:
    """No change twice: places in the log only grow, and each is there once."""
    seen = set()
    for topic, key, value, _ in capture.log.records:
        if value is None or topic.rpartition(".")[2] not in ("plain", "pairs", "labelled", "keyless", "old"):
            continue
        event = orjson.loads(value)
        source = event["source"]
        if event["op"] in "cud" and source["gtid"] is not None:
            place = (source["file"], source["pos"], source["row"], event["op"], key, topic)
            assert place not in seen, place
            seen.add(place)
