"""Pages of a topic's messages: bounded reads forwards and backwards, and a tail that follows the end.

A page never reads more than its budget of offsets and seconds: with a filter that matches little it says how far
it has looked, and goes on from there when asked. What readers of committed data do not see is not shown.
"""

import base64
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection, open_client
from headwater.client.faults import in_words
from headwater.client.reader import END, READ_OPTIONS, Reader
from headwater.errors import HeadwaterError

BUDGET_OFFSETS = 50_000  # looked through for one page
BUDGET_SECONDS = 4.0
CHUNK = 500  # offsets of a partition read backwards at once, at first
KEPT_BYTES = 256 << 10  # of one value that the detail shows
PREVIEW = 240  # characters of a value in the list
TAIL = 200  # messages that a tail keeps
TAIL_PATIENCE = 10.0  # seconds without anybody asking after which a tail ends

Positions = Mapping[int, int]
Test = Callable[[Message], bool]


@dataclass(frozen=True)
class Shown:
    """A message as it is shown. Texts are cut; ``size`` is that of key and value."""

    partition: int
    offset: int
    timestamp: int | None  # milliseconds
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]
    size: int
    is_json: bool
    is_cut: bool

    @property
    def id(self) -> str:
        return f"{self.partition}:{self.offset}"

    @property
    def preview(self) -> str:
        """The value in one line."""
        return "" if self.value is None else " ".join(self.value[:PREVIEW].split())

    def pretty(self) -> str:
        """The value, JSON in many lines."""
        if self.value is None:
            return ""
        if self.is_json and not self.is_cut:
            return in_lines(self.value)
        return self.value


@dataclass(frozen=True)
class MessagePage:
    """Messages, the newest first. ``older`` and ``newer`` are where the pages beside it begin."""

    messages: tuple[Shown, ...] = ()
    older: Positions = field(default_factory=dict)  # exclusive: the page before ends here
    newer: Positions = field(default_factory=dict)
    looked_at: int = 0  # offsets
    has_older: bool = False
    has_newer: bool = False


_JSON_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT, _DEEPEST = "  ", 40  # what is deeper stands below one another


def in_lines(text: str) -> str:
    """JSON in many lines, with all that stands in it as it was written: digits, escapes, and names that come twice.

    >>> print(in_lines('{"price":1.10,"n":[],"n":[12345678901234567890,{}]}'))
    {
      "price": 1.10,
      "n": [],
      "n": [
        12345678901234567890,
        {}
      ]
    }
    """
    parts: list[str] = []
    depth = 0
    before = ""
    for piece in _JSON_PIECE.findall(text):
        if piece in ("}", "]"):
            depth -= 1
            if before not in ("{", "["):
                parts.append("\n" + _INDENT * min(depth, _DEEPEST))
        elif before in ("{", "[", ","):
            parts.append("\n" + _INDENT * min(depth, _DEEPEST))
        parts.append(": " if piece == ":" else piece)
        if piece in ("{", "["):
            depth += 1
        before = piece
    return "".join(parts)


def message_filter(text: str) -> Test | None:
    """What a filter lets pass: ``key=K`` messages with this key, any other text those that contain it.

    >>> passes = message_filter("key=a")
    >>> passes(Message("t", 0, 1, b"a", b"1")), passes(Message("t", 0, 2, b"ab", b"1"))
    (True, False)
    """
    text = text.strip()
    if not text:
        return None
    if text.startswith("key="):
        key = text.removeprefix("key=").strip().encode()
        return lambda message: (message.key() or b"") == key
    wanted = text.encode()
    folded = wanted.lower()

    def contains(message: Message) -> bool:
        parts = [message.key() or b"", message.value() or b""]
        parts += [part for name, value in _headers(message) for part in (name.encode(), value or b"")]
        return any(folded in part.lower() for part in parts)

    return contains


def shown(message: Message) -> Shown:
    """A message in texts."""
    key, value = message.key(), message.value()
    kind, timestamp = message.timestamp()
    cut = value is not None and len(value) > KEPT_BYTES
    return Shown(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp=timestamp if kind else None,
        key=_text(key),
        value=_text(value[:KEPT_BYTES] if value is not None else None),
        headers=tuple((name, _text(content)) for name, content in _headers(message)),
        size=len(key or b"") + len(value or b""),
        is_json=not cut and _is_json(value),
        is_cut=cut,
    )


