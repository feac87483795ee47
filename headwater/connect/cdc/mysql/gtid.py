"""Global transaction ids: how far a server's binary log has been read, in MariaDB's and MySQL's way. Pure.

MariaDB's ids are ``domain-server-sequence``; a position is the last id of each domain. MySQL's are
``uuid:number``; a position is the set of all numbers seen.
"""

import bisect
import struct
import uuid
from collections.abc import Iterable
from typing import Self


class MariaGtids:
    """The last transaction of each domain.

    >>> position = MariaGtids.parse("0-1-100,3-7-2")
    >>> position.add(0, 2, 101)
    >>> str(position)
    '0-2-101,3-7-2'
    """

    def __init__(self, last: dict[int, tuple[int, int]] | None = None) -> None:
        self.last = dict(last or {})

    @classmethod
    def parse(cls, text: str) -> Self:
        position = cls()
        for gtid in filter(None, text.replace(" ", "").split(",")):
            domain, server, sequence = gtid.split("-")
            position.add(int(domain), int(server), int(sequence))
        return position

    def add(self, domain: int, server: int, sequence: int) -> None:
        """The transaction after which the position is."""
        self.last[domain] = (server, sequence)

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{seq}" for domain, (server, seq) in sorted(self.last.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MariaGtids) and self.last == other.last


class MySQLGtids:
    """A set of transactions, kept as intervals.

    >>> seen = MySQLGtids.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7")
    >>> seen.add("3e11fa47-71ca-11e1-9e33-c80aa9429562", 6)
    >>> str(seen)
    '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7'
    >>> MySQLGtids.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:2-3") <= seen
    True
    """

    def __init__(self) -> None:
        self._intervals: dict[str, list[list[int]]] = {}  # both ends belong to an interval

    @classmethod
    def parse(cls, text: str) -> Self:
        seen = cls()
        for part in filter(None, "".join(text.split()).split(",")):
            source, *ranges = part.lower().split(":")
            for text_range in ranges:
                if not text_range[0].isdigit():  # MySQL 8.4: uuid:tag:1-5
                    source = f"{source.split(':')[0]}:{text_range}"
                    continue
                first, _, last = text_range.partition("-")
                seen.add(source, int(first), int(last or first))
        return seen

    def add(self, source: str, first: int, last: int | None = None) -> None:
        """Adds one number or an interval."""
        last = first if last is None else last
        intervals = self._intervals.setdefault(source, [])
        if intervals and intervals[-1][1] + 1 == first:  # what nearly every transaction does
            intervals[-1][1] = last
            return
        bisect.insort(intervals, [first, last])
        merged: list[list[int]] = []
        for interval in intervals:
            if merged and interval[0] <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], interval[1])
            else:
                merged.append(list(interval))
        self._intervals[source] = merged

    def has(self, source: str, number: int) -> bool:
        """Whether a transaction is in the set."""
        intervals = self._intervals.get(source, [])
        place = bisect.bisect_right(intervals, [number, 1 << 63]) - 1
        return place >= 0 and intervals[place][0] <= number <= intervals[place][1]

    def __le__(self, other: "MySQLGtids") -> bool:
        return all(
            any(o[0] <= first and last <= o[1] for o in other._intervals.get(source, []))
            for source, intervals in self._intervals.items()
            for first, last in intervals
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MySQLGtids) and self._intervals == other._intervals

    def copy(self) -> "MySQLGtids":
        return MySQLGtids.parse(str(self))

    def __str__(self) -> str:
        def ranges(intervals: Iterable[list[int]]) -> str:
            return ":".join(f"{a}" if a == b else f"{a}-{b}" for a, b in intervals)

        return ",".join(f"{source}:{ranges(i)}" for source, i in sorted(self._intervals.items()) if i)

    @property
    def has_tags(self) -> bool:
        """Whether there are tagged ids (MySQL 8.4), which `encoded` does not know."""
        return any(":" in source for source in self._intervals)

    def encoded(self) -> bytes:
        """As COM_BINLOG_DUMP_GTID takes it: counts and ends little-endian, the end of an interval excluded."""
        parts = [struct.pack("<Q", len(self._intervals))]
        for source, intervals in sorted(self._intervals.items()):
            parts += [uuid.UUID(source).bytes, struct.pack("<Q", len(intervals))]
            parts += [struct.pack("<QQ", first, last + 1) for first, last in intervals]
        return b"".join(parts)
