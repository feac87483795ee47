"""Writers killed, databases killed, readers beside them: whole batches, each once."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE
from typing import Any

import psycopg
import pytest

from headwater.errors import StoreFailed
from headwater.views import Snapshot, ViewStore, open_store
from tests.support.postgres import Postgres
from tests.views.endless import after, give
from tests.views.words import batch, content, replayed, words

KILLS = int(os.environ.get("HEADWATER_VIEW_KILLS", "6"))


@contextmanager
def writer(url: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that applies batches; it is killed with SIGKILL in the end."""
    command = [sys.executable, "-m", "tests.views.endless", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise AssertionError(process.communicate()[1].decode()[-2000:])
        yield process
        assert process.poll() is None, process.communicate()[1].decode()[-2000:]
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def whole(snapshot: Snapshot) -> int:
    """The number of the batch that the snapshot shows, after a check that it shows all of it and no more."""
    number = snapshot.progress.batch
    if number is None:
        assert snapshot.rows == []
        return -1
    for earlier in range(number):
        after(earlier)
    assert {row["word"]: row["n"] for row in snapshot.rows} == after(number)
    assert snapshot.progress.rows == len(snapshot.rows)
    assert snapshot.progress.offsets == {"lines": {"0": number * 60}}
    return number


def test_a_killed_writer_leaves_whole_batches(url: str) -> None:
    r = random.Random(1)
    reached = []
    for _ in range(KILLS):
        with writer(url):
            time.sleep(r.uniform(0.0, 0.4))
        with open_store(url) as store:
            reached.append(whole(store.snapshot("words")))
    assert reached == sorted(set(reached))
    with open_store(url) as store:
        assert replayed(store) == content(store) == after(reached[-1])


def test_readers_see_whole_batches_while_another_process_writes(url: str) -> None:
    seen: set[int] = set()
    wrong: list[BaseException] = []
    with writer(url), open_store(url) as store:
        end = time.monotonic() + 20

        def read() -> None:
            last = -1
            try:
                while time.monotonic() < end and len(seen) < 30:
                    snapshot = store.snapshot("words")
                    number = whole(snapshot)
                    assert number >= last
                    last = number
                    seen.add(number)
            except BaseException as error:
                wrong.append(error)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert not wrong, wrong
    assert len(seen) > 5


def test_a_reader_in_the_middle_keeps_no_writer_waiting(store: ViewStore, url: str) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1}))
    reader: Any
    if url.startswith("sqlite"):
        reader = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        reader.execute("BEGIN")
        select = "SELECT n FROM words"
    else:
        schema = url.partition("schema=")[2].replace("%20", " ").replace("%25", "%")
        reader = psycopg.connect(url.partition("?")[0])
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        select = f'SELECT n FROM "{schema}".words'
    assert reader.execute(select).fetchall() == [(1,)]
    begin = time.monotonic()
    for number in range(1, 20):
        assert store.apply("words", 1, batch(number, {"a": number * 10}))
        assert store.trim_changes("words", keep=1) == 1
    assert time.monotonic() - begin < 10
    assert reader.execute(select).fetchall() == [(1,)]  # still its own moment
    reader.execute("COMMIT")
    assert reader.execute(select).fetchall() == [(190,)]
    reader.close()


