"""Connector, broker and database server are killed at random under random writers: the tables rebuilt from the
topics equal the tables, the order of each key holds, no change is missing or there twice.

``HEADWATER_KILLS`` says how often something is killed in each database, ``HEADWATER_SEED`` what and when.
"""

import os
import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.connect.connector import Connector
from tests.faults.connect.databases import LOST, TABLES, Database, Session, database
from tests.faults.connect.verdict import compare, every_change_once, read
from tests.faults.connect.writer import Writer
from tests.support.servers import Headwater

KILLS = int(os.environ.get("HEADWATER_KILLS", "0"))
SEED = int(os.environ.get("HEADWATER_SEED", "0")) or random.randrange(10**6)
KINDS = ("connector", "broker", "database")
RECOVERY_SECONDS = 120.0


class World:
    """Everything that runs, and is killed."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack, chunk: int) -> None:
        self.broker = stack.enter_context(Headwater())
        self.database: Database = stack.enter_context(database(kind))
        environment = {
            "CAPTURED_URL": self.database.url,
            "CAPTURED_TABLES": ",".join(TABLES),
            "CAPTURED_CHUNK": str(chunk),
        }
        self.connector = Connector(self.broker.bootstrap, folder, environment)
        stack.callback(self.connector.kill)
        self.killed: Counter[str] = Counter()

    def kill(self, kind: str, dice: random.Random) -> None:
        """Kills one of them, and starts it again a moment later."""
        self.killed[kind] += 1
        if kind == "connector":
            self.connector.kill()
            time.sleep(0.3 * dice.random())
            self.connector.start()
            return
        victim = self.broker if kind == "broker" else self.database
        victim.kill()
        time.sleep(0.5 * dice.random())
        victim.start()

    def supervise(self, seconds: float) -> None:
        """Lets everything run for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.connector.supervise()
            time.sleep(0.05)

    def wait_for_mark(self, number: int) -> None:
        """Writes a row, and waits until its topic has it: all that was written before is there as well."""
        while True:
            try:
                session = self.database.open()
                session.run("insert into marks values (%s)", (number,))
                session.commit()
                session.close()
                break
            except LOST:
                time.sleep(0.1)
        end = time.monotonic() + RECOVERY_SECONDS
        while not any(event.key == {"id": number} for event in read(self.broker.bootstrap, "marks")):
            assert time.monotonic() < end, (
                f"mark {number} does not come; the connector said:\n{self.connector.tail()}"
            )
            self.supervise(0.2)

    def wait_until_equal(self, session: Session, table: str) -> int:
        """Until the topic has the table, that is: the mark may overtake a table that is read again. Its rows."""
        end = time.monotonic() + RECOVERY_SECONDS
        while True:
            try:
                return compare(session, self.broker.bootstrap, table)
            except AssertionError as error:
                if time.monotonic() > end:
                    raise AssertionError(
                        f"{table} is another in its topic: {error}\nthe connector said:\n{self.connector.tail()}"
                    ) from error
            self.supervise(0.5)

    def audited(self) -> int:
        """How many changes the audit has."""
        session = self.database.open()
        (found,) = session.run("select coalesce(max(n), 0) from audit")
        session.close()
        return int(found[0])


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["postgres", pytest.param("mariadb", marks=pytest.mark.wide)])
def test_every_change_is_there_once_over_kills(kind: str, tmp_path: Path) -> None:
    kills = KILLS or 3
    dice = random.Random(SEED)
    print(f"{kind}: {kills} kills, HEADWATER_SEED={SEED}")
    with ExitStack() as stack:
        world = World(kind, tmp_path, stack, chunk=50)
        pause = 0.01 if KILLS else 0.02
        writers = [
            Writer(world.database, first, SEED + first, pause, big) for first, big in ((0, 0), (50_000, 3000))
        ]
        for writer in writers:
            writer.start()
        time.sleep(1)  # rows for the snapshot
        began = time.monotonic()
        world.connector.start()
        world.wait_for_mark(1)
        since = world.audited()
        order = [KINDS[number % len(KINDS)] for number in range(kills)]
        dice.shuffle(order)
        for victim in order:
            world.supervise(dice.uniform(0.1, 1.5))
            world.kill(victim, dice)
        world.supervise(0.5)
        for writer in writers:
            writer.stop()
        world.wait_for_mark(2)
        took = time.monotonic() - began
        session = world.database.open()
        rows = {table: world.wait_until_equal(session, table) for table in TABLES}
        changes = {
            table: every_change_once(session, world.broker.bootstrap, table, since)
            for table in ("items", "pairs")
        }
        session.close()
        assert world.connector.stop() == 0, world.connector.tail()
        written = sum((writer.written for writer in writers), Counter())
        assert min(rows["items"], rows["pairs"], rows["bag"]) > 10 and changes["items"] > 100, (rows, changes)
        print(
            f"{kind}: {dict(world.killed)} killed in {took:.0f} s; {dict(written)}; rows {rows}, changes {changes};"
            f" the connector ended by itself {len(world.connector.exits)} times"
        )
