"""Waiting for what a broker does in its own time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], right: Callable[[T], bool], what: str, timeout: float = 30) -> T:
    """Look again and again until it is right; a failure shows what was seen last.

    >>> until(lambda: 3, lambda seen: seen == 3, "three")
    3
    """
    deadline = time.monotonic() + timeout
    while True:
        seen = look()
        if right(seen):
            return seen
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}. Last seen: {seen!r:.2000}"
        time.sleep(0.05)
