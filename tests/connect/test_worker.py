"""A worker: every record once, whoever is killed, and the position agrees with the records."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.transactions import TransactionalWriter
from headwater.connect.positions import (
    POSITIONS,
    all_standings,
    partition_of,
    prepare_positions,
    read_standing,
)
from headwater.connect.signals import SIGNALS, send_signal
from headwater.connect.source import Position, Record, Signal, Step, TopicNeeds
from headwater.connect.worker import Worker
from headwater.errors import (
    CaptureImpossible,
    ConnectionLost,
    HeadwaterError,
    InvalidBatch,
    TakenOver,
)
from tests.connect.counting import Counting, numbers
from tests.support.servers import Headwater

SECONDS = 30.0


@pytest.fixture
def connection(headwater: Headwater) -> Connection:
    return Connection(headwater.bootstrap)


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.01)


@contextmanager
def running(worker: Worker) -> Iterator[list[BaseException]]:
    """The worker in a thread; what it raised is in the list after the block."""
    stopping, raised = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            worker.run(stopping)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        stopping.set()
        thread.join(60)
        assert not thread.is_alive()


def test_records_position_and_acknowledgement_agree(connection: Connection, topic: str) -> None:
    source = Counting(topic, topic, end=5000)
    worker = Worker(connection, source)
    with running(worker):
        until(lambda: bool(source.acknowledged) and source.acknowledged[-1] == 5000)
    assert numbers(connection, topic) == list(range(5000))
    assert source.acknowledged == sorted(source.acknowledged)
    status = worker.status()
    assert (status.state, status.records, status.position) == ("stopped", 5000, {"next": 5000, "signals": 0})
    again = Counting(topic, topic, end=6000)
    with running(Worker(connection, again)):
        until(lambda: bool(again.acknowledged) and again.acknowledged[-1] == 6000)
    assert again.starts[0] == {"next": 5000, "signals": 0}
    assert numbers(connection, topic) == list(range(6000))


def test_a_change_is_in_the_log_soon(connection: Connection, topic: str) -> None:
    class Ticking(Counting):
        def steps(self, position: Position | None) -> Iterator[Step]:
            for number in range(40):
                yielded.append(time.monotonic())
                yield Step([Record(self.topic, b"k", b"%d" % number)], {"next": number + 1})
                time.sleep(0.05)
            while True:
                yield Step([], {"next": 40})
                time.sleep(0.1)

    yielded: list[float] = []
    worker = Worker(connection, Ticking(topic, topic))
    delays = []
    with running(worker):
        seen = 0
        while seen < 40:
            time.sleep(0.001)
            if (now := worker.status().records) > seen:
                seen = now
                delays.append(time.monotonic() - yielded[now - 1])
    # At once, that is sooner than transactions under load end; most of them tell of what else the machine does.
    assert sorted(delays)[4] < 0.2


def test_topics_are_made_as_the_source_needs_them(connection: Connection, topic: str) -> None:
    class Particular(Counting):
        def topic_needs(self, topic: str) -> TopicNeeds:
            return TopicNeeds(3, {"cleanup.policy": "delete", "retention.ms": "-1"})

    source = Particular(topic, topic, end=10)
    with running(Worker(connection, source)):
        until(lambda: bool(source.acknowledged))
    admin = Admin(connection)
    configs = {each.name: each.value for each in admin.configs(topic)}
    assert len(admin.partitions(topic)) == 3
    assert (configs["cleanup.policy"], configs["retention.ms"]) == ("delete", "-1")


def test_rows_of_many_megabytes_pass(connection: Connection, topic: str) -> None:
    class Large(Counting):
        def steps(self, position: Position | None) -> Iterator[Step]:
            yield Step([(topic, b"k", b"x" * 20_000_000, [("h", b"v")])], {"next": 1})  # type: ignore[list-item]
            while True:
                yield Step([], {"next": 1})
                time.sleep(0.05)

    source = Large(topic, topic)
    with running(Worker(connection, source)):
        until(lambda: bool(source.acknowledged))
    assert Admin(connection).latest([(topic, 0)])[topic, 0] > 0


def test_a_lost_database_is_tried_again_from_the_last_position(connection: Connection, topic: str) -> None:
    class Fragile(Counting):
        def steps(self, position: Position | None) -> Iterator[Step]:
            for index, step in enumerate(super().steps(position)):
                yield step
                if index == 3 and len(self.starts) < 4:
                    raise ConnectionLost("read from", "the database", "it went away")

    source = Fragile(topic, topic, end=3000, step=100)
    worker = Worker(connection, source)
    with running(worker):
        until(lambda: bool(source.acknowledged) and source.acknowledged[-1] == 3000)
        assert worker.status().restarts == 3
    assert len(source.starts) == 4
    assert numbers(connection, topic) == list(range(3000))


def test_what_does_not_pass_stops_the_source_and_is_shown(connection: Connection, topic: str) -> None:
    class Impossible(Counting):
        def steps(self, position: Position | None) -> Iterator[Step]:
            raise CaptureImpossible("capture", "the database", "wal_level is replica")
            yield

    worker = Worker(connection, Impossible(topic, topic))
    with running(worker) as raised:
        until(lambda: bool(raised))
    assert isinstance(raised[0], CaptureImpossible)
    assert worker.status().state == "failed" and "wal_level" in worker.status().error


def test_a_record_that_the_log_refuses_stops_the_source(connection: Connection, topic: str) -> None:
    class Keyless(Counting):
        def steps(self, position: Position | None) -> Iterator[Step]:
            while True:
                yield Step([Record(self.topic, None, b"a compacted topic takes no such record")], {"next": 1})
                time.sleep(0.05)

    with running(Worker(connection, Keyless(topic, topic))) as raised:
        until(lambda: bool(raised))
    assert isinstance(raised[0], InvalidBatch)


def test_a_topic_takes_records_without_a_key_when_its_table_has_lost_it(
    connection: Connection, topic: str
) -> None:
    class Losing(Counting):
        needs = TopicNeeds()

        def topic_needs(self, topic: str) -> TopicNeeds:
            return self.needs

        def steps(self, position: Position | None) -> Iterator[Step]:
            yield Step([Record(self.topic, b"a", b"0")], {"next": 1})
            self.needs = TopicNeeds(configs={"cleanup.policy": "delete", "retention.ms": "-1"})
            yield Step([Record(self.topic, None, b"1")], {"next": 2})
            while True:
                yield Step([], {"next": 2})
                time.sleep(0.05)

    source = Losing(topic, topic)
    with running(Worker(connection, source)):
        until(lambda: 2 in source.acknowledged)
    assert numbers(connection, topic) == [0, 1]


def test_the_newest_worker_fences_the_older_one(connection: Connection, topic: str) -> None:
    old = Counting(topic, topic, end=100_000_000, step=10, pause=0.005)
    with running(Worker(connection, old)) as raised:
        until(lambda: len(old.acknowledged) > 3)
        new = Counting(topic, topic, end=100_000_000, step=10, pause=0.005)
        with running(Worker(connection, new)):
            until(lambda: bool(raised) and len(new.acknowledged) > 3)
    assert isinstance(raised[0], TakenOver)
    found = numbers(connection, topic)
    assert found == list(range(len(found)))
    assert read_standing(connection, Admin(connection), topic).position == {"next": len(found), "signals": 0}


def test_a_source_whose_transaction_was_ended_by_time_goes_on(connection: Connection, topic: str) -> None:
    """As after a machine has slept: fenced, but by nobody who took over."""
    source = Counting(topic, topic, end=100_000_000, step=10, pause=0.005)
    with running(Worker(connection, source)) as raised:
        until(lambda: len(source.acknowledged) > 3)
        TransactionalWriter(connection, f"headwater.connect.{topic}")  # fences, and says nothing
        before = source.acknowledged[-1]
        until(lambda: source.acknowledged[-1] > before + 500)
        assert not raised
    found = numbers(connection, topic)
    assert found == list(range(len(found)))


def test_signals_are_taken_once(connection: Connection, topic: str) -> None:
    source = Counting(topic, topic, end=10)
    with running(Worker(connection, source)):
        until(lambda: bool(source.acknowledged))
        send_signal(connection, topic, Signal("snapshot", ("users",), "id > 3"))
        send_signal(connection, "another", Signal("pause"))
        until(lambda: len(source.signals) == 1)
        until(lambda: (read_standing(connection, Admin(connection), topic).position or {})["signals"] == 1)
    send_signal(connection, topic, Signal("resume"))
    # What it waits for may end with no record at all: an aborted transaction leaves only its marker to be seen.
    other = TransactionalWriter(connection, f"{topic}.other")
    with pytest.raises(RuntimeError, match="ends"), other.transaction():
        other.write(SIGNALS, b'{"kind": "pause"}', topic)
        other.settle()
        raise RuntimeError("ends")
    again = Counting(topic, topic, end=20)
    with running(Worker(connection, again)):
        until(lambda: again.acknowledged[-1:] == [20])
    assert source.signals == [Signal("snapshot", ("users",), "id > 3")]
    assert again.signals == again.told_before == [Signal("resume")]


def test_an_open_transaction_of_another_source_hides_no_position(connection: Connection, topic: str) -> None:
    """Behind it, committed positions are not readable: one who does not wait would repeat what is written."""
    source = Counting(topic, topic, end=1000)
    partition = partition_of(topic, prepare_positions(Admin(connection)))
    with running(Worker(connection, source)):
        until(lambda: bool(source.acknowledged))
        other = TransactionalWriter(connection, f"{topic}.other")
        with pytest.raises(RuntimeError, match="ends"), other.transaction():
            other.write(POSITIONS, b"{}", "another", partition=partition)
            other.settle()
            source.end = 2000
            until(lambda: source.acknowledged[-1] == 2000)
            again = Counting(topic, topic, end=3000)
            threading.Timer(1.0, source.starts.clear).start()
            with running(Worker(connection, again)):
                until(lambda: not source.starts)
                assert not again.starts  # it waits for the other
                raise RuntimeError("ends")
    with running(Worker(connection, again)):
        until(lambda: bool(again.acknowledged) and again.acknowledged[-1] == 3000)
    assert again.starts == [{"next": 2000, "signals": 0}]
    assert all_standings(connection, Admin(connection))[topic].position == {"next": 3000, "signals": 0}
    assert numbers(connection, topic) == list(range(3000))


@pytest.mark.wide  # tests/faults/connect kills as well
def test_killed_workers_and_brokers_lose_and_repeat_nothing() -> None:
    """SIGKILL to the worker's process, to the broker's, or to both."""
    chance = random.Random(5)
    with Headwater() as server:
        connection = Connection(server.bootstrap)
        command = [sys.executable, "-m", "tests.connect.counting", server.bootstrap, "counting", "counted"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            for _ in range(3):
                time.sleep(chance.uniform(0.8, 1.8))
                victim = chance.choice(["worker", "worker", "broker", "both"])
                if victim != "broker":
                    process.kill()
                    process.wait()
                if victim != "worker":
                    server.kill()
                    server.start()
                if victim != "broker":
                    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                before = _committed(connection)
                until(lambda before=before: _committed(connection) > before, 60)  # type: ignore[misc]
        finally:
            process.kill()
            process.wait()
        # Whoever takes over ends what the killed one left open.
        last = Counting("counting", "counted", end=0)
        with running(Worker(connection, last)):
            until(lambda: bool(last.starts))
        position = last.starts[0]
        assert position is not None
        assert numbers(connection, "counted") == list(range(position["next"]))
        assert position["next"] > 1000


def _committed(connection: Connection) -> int:
    try:
        position = all_standings(connection, Admin(connection)).get("counting")
    except HeadwaterError:
        return -1
    return position.position["next"] if position is not None and position.position is not None else 0
