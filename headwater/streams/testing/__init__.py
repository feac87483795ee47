"""Tests of functions, without a broker: rows in, in the batches that the test says, and what comes out.

::

    from headwater import testing

    def test_counts_by_page():
        rows = testing.run(clicks_by_page, clicks=[{"page": "/", "at": "2026-01-01 10:00:05"}])
        minute = testing.window("2026-01-01 10:00", "2026-01-01 10:01")
        assert rows == [{"window": minute, "page": "/", "count": 1}]

It is Spark's streaming that runs, with state and watermarks, as in production; only the source is in memory.
The first run of a process starts Spark, which takes seconds; the next take some tenths of a second a batch.
"""

from headwater.streams.testing.rows import Rows
from headwater.streams.testing.running import Result, at, run, session, window

__all__ = ["Result", "Rows", "at", "run", "session", "window"]
