"""Buffers that large requests are received into."""

# A larger frame's buffer grows as its bytes come: a length alone claims no memory.
LARGE_STEP = 1 << 20


class FramePool:
    """Buffers for large frames, used again: clearing a fresh megabyte costs more than parsing its content.

    >>> pool = FramePool()
    >>> buffer = pool.take(300_000)
    >>> len(buffer), pool.give(buffer), pool.take(500_000) is buffer
    (1048576, None, True)
    """

    def __init__(self, limit: int = 8) -> None:
        self._limit = limit
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes or, for a larger frame, one that can grow."""
        if size <= LARGE_STEP and self._free:
            return self._free.pop()
        return bytearray(LARGE_STEP)

    def give(self, buffer: bytearray) -> None:
        """Nobody reads the buffer's content any more."""
        if len(buffer) == LARGE_STEP and len(self._free) < self._limit:
            self._free.append(buffer)