class Browser:
    """Reads pages of one topic."""

    def __init__(self, connection: Connection, admin: Admin, topic: str) -> None:
        self._connection, self._admin, self._topic = connection, admin, topic

    def before(
        self, ends: Positions | None, partitions: list[int], limit: int, test: Test | None
    ) -> MessagePage:
        """The last messages before some positions; before the ends of the partitions when there are none."""
        first, last = self._bounds(partitions)
        stops = {number: min(last[number], (ends or {}).get(number, last[number])) for number in partitions}
        low, looked, chunk = dict(stops), 0, max(CHUNK, limit)
        kept: list[Message] = []
        deadline = time.monotonic() + BUDGET_SECONDS
        while len(kept) < limit and looked < BUDGET_OFFSETS and time.monotonic() < deadline:
            high, low = low, {number: max(first[number], low[number] - chunk) for number in partitions}
            if high == low:
                break
            found, reached = self._read(low, high, deadline)
            # Of a partition whose messages did not all come, the last ones are missing: none of them are taken.
            low = {number: low[number] if reached[number] == high[number] else high[number] for number in low}
            looked += sum(high[number] - low[number] for number in partitions)
            whole = [m for m in found if low[m.partition() or 0] <= _offset(m)]
            kept += [message for message in whole if test is None or test(message)]
            chunk *= 4
        ordered = in_order(kept)[::-1]
        page, cut = ordered[:limit], ordered[limit:]
        # Where some were left out, the next page begins below what is on this one.
        below = {number: max(_offsets(cut, number, 1) or [low[number]]) for number in low}
        return MessagePage(
            tuple(shown(message) for message in page),
            below,
            stops,
            looked,
            has_older=any(below[number] > first[number] for number in low),
            has_newer=any(stops[number] < last[number] for number in low),
        )

    def after(self, starts: Positions, partitions: list[int], limit: int, test: Test | None) -> MessagePage:
        """The first messages from some positions on."""
        first, last = self._bounds(partitions)
        begin = {
            number: min(last[number], max(first[number], starts.get(number, first[number])))
            for number in partitions
        }
        at, looked, chunk = dict(begin), 0, max(CHUNK, limit)
        kept: list[Message] = []
        deadline = time.monotonic() + BUDGET_SECONDS
        while len(kept) < limit and looked < BUDGET_OFFSETS and time.monotonic() < deadline:
            stop = {number: min(last[number], at[number] + chunk) for number in partitions}
            if stop == at:
                break
            found, reached = self._read(at, stop, deadline)
            looked += sum(reached[number] - at[number] for number in partitions)
            kept += [message for message in found if test is None or test(message)]
            at = reached
            chunk *= 4
        ordered = in_order(kept)
        page, cut = ordered[:limit], ordered[limit:]
        above = {number: min(_offsets(cut, number) or [at[number]]) for number in at}
        return MessagePage(
            tuple(shown(message) for message in reversed(page)),
            begin,
            above,
            looked,
            has_older=any(begin[number] > first[number] for number in begin),
            has_newer=any(above[number] < last[number] for number in above),
        )

    def at_time(self, milliseconds: int, partitions: list[int]) -> dict[int, int]:
        """The first offsets at or after a time; the ends where there are none."""
        places = [(self._topic, number) for number in partitions]
        found, ends = self._admin.at_time(places, milliseconds), self._admin.latest(places, committed=True)
        return {place[1]: ends[place] if offset is None else offset for place, offset in found.items()}

    def _bounds(self, partitions: list[int]) -> tuple[dict[int, int], dict[int, int]]:
        places = [(self._topic, number) for number in partitions]
        first, last = self._admin.earliest(places), self._admin.latest(places, committed=True)
        return {place[1]: first[place] for place in places}, {place[1]: last[place] for place in places}

    def _read(self, low: Positions, high: Positions, deadline: float) -> tuple[list[Message], dict[int, int]]:
        """The messages in the ranges, and how far they were read: to the end, when there is time enough."""
        left = {number: high[number] for number in low if low[number] < high[number]}
        reached = dict(low)
        if not left:
            return [], reached
        options = {
            "group.id": "headwater-browser",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 8192,
            "fetch.wait.max.ms": 20,
        }
        consumer: Consumer = open_client(Consumer, self._connection.options(READ_OPTIONS, options))
        found: list[Message] = []
        try:
            consumer.assign([TopicPartition(self._topic, number, low[number]) for number in left])
            while left and time.monotonic() < deadline + 1.0:
                for message in consumer.consume(1000, timeout=0.05):
                    number, error = message.partition() or 0, message.error()
                    if error is not None:
                        if error.code() == KafkaError._PARTITION_EOF:
                            if _offset(message) >= left.get(number, 0):  # nothing is left but gaps
                                reached[number] = left.pop(number, reached[number])
                        elif not error.retriable():
                            raise in_words(error, "read", self._topic)
                        continue
                    end = left.get(number)
                    if end is None:
                        continue
                    if _offset(message) < end:
                        found.append(message)
                    reached[number] = min(_offset(message) + 1, end)
                    if reached[number] == end:
                        left.pop(number)
        finally:
            consumer.close()
        return found, reached


