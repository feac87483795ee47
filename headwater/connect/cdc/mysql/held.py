"""Groups that change non-transactional tables: their events are kept until the end tells which count. Pure.

MariaDB writes what was rolled back to a savepoint, or as a whole, when the transaction also changed a table that
cannot roll back. The rows of transactional tables in such a part never were.
"""

from headwater.connect.cdc.mysql import binlog as log

HELD_BYTES = 16 << 20  # what is larger is read a second time instead


class HeldGroup:
    """The events of one group."""

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self.events: list[bytes] = []
        self._limit, self._bytes, self._count = limit, 0, 0
        self._statements: list[tuple[str, int]] = []

    @property
    def overflowed(self) -> bool:
        return self._bytes > self._limit

    def add(self, kind: int, data: bytes, at: int, end: int) -> bool:
        """Takes an event; True when it is the last of its group."""
        self._count += 1
        is_last = kind in (log.XID, log.XA_PREPARE)
        if kind in (log.QUERY, log.QUERY_COMPRESSED):
            query = log.Query.of(data[at + log.HEADER_SIZE : end], kind == log.QUERY_COMPRESSED)
            text = query.text.strip()
            self._statements.append((text, self._count))
            is_last = text.upper() in ("COMMIT", "ROLLBACK")
        self._bytes += end - at
        if self.overflowed:
            self.events.clear()
        else:
            self.events.append(data[at:end])
        return is_last

    def rolled_back(self) -> set[int]:
        """The numbers of the events that were undone."""
        return rolled_back(self._statements, self._count)


def rolled_back(statements: list[tuple[str, int]], last: int) -> set[int]:
    """The numbers of events that a rollback to a savepoint, or of all, has undone.

    >>> sorted(rolled_back([("SAVEPOINT `a`", 2), ("ROLLBACK TO `a`", 5), ("COMMIT", 7)], 7))
    [3, 4]
    """
    savepoints: dict[str, int] = {}
    dropped: set[int] = set()
    for text, number in statements:
        words = text.split()
        verb = " ".join(words[:2]).upper()
        if words[0].upper() == "SAVEPOINT":
            savepoints[words[-1]] = number
        elif verb == "ROLLBACK TO":
            dropped.update(range(savepoints.get(words[-1], 0) + 1, number))
        elif text.upper() == "ROLLBACK":
            dropped.update(range(1, last))
    return dropped
