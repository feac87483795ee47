"""Producer ids: each is given out once in the life of a data directory."""

from pathlib import Path

from headwater.log.files import replace_file

BLOCK = 1000


class ProducerIds:
    """Gives out ids from blocks; a block is written down as used before its first id is given out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = ProducerIds(Path(folder) / "producer-ids")
    ...     again = ProducerIds(Path(folder) / "producer-ids")
    ...     [first.take(), first.take(), again.take()]
    [0, 1, 1000]
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0
        self._end = 0

    def take(self) -> int:
        if self._next >= self._end:
            start = int(self._path.read_text()) if self._path.exists() else 0
            start = max(start, self._end)
            replace_file(self._path, f"{start + BLOCK}\n".encode())
            self._next, self._end = start, start + BLOCK
        producer_id = self._next
        self._next += 1
        return producer_id
