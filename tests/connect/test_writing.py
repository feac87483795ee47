"""A source's transactions while the log does not answer."""

import os
import signal
import threading
import time

from headwater.client.connection import Connection
from headwater.connect.source import Record, Step, TopicNeeds
from headwater.connect.writing import ASIDE_BYTES, LogWriter
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


def until(condition: object, seconds: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.01)
