"""Producer ids: each is given out once in the life of a data directory."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from headwater.errors import StorageFailed
from headwater.log.files import replace_file
from headwater.log.producer_ids import read_next_id, written_next_id
from headwater.log.sealed import BY_HAND, Spoilt
from headwater.log.segment import storage_error

logger = logging.getLogger("headwater.broker")

BLOCK = 1000
# Where the file is lost, ids may be with producers that have not written yet: so many are left to them.
MARGIN = 1_000_000


def none_in_use() -> int:
    return -1


class ProducerIds:
    """Gives out ids from blocks; a block is written down as used before its first id is given out.

    ``largest_in_use`` says the largest id that the log knows: whatever the file says, those given out are above.

    >>> import tempfile
    >>> async def take_three(path):
    ...     first, again = ProducerIds(path), ProducerIds(path)
    ...     return [await first.take(), await first.take(), await again.take()]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(take_three(Path(folder) / "producer-ids"))
    [0, 1, 1000]
    """

    def __init__(self, path: Path, largest_in_use: Callable[[], int] = none_in_use) -> None:
        self._path = path
        self._largest_in_use = largest_in_use
        self._next = 0
        self._end = 0
        self._reserving = asyncio.Lock()

    async def take(self) -> int:
        """The next id; raises a HeadwaterError when the disk does not take the next block."""
        while self._next >= self._end:
            async with self._reserving:
                if self._next >= self._end:
                    in_use = self._largest_in_use() if self._end == 0 else -1  # later ones are from here
                    start = await asyncio.to_thread(self._reserve, in_use)
                    self._next, self._end = start, start + BLOCK
        producer_id = self._next
        self._next += 1
        return producer_id

    def _reserve(self, in_use: int) -> int:
        try:
            start = max(self._first_free(in_use), self._end)
            replace_file(self._path, written_next_id(start + BLOCK))
        except OSError as error:
            raise storage_error("give out producer ids from", str(self._path), error) from error
        except Spoilt as error:
            step = (
                "Restore the file from a copy, or write a number into it that is above all ids in use, or "
                f"delete it: ids then go on well above those in the log; {BY_HAND}."
            )
            cause = f"it is damaged: {error}"
            raise StorageFailed("give out producer ids from", str(self._path), cause, step) from None
        return start

    def _first_free(self, in_use: int) -> int:
        if self._path.exists():
            told = read_next_id(self._path.read_bytes())
            if told <= in_use:
                logger.warning("%s says %d, but producer id %d is in use", self._path, told, in_use)
            return max(told, in_use + 1)
        if in_use < 0:
            return 0
        start = in_use + 1 + MARGIN
        logger.error(
            "%s was missing, though producer id %d is in use: goes on at %d", self._path, in_use, start
        )
        return start
