"""Positions in the write-ahead log, as PostgreSQL writes them, and what they are compared with."""

import re
from dataclasses import dataclass

PAGE = 8192
_LONGEST_PAGE_HEADER = 40


def lsn_text(lsn: int) -> str:
    """
    >>> lsn_text(0x16_00000A0B)
    '16/A0B'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """
    >>> lsn_number("16/A0B") == 0x16_00000A0B
    True
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def last_record_end(insert_position: int) -> int:
    """Where the last record before an insert position can end at most.

    The insert position of an idle server may lie behind the header of a page on which there is nothing yet; the
    replication stream then stops at the page's beginning, and who waits for the insert position waits for ever.

    >>> lsn_text(last_record_end(lsn_number("0/3002028"))), lsn_text(last_record_end(lsn_number("0/3002100")))
    ('0/3002000', '0/3002100')
    """
    into_page = insert_position % PAGE
    return insert_position - into_page if into_page <= _LONGEST_PAGE_HEADER else insert_position


@dataclass(frozen=True)
class Visibility:
    """What a database snapshot (``pg_current_snapshot()``) shows, asked by the 32 bits of an xid in the stream.

    That a transaction's commit lies before some position of the log says nothing: it is written before the
    transaction becomes visible, and with synchronous replication long before.

    >>> seen = Visibility.parse("100:105:102")
    >>> [xid for xid in (99, 101, 102, 104, 105, 200) if seen.shows(xid)]
    [99, 101, 104]
    """

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "Visibility":
        found = re.fullmatch(r"(\d+):(\d+):([\d,]*)", text)
        if found is None:
            raise ValueError(f"not a snapshot: {text!r}")
        running = frozenset(int(xid) for xid in found[3].split(",") if xid)
        return cls(int(found[1]), int(found[2]), running)

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def full(self, xid: int) -> int:
        """The 64-bit id of a recent transaction, of which the stream gives the lower half."""
        near = (self.xmax & ~0xFFFFFFFF) | xid
        if near - self.xmax > 0x7FFFFFFF:
            return near - 0x1_0000_0000
        return near + 0x1_0000_0000 if self.xmax - near > 0x7FFFFFFF else near

    def shows(self, xid: int) -> bool:
        full = self.full(xid)
        return full < self.xmin or (full < self.xmax and full not in self.running)
