"""A source's transactions while the log does not answer."""

import os
import signal
import threading
import time

from headwater.client.connection import Connection
from headwater.client.transactions import TransactionalWriter
from headwater.connect.source import Record, Step, TopicNeeds
from headwater.connect.writing import ASIDE_BYTES, LogWriter, transactional_id
from headwater.errors import StaleProducerEpoch
from tests.connect.counting import numbers
from tests.support.servers import Headwater


def test_a_source_waits_when_much_is_kept_aside() -> None:
    """Few records can be large: what a commit lets come in is bounded in bytes as well."""
    steps = 2 * ASIDE_BYTES // 2**20
    put = 0
    with Headwater() as broker:
        connection = Connection(broker.bootstrap)
        writer = LogWriter(connection, "large", lambda _: TopicNeeds(configs={}), worker="test")
        writer.put(Step([Record("large", b"k", b"0")], {"next": 1}))
        until(lambda: writer.committed.position == {"next": 1})
        os.kill(broker.pid, signal.SIGSTOP)
        writer.put(Step([Record("large", b"k", b"1")], {"next": 2}))
        until(lambda: writer._commit_began is not None)

        def go_on() -> None:
            nonlocal put
            for number in range(2, 2 + steps):
                value = b"%-*d" % (2**20, number)
                writer.put(Step([Record("large", b"k", value)], {"next": number + 1}))
                put += 1

        source = threading.Thread(target=go_on)
        source.start()
        try:
            until(lambda: put >= ASIDE_BYTES // 2**20)
            time.sleep(0.3)
            assert put == ASIDE_BYTES // 2**20
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        source.join(60)
        assert not source.is_alive()
        writer.finish()
        assert numbers(connection, "large") == list(range(2 + steps))


def test_a_producer_that_was_fenced_before_the_position_is_written_says_so(headwater: Headwater) -> None:
    """Its record fails in the background, so that it takes no position behind it."""
    connection = Connection(headwater.bootstrap)
    writer = LogWriter(connection, "fenced", lambda _: TopicNeeds(configs={}), worker="test")
    writer.put(Step([Record("fenced", b"k", b"0")], {"next": 1}))
    until(lambda: writer.committed.position == {"next": 1})
    writer._pace.gap = 2.0
    TransactionalWriter(connection, transactional_id("fenced"))
    writer.put(Step([Record("fenced", b"k", b"1")], {"next": 2}))
    until(lambda: writer._failure is not None)
    assert isinstance(writer._failure, StaleProducerEpoch), repr(writer._failure)
    writer.abandon()


def until(condition: object, seconds: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.01)