def test_two_writers_of_one_view_apply_each_batch_once(url: str) -> None:
    """A driver that was given up and goes on beside its successor."""
    with open_store(url) as setup:
        setup.define(words(), "f")
    applied: list[list[bool]] = [[], []]

    def write(who: int) -> None:
        with open_store(url) as store:
            applied[who] = [give(store, number) for number in range(30)]

    threads = [threading.Thread(target=write, args=(who,)) for who in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(sum(pair) <= 1 for pair in zip(*applied, strict=True))
    assert len(applied[0]) == len(applied[1]) == 30
    with open_store(url) as store:
        assert whole(store.snapshot("words")) == 29
        assert replayed(store) == content(store)


def test_versions_are_written_activated_and_read_at_once(url: str) -> None:
    """Writers of two versions, switches between them, and a reader: nobody fails or sees a mixture."""
    wrong: list[BaseException] = []
    stop = threading.Event()
    with open_store(url) as store:
        for version in (1, 2):
            store.define(words(version), f"f{version}")

        def write(version: int) -> None:
            number = 0
            while not stop.is_set():
                store.apply("words", version, batch(number, {f"w{i}": version for i in range(5)}))
                store.apply("words", version, batch(number + 1, {}, ["w0", "w1"]))
                number += 2

        def read() -> None:
            while not stop.is_set():
                assert len(set(content(store).values())) <= 1

        def switch() -> None:
            for turn in range(20):
                store.activate("words", 1 + turn % 2)
            stop.set()

        def guarded(work: Any, *values: Any) -> None:
            try:
                work(*values)
            except BaseException as error:
                wrong.append(error)
                stop.set()

        works = [(write, 1), (write, 2), (read,), (switch,)]
        threads = [threading.Thread(target=guarded, args=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong, wrong
        assert replayed(store) == content(store)


def test_many_processes_make_the_store_at_once(url: str) -> None:
    code = "import sys; from headwater.views import open_store; from tests.views.words import words\n"
    code += "import headwater.views.sqlite, headwater.views.postgres\n"
    code += "print('ready', flush=True); sys.stdin.readline(); open_store(sys.argv[1]).define(words(), 'f')"
    command = [sys.executable, "-c", code, url]
    processes = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, errors
    with open_store(url) as store:
        assert len(store.views()) == 1


def test_a_store_of_a_later_format_is_left_alone(store: ViewStore, url: str) -> None:
    store._database.write("test", "it", lambda c: c.execute("UPDATE headwater_store SET format = 99"))  # type: ignore[attr-defined]
    with pytest.raises(StoreFailed, match="later Headwater"):
        open_store(url)


def test_opening_does_not_wait_for_a_writer(store: ViewStore, url: str) -> None:
    store.define(words(), "f")
    entered, leave = threading.Event(), threading.Event()

    def hold(connection: Any) -> None:
        connection.execute("UPDATE headwater_views SET last_change = last_change")
        entered.set()
        leave.wait(20)

    database = store._database  # type: ignore[attr-defined]
    writing = threading.Thread(target=database.write, args=("test", "it", hold))
    writing.start()
    try:
        assert entered.wait(20)
        begin = time.monotonic()
        with open_store(url) as other:
            assert other.rows("words") == []
        assert time.monotonic() - begin < 10
    finally:
        leave.set()
        writing.join()


def test_postgresql_killed_and_restarted() -> None:
    with Postgres() as server:
        done = threading.Event()
        failures: list[str] = []
        number = 0

        def kill() -> None:
            for _ in range(3):
                time.sleep(0.4)
                server.kill()
                time.sleep(0.1)
                server.start()
            done.set()

        with open_store(server.url()) as store:
            store.define(words(), "f")
            killer = threading.Thread(target=kill)
            killer.start()
            last_failed = False
            while not done.is_set() or number < 30:
                try:
                    applied = give(store, number)
                except StoreFailed as error:
                    failures.append(error.cause)
                    last_failed = True
                    time.sleep(0.02)
                    continue
                # Only a batch whose commit was not answered may be there already.
                assert applied or last_failed
                last_failed = False
                number += 1
            killer.join()
            assert failures
            assert whole(store.snapshot("words")) == number - 1
            assert replayed(store) == content(store)


def test_a_restart_between_two_calls_goes_unnoticed() -> None:
    with Postgres() as server, open_store(server.url()) as store:
        store.define(words(), "f")
        with open_store(server.url()) as other:
            other.apply("words", 1, batch(0, {"a": 1}))
            server.kill()
            server.start()
            assert content(other) == {"a": 1}
        assert store.apply("words", 1, batch(1, {"a": 2}))
        server.kill()
        with pytest.raises(StoreFailed, match="the batch is repeated"):
            store.apply("words", 1, batch(2, {"a": 3}))
        server.start()
        assert store.apply("words", 1, batch(2, {"a": 3}))
        assert content(store) == {"a": 3} == replayed(store)


def test_a_store_that_is_not_there() -> None:
    with pytest.raises(StoreFailed, match="open the view store"):
        open_store("postgresql://nobody@127.0.0.1:1/postgres")
    with pytest.raises(StoreFailed, match="/proc/"):
        open_store("sqlite:////proc/nowhere/views.db")
