"""Driver, Java, Python workers, broker and database are killed at random under a pipeline of one topic and one
view: both equal a recompute of the input, nothing twice, nothing missing.

``HEADWATER_KILLS`` says how often each of them is killed, ``HEADWATER_SEED`` in which order and when,
``HEADWATER_KILLED`` which of them, separated by commas.
"""

import json
import os
import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.views import ViewStore, open_store
from tests.faults.harness import chance, create_topic
from tests.faults.streams.driver import Driver
from tests.faults.streams.feed import TOPIC, Feed
from tests.faults.streams.verdict import Verdict
from tests.support import java
from tests.support.postgres import Postgres
from tests.support.servers import Headwater

KILLS = int(os.environ.get("HEADWATER_KILLS", "0"))
APPLICATION = Path(__file__).with_name("ledger.py")
RATE = 200  # payments a second
RECOVERY_SECONDS = 240.0

# Few kinds where many tests run one after the other: each kill costs some seconds.
CHOSEN = tuple(filter(None, os.environ.get("HEADWATER_KILLED", "").split(",")))
SQLITE = CHOSEN or (
    ("driver", "java", "worker", "runner", "broker") if KILLS else ("worker or broker", "driver or java")
)
POSTGRESQL = CHOSEN or ("driver", "worker", "broker", "postgres")


class World:
    """Everything that runs, and is killed."""

    def __init__(self, store: str, folder: Path, stack: ExitStack, database: Postgres | None) -> None:
        self.broker = stack.enter_context(Headwater())
        self.database = database
        self.store = database.url() if database is not None else f"sqlite:///{folder / 'data' / 'views.db'}"
        create_topic(self.broker.bootstrap, TOPIC, 2)
        self.folder = folder
        arguments = ["--bootstrap", self.broker.bootstrap, "--data", str(folder / "data")]
        self.driver = Driver(
            APPLICATION,
            [*arguments, "--store", self.store],
            folder / "driver.log",
            {} if KILLS else java.QUICK,
        )
        stack.callback(self.driver.close)
        self.feed = Feed(self.broker.bootstrap, RATE)
        self.killed: Counter[str] = Counter()
        self._views: ViewStore | None = None

    def kill(self, kind: str, dice: random.Random) -> bool:
        """Kills one of them, and starts again what nobody else starts; False when it was not there."""
        if kind == "driver":
            done = self.driver.kill_driver()
        elif kind == "java":
            done = self.driver.kill_java()
        elif kind == "broker":
            self.broker.kill()
            time.sleep(dice.choice([0.0, dice.uniform(0.0, 2.0)]))
            self.broker.start()
            done = True
        elif kind == "postgres":
            assert self.database is not None
            self.database.kill()
            time.sleep(dice.choice([0.0, dice.uniform(0.0, 2.0)]))
            self.database.start()
            done = True
        else:
            done = self.driver.kill_one(kind, dice.random())
        self.killed[kind] += done
        return done

    def covered(self) -> int:
        """How many input records the view covers; 0 while nobody can say."""
        try:
            self._views = self._views or open_store(self.store)
            offsets = self._views.progress("totals").offsets.get(TOPIC, {})
        except HeadwaterError:
            return 0
        return sum(int(offset) for offset in offsets.values())

    def wait_until_covered(self, records: int) -> None:
        """Waits until the view and the topic have so many of the records, or more."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        while self.covered() < records:
            self.driver.supervise()
            assert time.monotonic() < deadline, (
                f"the view covers {self.covered()} of {records} records after {RECOVERY_SECONDS} seconds; "
                f"killed {dict(self.killed)}\n{self.driver.tail()}"
            )
            time.sleep(0.05)

    def wait_until_level(self) -> None:
        """Waits until every output says that nothing in the log is left to do."""
        path = self.folder / "data" / "status" / "ledger.json"
        begin = time.time()
        while True:
            self.driver.supervise()
            assert time.time() - begin < RECOVERY_SECONDS, f"{path.read_text()}\n{self.driver.tail()}"
            if path.exists():
                status = json.loads(path.read_text())
                if status["at"] > begin + 3 and all(output["lag"] == 0 for output in status["outputs"]):
                    return
            time.sleep(0.2)

    def close(self) -> None:
        if self._views is not None:
            self._views.close()


def schedule(kinds: tuple[str, ...], dice: random.Random) -> list[str]:
    kills = [dice.choice(kind.split(" or ")) for kind in kinds for _ in range(max(KILLS, 1))]
    if KILLS:
        dice.shuffle(kills)
    return kills


def run(store: str, kinds: tuple[str, ...], folder: Path) -> None:
    dice = chance()
    began = time.monotonic()
    with ExitStack() as stack:
        database = stack.enter_context(Postgres()) if store == "postgresql" else None
        world = World(store, folder, stack, database)
        stack.callback(world.close)
        stack.enter_context(world.feed)
        world.driver.launch()
        world.driver.wait_ready()
        waiting = schedule(kinds, dice)
        while waiting:
            if dice.random() < 0.7:  # else in the middle of what the last kill has left
                world.wait_until_covered(world.covered() + 1)
            time.sleep(dice.uniform(0.0, 2.0))
            world.driver.supervise()
            kind = waiting.pop(0)
            while not world.kill(kind, dice):
                world.wait_until_covered(world.covered() + 1)
            if sum(world.killed.values()) % 25 == 0:
                print(f"{time.monotonic() - began:.0f} s: killed {dict(world.killed)}", flush=True)
        sent = world.feed.finish()
        world.wait_until_covered(sent)
        world.wait_until_level()
        assert world.driver.stop() == 0, world.driver.tail()
        verdict = Verdict(world.broker.bootstrap, world.store, sent, folder)
        print(
            f"{store}: killed {dict(world.killed)} in {time.monotonic() - began:.0f} s; {sent} payments, "
            f"{len(verdict.rows)} rows, {verdict.last_change} changes, {len(verdict.late)} late, "
            f"{len(verdict.dead)} dead; {world.driver.starts} drivers, which ended by themselves with "
            f"{world.driver.exits}",
            flush=True,
        )
        faults = verdict.faults()
        assert not faults, "\n".join([*faults, world.driver.tail()])
        world.driver.assert_nothing_is_left()
        scratch = list((folder / "data" / "scratch" / "ledger").iterdir())
        assert len(scratch) <= 2, f"killed drivers left {scratch}"


@pytest.mark.timeout(300 if not KILLS else 14_400)
def test_killed_streams_leave_what_a_recompute_gives(tmp_path: Path) -> None:
    run("sqlite", SQLITE, tmp_path)


@pytest.mark.skipif(not KILLS, reason="make faults-streams kills PostgreSQL")
@pytest.mark.timeout(14_400)
def test_killed_streams_into_postgresql(tmp_path: Path) -> None:
    run("postgresql", POSTGRESQL, tmp_path)