class Tail:
    """Follows the end of a topic in a thread, and keeps the newest messages that pass.

    It ends when it is stopped, or when nobody has asked for its messages for a while: pages just go.
    """

    def __init__(
        self, connection: Connection, topic: str, partitions: list[int] | None, test: Test | None
    ) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Shown] = deque(maxlen=TAIL)
        self._stopping = threading.Event()
        self._asked = time.monotonic()
        self.seen = 0  # messages, also those that did not pass
        self.passed = 0
        self.error: HeadwaterError | None = None
        self.paused = False
        self._test = test
        self._thread = threading.Thread(
            target=self._run, args=(connection, topic, partitions), name=f"tail {topic}", daemon=True
        )
        self._thread.start()

    def messages(self) -> tuple[Shown, ...]:
        """What was kept, the newest first."""
        self._asked = time.monotonic()
        with self._lock:
            return tuple(reversed(self._kept))

    def stop(self) -> None:
        """Ends it; its thread follows within a moment."""
        self._stopping.set()

    def _run(self, connection: Connection, topic: str, partitions: list[int] | None) -> None:
        try:
            with Reader(connection, [topic], start=END, partitions=partitions) as reader:
                for batch in reader.batches():
                    if self._stopping.is_set() or time.monotonic() - self._asked > TAIL_PATIENCE:
                        return
                    self._take(batch)
        except HeadwaterError as error:
            self.error = error

    def _take(self, batch: list[Message]) -> None:
        passed = [message for message in batch if self._test is None or self._test(message)]
        with self._lock:
            self.seen += len(batch)
            self.passed += len(passed)
            if not self.paused:
                self._kept.extend(shown(message) for message in passed[-TAIL:])


def in_order(messages: list[Message]) -> list[Message]:
    """By time, but those of a partition always by offset: pages could not be told apart otherwise.

    >>> [m.offset() for m in in_order([Message("t", 0, 2, b"", b""), Message("t", 0, 1, b"", b"")])]
    [1, 2]
    """
    latest: dict[int, int] = {}
    placed: list[tuple[int, int, int, Message]] = []
    for message in sorted(messages, key=lambda each: (each.partition() or 0, _offset(each))):
        number = message.partition() or 0
        latest[number] = max(latest.get(number, 0), message.timestamp()[1])
        placed.append((latest[number], number, _offset(message), message))
    return [message for *_, message in sorted(placed, key=lambda each: each[:3])]


def _offsets(messages: list[Message], partition: int, more: int = 0) -> list[int]:
    return [_offset(message) + more for message in messages if message.partition() == partition]


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    # confluent-kafka's types allow for what may be sent; what is received is always a list of these.
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _offset(message: Message) -> int:
    return message.offset() or 0


def _text(content: bytes | None) -> str | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(content).decode()}"


def _is_json(content: bytes | None) -> bool:
    if not content or content[:1] not in b'{["-0123456789tfn':
        return False
    try:
        json.loads(content, parse_int=str, parse_float=str)  # digits without end are JSON as well
    except (ValueError, RecursionError):
        return False
    return True
