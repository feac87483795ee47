"""The embedded messages of the consumer's own protocol (protocol type "consumer"): subscription, assignment.

Brokers pass them on as they are. They are looked into only to know which topics a classic group reads, and
when classic and new members live in one group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.broker.groups.wire import Malformed, Reader, Writer

CONSUMER = "consumer"  # the protocol type


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer says when it joins."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]


def read_subscription(data: bytes) -> Subscription | None:
    """The subscription in a member's metadata; None when it is not one.

    >>> read_subscription(bytes.fromhex("0000 00000001 0001 74 ffffffff"))
    Subscription(version=0, topics=('t',), owned={})
    >>> read_subscription(b"something else") is None
    True
    """
    reader = Reader(data)
    try:
        version = reader.i16()
        if version < 0:
            return None
        topics = reader.array(Reader.string)
        _skip_user_data(reader)
        owned = dict(reader.array(_read_topic)) if version >= 1 else {}
    except Malformed:
        return None
    return Subscription(version, topics, owned)


def read_assignment(data: bytes) -> dict[str, tuple[int, ...]] | None:
    """The partitions in an assignment by topic; None when it is not one; an empty assignment has none.

    >>> read_assignment(write_assignment(1, {"t": (0, 1)}))
    {'t': (0, 1)}
    """
    if not data:
        return {}
    reader = Reader(data)
    try:
        reader.i16()
        return dict(reader.array(_read_topic))
    except Malformed:
        return None


def write_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment in the version of the member's subscription."""
    writer = Writer(flexible=False).i16(version)
    writer.array(sorted(partitions.items()), lambda w, item: w.string(item[0]).array(item[1], Writer.i32))
    return writer.i32(-1).done()  # no user data


def _read_topic(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.string(), reader.array(Reader.i32)


def _skip_user_data(reader: Reader) -> None:
    size = reader.length()
    if size > 0:
        reader.skip(size)
