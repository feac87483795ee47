"""Whether the Java process in which Spark runs is there. A driver without it can do nothing, and has to end."""

import threading
from collections.abc import Callable

from pyspark.sql import SparkSession

from headwater.errors import EngineLost

NOTICE_SECONDS = 2.0  # between a call that fails because Java has ended, and knowing that it has


class Liveness:
    """Watches the Java process of a session; `on_end` is told when it ends."""

    def __init__(self, spark: SparkSession, application: str, on_end: Callable[[], None]) -> None:
        self._application, self._on_end = application, on_end
        self._process = getattr(spark.sparkContext._gateway, "proc", None)  # none: somebody else's
        self._ended = threading.Event()
        self._given_up = False
        if self._process is not None:
            threading.Thread(target=self._wait, name="java", daemon=True).start()

    def lost(self, seconds: float = 0.0) -> EngineLost | None:
        """The error for a Java that has ended, or does so within these seconds; None while it lives."""
        if self._given_up or not self._ended.wait(seconds):
            return None
        assert self._process is not None
        code = self._process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return EngineLost("go on with", self._application, f"Java, in which Spark runs, {how}")

    def give_up(self) -> None:
        """Java is about to be ended by us."""
        self._given_up = True

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._ended.set()
        if not self._given_up:
            self._on_end()
