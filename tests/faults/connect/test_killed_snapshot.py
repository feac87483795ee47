"""A snapshot that is killed goes on where it was; rows that are deleted and changed meanwhile leave no wrong row.

``HEADWATER_ROWS`` says how many rows the table has (a million in ``make faults-connect``), ``HEADWATER_KILLS`` how
often the connector is killed while it is read.
"""

import os
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.connect.test_killed_capture import RECOVERY_SECONDS, SEED, World
from tests.faults.connect.verdict import compare, read, rebuild, rebuild_bag, topic_end

ROWS = int(os.environ.get("HEADWATER_ROWS", "100000"))
KILLS = min(20, int(os.environ.get("HEADWATER_KILLS", "0")) or 2)
CHUNK = max(500, ROWS // 100)
STATISTICS_SECONDS = {"postgres": 11.0, "mariadb": 1.5}  # behind which the server's are, of who is idle


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=pytest.mark.wide), "mariadb"])
def test_a_killed_snapshot_goes_on(kind: str, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    print(f"{kind}: {ROWS} rows, chunks of {CHUNK}, {KILLS} kills, HEADWATER_SEED={SEED}")
    with ExitStack() as stack:
        world = World(kind, tmp_path, stack, chunk=CHUNK)
        fill(world, ROWS)
        read_before = world.database.rows_read("items")
        began = time.monotonic()
        deleted: set[int] = set()
        world.connector.start()
        for number in range(1, KILLS + 1):
            wait_for_rows(world, ROWS * number // (2 * KILLS + 2))
            world.connector.kill()
            if number == KILLS:
                time.sleep(STATISTICS_SECONDS[kind])
                left = ROWS - len(snapshot_rows(world))
                read_until_then = world.database.rows_read("items")
            # Rows that the snapshot has had, and rows that it has yet to read; the keyless ones as well.
            session = world.database.open()
            gone = dice.sample(range(10, ROWS - 10), 50)
            deleted.update(gone)
            session.run(f"delete from items where id in ({', '.join(map(str, gone))})")
            session.run("update items set version = -1 where id in (%s, %s)", (2, ROWS - 1))
            session.run("delete from bag where a = %s", (dice.randrange(100),))
            session.run("update bag set b = b + 1 where a = %s", (dice.randrange(100),))
            session.commit()
            session.close()
            world.connector.start()
        world.wait_for_mark(1)
        wait_until_read(world, ROWS - len(deleted))
        took = time.monotonic() - began
        world.supervise(STATISTICS_SECONDS[kind])
        read_at_last = world.database.rows_read("items")
        again = read_at_last - read_before - ROWS
        session = world.database.open()
        rows = {table: compare(session, world.broker.bootstrap, table) for table in ("items", "bag")}
        session.close()
        keys = snapshot_rows(world)
        last = read_at_last - read_until_then
        print(f"{kind}: {rows} after {KILLS} kills in {took:.0f} s; {again} rows read again", end="; ")
        print(f"{last} after the last kill, when {left} were missing")
        assert len(keys) == len(set(keys)), "rows of the snapshot are in the topic twice"
        # How much a kill costs depends on how long a transaction of the log is, and that on the machine. What is in
        # the log is not read again; the changes above read some rows, too.
        assert last <= left + 2 * CHUNK, (
            f"{last} rows were read after the last kill, when {left} were missing"
        )


def fill(world: World, rows: int) -> None:
    """Rows for the snapshot: in `items`, and a tenth of them in the table without a key."""
    session = world.database.open()
    series = "generate_series(1, {0}) as seq" if world.database.kind == "postgres" else "seq_1_to_{0}"
    if world.database.kind == "postgres":
        session.run("alter table items disable trigger user")
    else:
        session.run("drop trigger audit_items_c")
    session.run(
        f"insert into items (id, version, body) select seq, seq, 'row of the snapshot' from {series.format(rows)}"
    )
    session.run(f"insert into bag (a, b) select seq % 100, seq from {series.format(rows // 10)}")
    session.commit()
    session.close()


def snapshot_rows(world: World) -> list[str]:
    """The keys of the rows that the snapshot has brought into the log for good."""
    return [str(event.key) for event in read(world.broker.bootstrap, "items") if event.op == "r"]


def wait_for_rows(world: World, count: int) -> None:
    end = time.monotonic() + 600
    while topic_end(world.broker.bootstrap, "items") < count:
        assert time.monotonic() < end, f"the snapshot does not go on:\n{world.connector.tail()}"
        world.supervise(0.02)


def wait_until_read(world: World, items: int) -> None:
    """Until the topics have as many rows as the tables: the mark may overtake a snapshot."""
    end = time.monotonic() + RECOVERY_SECONDS
    while True:
        read_ahead = [len(rebuild("items", read(world.broker.bootstrap, "items")))]
        read_ahead.append(rebuild_bag(read(world.broker.bootstrap, "bag")).total())
        session = world.database.open()
        counts = [items, session.run("select count(*) from bag")[0][0]]
        session.close()
        if read_ahead == counts:
            return
        assert time.monotonic() < end, (
            f"{read_ahead} rows of {counts}; the connector said:\n{world.connector.tail()}"
        )
        world.supervise(0.5)
