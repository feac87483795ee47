"""Work that waits, one entry for each thing it is about, which grows while it waits. Pure but for its lock.

Whoever takes an entry has all that came meanwhile in one piece: however slow the work is beside what asks for it, it
does not fall further and further behind.
"""

import threading
from typing import Generic, Protocol, Self, TypeVar


class Joinable(Protocol):
    """Work that can be done together with later work of its kind."""

    def joined(self, later: Self) -> Self: ...


W = TypeVar("W", bound=Joinable)


class Backlog(Generic[W]):
    """Entries are taken in the order in which their things were first asked for."""

    def __init__(self) -> None:
        self._entries: dict[str, W] = {}
        self._ended = False
        self._changed = threading.Condition()

    def put(self, about: str, work: W) -> None:
        """Adds work, to what waits of the same thing if there is any."""
        with self._changed:
            waiting = self._entries.get(about)
            self._entries[about] = work if waiting is None else waiting.joined(work)
            self._changed.notify()

    def end(self) -> None:
        """Nothing more comes: `take` gives what is left, and then None."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def take(self) -> W | None:
        """Waits for an entry, and removes it."""
        with self._changed:
            while not self._entries:
                if self._ended:
                    return None
                self._changed.wait()
            return self._entries.pop(next(iter(self._entries)))
