"""Buffers that large requests are received into."""

# A frame's buffer grows as its bytes come: a length alone claims no memory.
FIRST_STEP = 64 << 10
LARGE_STEP = 1 << 20


class FramePool:
    """Buffers for large frames, used again: clearing a fresh megabyte costs more than parsing its content.

    >>> pool = FramePool()
    >>> buffer = pool.take(300_000)
    >>> while len(buffer) < 300_000:
    ...     pool.grow(buffer, 300_000)
    >>> len(buffer), pool.give(buffer), pool.take(500_000) is buffer
    (1048576, None, True)
    """

    def __init__(self, limit: int = 8) -> None:
        self._limit = limit
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """A buffer for the first bytes of a frame of ``size``; it can grow."""
        if size <= LARGE_STEP and self._free:
            return self._free.pop()
        return bytearray(FIRST_STEP)

    @staticmethod
    def grow(buffer: bytearray, size: int) -> None:
        """Make room for more bytes of a frame of ``size``: in few steps up to the size that is kept for the next
        frame, then twice as much each time."""
        length = len(buffer)
        buffer += bytes(
            min(3 * length, LARGE_STEP - length) if length < LARGE_STEP else min(length, size - length)
        )

    def give(self, buffer: bytearray) -> None:
        """Nobody reads the buffer's content any more."""
        if len(buffer) == LARGE_STEP and len(self._free) < self._limit:
            self._free.append(buffer)
