"""The records that every client writes and reads: each shape that has tripped a broker or a client.

A record is compared whole: partition, offset, key, value, headers and timestamp.
"""

import base64
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

Headers = tuple[tuple[str, bytes | None], ...]
# The timestamp of the first sample, in milliseconds: an hour ago, for what is a week old goes by retention.
START = (int(time.time()) - 3600) * 1000


@dataclass(frozen=True, slots=True)
class Record:
    """One record; the offset is None until a broker has given it one."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = START
    partition: int = 0
    offset: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As the drivers read and write it: ``p``, ``o``, ``t`` and, in base 64, ``k``, ``v`` and ``h``.

        >>> Record(b"a", None, timestamp=17).to_json()
        {'p': 0, 'o': None, 't': 17, 'k': 'YQ==', 'v': None, 'h': []}
        """
        return {
            "p": self.partition,
            "o": self.offset,
            "t": self.timestamp,
            "k": _encode(self.key),
            "v": _encode(self.value),
            "h": [[name, _encode(value)] for name, value in self.headers],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Record":
        """The inverse of ``to_json``.

        >>> record = Record(b"a", b"b", (("n", b"1"),))
        >>> Record.from_json(record.to_json()) == record
        True
        """
        return cls(
            key=_decode(fields["k"]),
            value=_decode(fields["v"]),
            headers=tuple((name, _decode(value)) for name, value in fields["h"]),
            timestamp=fields["t"],
            partition=fields["p"],
            offset=fields.get("o"),
        )

    def at(self, offset: int, partition: int | None = None) -> "Record":
        """The same record where a broker has put it."""
        return replace(self, offset=offset, partition=self.partition if partition is None else partition)


def samples(partition: int = 0, seed: int = 1) -> list[Record]:
    """Records of every shape, in one partition, a second apart.

    >>> len(samples())
    16
    """
    noise = random.Random(seed)
    shapes: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"plain", b"value", ()),
        (None, b"without a key", ()),
        (b"without a value", None, ()),
        (None, None, ()),
        (b"", b"", ()),
        ("schlüssel-鍵".encode(), "wert-値-🌊".encode(), ()),
        (bytes(range(256)), bytes(reversed(range(256))), ()),
        (b"one header", b"v", (("name", b"content"),)),
        (b"headers of one name", b"v", (("n", b"1"), ("n", b"2"), ("m", b"3"), ("n", b"1"))),
        (b"binary header", b"v", (("bin", bytes(range(256))), ("empty", b""))),
        (b"many headers", b"v", tuple((f"h{i:03}", str(i).encode()) for i in range(150))),
        (b"noise of 100 kB", noise.randbytes(100_000), ()),
        (b"zeros of 300 kB", b"\0" * 300_000, ()),
        (b"noise of 900 kB", noise.randbytes(900_000), (("size", b"900000"),)),
        (noise.randbytes(20_000), b"a long key", ()),
        (b"last", b"value", ()),
    ]
    return [
        Record(key, value, headers, START + 1000 * i, partition)
        for i, (key, value, headers) in enumerate(shapes)
    ]


def null_header(partition: int = 0) -> Record:
    """A header without a value, which not every client can write."""
    return Record(b"null header", b"v", (("null", None), ("after", b"it")), START, partition)


def numbered(count: int, partitions: int = 1, prefix: str = "r") -> list[Record]:
    """Small records that differ, spread over the partitions in turn.

    >>> [(r.value, r.partition) for r in numbered(3, partitions=2)]
    [(b'r0', 0), (b'r1', 1), (b'r2', 0)]
    """
    return [
        Record(f"k{i}".encode(), f"{prefix}{i}".encode(), (), START + i, i % partitions) for i in range(count)
    ]


def in_order(records: Iterable[Record]) -> list[Record]:
    """By partition and offset, as they stand in the log."""
    return sorted(records, key=lambda record: (record.partition, record.offset or 0))


def _encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
