"""Writers in other processes, and SIGKILL to everything: the topics make the tables, and no change comes twice."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.connect.positions import all_standings
from headwater.errors import HeadwaterError
from tests.connect.sqlite.capturing import rebuilt, table_rows
from tests.connect.sqlite.random_writer import TABLES, make
from tests.support.servers import Headwater

KILLS = int(os.environ.get("HEADWATER_KILLS", "3"))
PROGRAM = str(Path(sys.executable).with_name("headwater"))


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


@pytest.mark.timeout(60 + 20 * KILLS)
def test_killed_capture_writers_and_broker(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADWATER_SEED", "11"))
    print(f"seed {seed}")
    chance = random.Random(seed)
    path, app = tmp_path / "shop.db", tmp_path / "app.py"
    make(path, 2000)
    app.write_text(
        "import headwater as hw\napp = hw.App('shop')\n"
        f"app.source(hw.cdc('sqlite:///{path}', chunk_rows=300))\n"
    )
    with Headwater() as server:
        connection = Connection(server.bootstrap)
        connect = (PROGRAM, "connect", str(app), "--bootstrap", server.bootstrap)
        for kill in range(KILLS):
            write = (sys.executable, "-m", "tests.connect.sqlite.random_writer", str(path))
            with (
                process(*write, str(seed + kill)),
                process(*write, str(seed + 1000 + kill)),
                process(*connect) as own,
            ):
                before = _sequence(connection)
                end = time.monotonic() + 60
                while _sequence(connection) <= before and time.monotonic() < end:
                    time.sleep(0.1)
                time.sleep(chance.uniform(0, 0.8))
                if chance.random() < 0.4:
                    server.kill()
                    own.poll() if chance.random() < 0.5 else own.kill()
                    server.start()
                    time.sleep(chance.uniform(0, 1.0))
        with process(*connect):
            end = time.monotonic() + 120
            while not _is_all_read(path, connection):
                assert time.monotonic() < end, "it does not come to the end"
                time.sleep(0.1)
        changes = 0
        schemas = _records(connection, "shop.schema")
        print(f"{len(schemas)} definitions of tables")
        for table in TABLES:
            records = _records(connection, f"shop.{table}")
            assert rebuilt([(key, value) for key, value in records]) == table_rows(path, table), table
            changes += (found := _check_order(records))
            print(f"{table}: {len(records)} records, {found} changes")
        assert len(schemas) > len(TABLES)
        assert changes > 100 * KILLS


def _standing(connection: Connection) -> dict[str, object]:
    try:
        found = all_standings(connection, Admin(connection)).get("shop")
    except HeadwaterError:
        return {}
    return dict(found.position or {}) if found is not None else {}


def _sequence(connection: Connection) -> int:
    return int(str(_standing(connection).get("sequence", -1)))


def _is_all_read(path: Path, connection: Connection) -> bool:
    standing = _standing(connection)
    with sqlite3.connect(path, timeout=30) as database:
        (last,) = database.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = '_headwater_changes'"
        ).fetchone()
        shapes = dict(
            database.execute(
                "SELECT name, max(id) FROM _headwater_shapes WHERE name NOT LIKE 'new%' GROUP BY name"
            )
        )
    database.close()
    return standing.get("sequence") == last and not standing["jobs"] and standing["shapes"] == shapes


def _records(connection: Connection, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with Reader(connection, [topic], to_end=True) as reader:
        return [(message.key(), message.value()) for batch in reader.batches() for message in batch]


def _check_order(records: list[tuple[bytes | None, bytes | None]]) -> int:
    """Changes come in the order of the database, each once; the number of changes."""
    last, seen = 0, 0
    ops = ""
    for _, value in records:
        if value is None:
            continue
        event = orjson.loads(value)
        if event["source"]["snapshot"] != "false":
            continue
        change = event["source"]["change"]
        # A changed key is one change and two events.
        assert change > last or (change == last and (ops, event["op"]) == ("d", "c")), (change, last, event)
        last, ops = change, event["op"]
        seen += 1
    return seen
