"""Work that is repeated while somebody looks, and only then."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

logger = logging.getLogger("headwater.ui")

T = TypeVar("T")

PATIENCE = 4.0  # seconds after the last look until the work rests


class Interest:
    """Whether somebody has looked lately; what works for them rests when nobody has.

    >>> interest = Interest()
    >>> interest.is_there(), interest.show(), interest.is_there()
    (False, None, True)
    """

    def __init__(self) -> None:
        self._shown = -PATIENCE
        self._changed = threading.Condition()
        self.stopped = False

    def show(self) -> None:
        """Somebody looks."""
        with self._changed:
            rested = not self.is_there()
            self._shown = time.monotonic()
            if rested:
                self._changed.notify_all()

    def is_there(self) -> bool:
        return not self.stopped and time.monotonic() - self._shown < PATIENCE

    def stop(self) -> None:
        """Ends what works for them."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Pauses, at least so long as nobody looks; False once it is stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped, seconds)
            self._changed.wait_for(lambda: self.stopped or self.is_there())
        return not self.stopped


class Look(Generic[T]):
    """Runs `work` every so many seconds in a thread of its own while there is interest.

    `value` is what it gave last. An error of it is kept in `error` until it works again; the value stays.
    """

    def __init__(
        self, name: str, interest: Interest, every: float, work: Callable[[], T], first: T, pace: float = 4.0
    ) -> None:
        """What takes long is done less often: it may take one part in `pace` + 1 of the time."""
        self.value = first
        self.error: Exception | None = None
        self.at = 0.0  # when it was looked last, by time.monotonic()
        self._name, self._interest, self._every, self._work, self._pace = name, interest, every, work, pace
        threading.Thread(target=self._run, name=f"look at {name}", daemon=True).start()

    def _run(self) -> None:
        pause = 0.0
        while self._interest.wait(pause):
            began = time.monotonic()
            try:
                self.value = self._work()
                self.error = None
            except Exception as error:  # shown on the page, whatever it is
                logger.debug("cannot look at %s", self._name, exc_info=True)
                self.error = error
            self.at = time.monotonic()
            took = self.at - began
            pause = max(self._every - took, took * self._pace)
