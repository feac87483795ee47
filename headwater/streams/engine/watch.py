"""One running query: started, watched, and started again when it fails."""

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from headwater.errors import HeadwaterError, PipelineFailed
from headwater.streams.engine.status import Failure, with_failure

logger = logging.getLogger("headwater.streams")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
# How Spark says that a query ended; without a reason when a Python process of its own was killed.
_STREAM_FAILED = re.compile(r"\[STREAM_FAILED\] .* terminated with exception: *(.*?) *(?:SQLSTATE: \w+)?$")
# Spark waits ten seconds for the Python process of a source that starts, and no longer: many that start at once, on a
# machine that has other things to do, would keep each other from it, again and again. (See `early` as well.)
AT_ONCE, INITIAL_SECONDS = 2, 20.0
_INITIALIZING = "Initializing sources"
_starting = threading.BoundedSemaphore(AT_ONCE)
STEADY_SECONDS = 60.0  # a query that ran so long, or finished a batch, begins with the shortest pause again


class Watch:
    """Keeps a query running.

    `start` starts it from its checkpoint; `on_progress` is told of each batch's progress, in order, once.
    `explain` may know a better error for what Spark says.
    An error of a class in `final` (records that are gone, say) is not tried again.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], StreamingQuery],
        on_progress: Callable[[dict[str, Any]], None] = lambda progress: None,
        final: tuple[type[HeadwaterError], ...] = (),
        explain: Callable[[BaseException], BaseException] = lambda error: error,
    ) -> None:
        self.name = name
        self._start, self._on_progress = start, on_progress
        self._final, self._explain = final, explain
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {name}", daemon=True)
        self.query: StreamingQuery | None = None
        self.state = "starting"
        self.restarts = 0
        self.error: str | None = None
        self.failures: list[Failure] = []  # also those that it has got over
        self.begun = -1  # the batch that the sink was given last
        self._taking = threading.Lock()
        self._last_batch = -1
        self._cause: BaseException | None = None

    def begin(self) -> None:
        """Starts the query, in a thread of its own."""
        self._thread.start()

    def note(self, error: BaseException) -> None:
        """The sink says why it failed; Spark would only pass a text on."""
        self._cause = error

    def end(self, seconds: float = 60.0) -> None:
        """Stops the query. A batch that is under way is left, and repeated at the next start."""
        self._stop.set()
        if self.query is not None:
            self._stop_query(self.query)
        self._thread.join(seconds)

    def _stop_query(self, query: StreamingQuery) -> None:
        try:
            query.stop()
        except (PySparkException, OSError, RuntimeError, Py4JError) as error:
            logger.warning("cannot stop %s: %s", self.name, first_line(error))

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            began, before = time.monotonic(), self._last_batch
            self._cause = None
            try:
                with _starting:
                    if self._stop.is_set():
                        break
                    self.query = self._start()
                    self._await_sources(self.query)
                if self._stop.is_set():  # while it started
                    self._stop_query(self.query)
                    break
                self.state = "running"
                self.query.awaitTermination()
                failure: BaseException | None = self._cause
            except Exception as error:
                failure = self._cause or error
            self._take_last()
            if self._stop.is_set():
                break
            if failure is not None:
                failure = self._explain(failure)
            self._report(failure)
            if isinstance(failure, self._final):
                self.state = "failed"
                return
            self.state, self.restarts = "restarting", self.restarts + 1
            got_on = self._last_batch > before or time.monotonic() - began > STEADY_SECONDS
            pause = FIRST_PAUSE if got_on else min(pause * 2, LONGEST_PAUSE)
            self._stop.wait(pause)
        self.state = "stopped"

    def _await_sources(self, query: StreamingQuery) -> None:
        """Until the sources of a query run, or it is clear that they do not; its failure is found elsewhere."""
        end = time.monotonic() + INITIAL_SECONDS
        while query.isActive and query.status["message"] == _INITIALIZING and time.monotonic() < end:
            if self._stop.wait(0.05):
                return

    def take(self, always: bool = False) -> None:
        """Tells `on_progress` of the batches that have ended since it was asked last.

        Java is asked only when the sink was given a batch since, or `always`.
        """
        query = self.query
        if query is None or (self.begun <= self._last_batch and not always):
            return
        with self._taking:
            # The newest come last; each call is a round trip to Java, so only what is new is fetched.
            newest: list[dict[str, Any]] = []
            for held in reversed(query._jsq.recentProgress()):
                if held.batchId() <= self._last_batch:
                    break
                newest.append(json.loads(held.json()))
            for progress in reversed(newest):
                if "addBatch" in progress["durationMs"]:
                    self._last_batch = progress["batchId"]
                    self.error = None
                self._on_progress(progress)

    def _take_last(self) -> None:
        try:
            self.take()
        except Exception as error:  # the JVM may be gone
            logger.debug("no last progress of %s: %s", self.name, error)

    def _report(self, failure: BaseException | None) -> None:
        cause = first_line(failure) if failure is not None else "it ended by itself"
        error = (
            failure if isinstance(failure, HeadwaterError) else PipelineFailed("go on with", self.name, cause)
        )
        self.error = str(error)
        self.failures = with_failure(self.failures, self.error)
        logger.error("%s", error)


def first_line(error: BaseException) -> str:
    """The line of an error that says what happened; Spark and Java wrap it in many.

    >>> first_line(ValueError("no such thing.\\nat line 1"))
    'ValueError: no such thing'
    >>> first_line(Exception("Job aborted\\nTraceback (most recent call last):\\n  File x\\nKeyError: 'k'\\n"))
    "KeyError: 'k'"
    >>> first_line(Exception("An error occurred while calling o7.getResult.\\n: java.io.IOException: broken pipe\\n"))
    'java.io.IOException: broken pipe'
    >>> first_line(Exception("An error occurred while calling o7.getResult.\\n: E: x\\nCaused by: F: why\\n\\tat y"))
    'F: why'
    """
    text = str(error).strip()
    if isinstance(error, HeadwaterError):
        return text
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    # A failure in Python ends with its own message, the first line behind a traceback that is not indented.
    behind = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent")]
    found = [line for line in lines[behind[-1] + 1 :] if not line.startswith(" ")] if behind else []
    if found:
        return found[0].removeprefix("headwater.errors.").rstrip(".")
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
        return (causes or [lines[1].removeprefix(": ")])[-1].rstrip(".")  # what Java threw
    line = lines[0].strip() if lines else "no reason given"
    ended = _STREAM_FAILED.match(line)
    if ended is not None:
        line = ended[1] or "one of the processes that Spark started has ended"
    prefix = "" if isinstance(error, PySparkException) else f"{type(error).__name__}: "
    return f"{prefix}{line.rstrip('.')}"
