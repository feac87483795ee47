"""Producer ids: each is given out once in the life of a data directory."""

import asyncio
from pathlib import Path

from headwater.errors import StorageFailed
from headwater.log.files import replace_file
from headwater.log.segment import storage_error

BLOCK = 1000


class ProducerIds:
    """Gives out ids from blocks; a block is written down as used before its first id is given out.

    >>> import tempfile
    >>> async def take_three(path):
    ...     first, again = ProducerIds(path), ProducerIds(path)
    ...     return [await first.take(), await first.take(), await again.take()]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(take_three(Path(folder) / "producer-ids"))
    [0, 1, 1000]
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0
        self._end = 0
        self._reserving = asyncio.Lock()

    async def take(self) -> int:
        """The next id; raises a HeadwaterError when the disk does not take the next block."""
        while self._next >= self._end:
            async with self._reserving:
                if self._next >= self._end:
                    start = await asyncio.to_thread(self._reserve)
                    self._next, self._end = start, start + BLOCK
        producer_id = self._next
        self._next += 1
        return producer_id

    def _reserve(self) -> int:
        try:
            start = int(self._path.read_text()) if self._path.exists() else 0
            start = max(start, self._end)
            replace_file(self._path, f"{start + BLOCK}\n".encode())
        except OSError as error:
            raise storage_error("give out producer ids from", str(self._path), error) from error
        except ValueError:
            step = "Restore the file from a copy, or write a number into it that is above all ids in use."
            cause = "it is damaged: it holds no number"
            raise StorageFailed("give out producer ids from", str(self._path), cause, step) from None
        return start
