"""Signals to running sources: the topic headwater.signals, keyed by the source's name.

A record's value is JSON: ``{"kind": "snapshot", "tables": ["users"], "where": "id > 100"}``. Which signals a source
has taken is committed with its position, so that each is taken once, also by a source that was not running.
"""

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, get_args

import orjson
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection, open_client
from headwater.client.faults import in_words
from headwater.client.writer import Writer
from headwater.connect.source import Signal, SignalKind
from headwater.errors import BadInput, Unreachable

SIGNALS = "headwater.signals"
CONFIGS = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3600 * 1000)}
KINDS: tuple[str, ...] = get_args(SignalKind)

_LOOK_SECONDS = 0.05  # between two looks, while a source is busy
_WAITING_SECONDS = 30.0  # for the broker to send what it has


def encode(signal: Signal) -> bytes:
    """The value of a signal's record.

    >>> decode(encode(Signal("snapshot", ("users",), "id > 100")))
    Signal(kind='snapshot', tables=('users',), where='id > 100')
    """
    return orjson.dumps(as_json(signal))


def decode(value: bytes | None) -> Signal | None:
    """The signal of a record; None for one that makes no sense, which is passed over."""
    try:
        document: Any = orjson.loads(value or b"")
        return from_json(document) if document["kind"] in KINDS else None
    except (ValueError, KeyError, TypeError):
        return None


def as_json(signal: Signal) -> dict[str, Any]:
    """A signal in a position.

    >>> as_json(Signal("pause"))
    {'kind': 'pause'}
    """
    document = {"kind": signal.kind, "tables": signal.tables, "where": signal.where}
    return {key: value for key, value in document.items() if value}


def from_json(document: Mapping[str, Any]) -> Signal:
    """The reverse of `as_json`.

    >>> from_json({"kind": "snapshot", "tables": ["users"]})
    Signal(kind='snapshot', tables=('users',), where=None)
    """
    return Signal(document["kind"], tuple(document.get("tables") or ()), document.get("where"))


def send_signal(connection: Connection, name: str, signal: Signal) -> None:
    """Asks something of a source; it is taken when the source runs."""
    if signal.kind not in KINDS:
        raise BadInput(
            "send", f"the signal {signal.kind}", "there is none", f"Use one of {', '.join(KINDS)}."
        )
    prepare_signals(Admin(connection))
    with Writer(connection) as writer:
        writer.write(SIGNALS, encode(signal), name)


def prepare_signals(admin: Admin) -> None:
    """Makes the topic when it is not there."""
    admin.create_topic(SIGNALS, 1, configs=CONFIGS, exist_ok=True)


class SignalReader:
    """The signals of one source from where it was; a source that begins takes only those sent from now on."""

    def __init__(self, connection: Connection, name: str, offsets: Mapping[str, int]) -> None:
        admin = Admin(connection)
        prepare_signals(admin)
        self._key = name.encode()
        places = [(SIGNALS, number) for number in admin.partitions(SIGNALS)]
        ends, firsts = admin.latest(places, committed=True), admin.earliest(places)
        self._offsets: dict[str, int] = {}
        for place in places:
            start = offsets.get(str(place[1]), ends[place])
            # Retention may have passed by, or the topic was made anew.
            self._offsets[str(place[1])] = min(max(start, firsts[place]), ends[place])
        self._ends = {str(place[1]): end for place, end in ends.items()}
        self._taken = not offsets  # a first position says where the signals begin
        self._next_look = 0.0
        forced = {
            "group.id": "headwater-signals",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5000,  # an answer comes at once when there is something
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        self._consumer: Consumer = open_client(Consumer, connection.options(forced=forced))
        self._consumer.assign(
            [TopicPartition(SIGNALS, int(each), offset) for each, offset in self._offsets.items()]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def waiting(self) -> list[Signal]:
        """Those that were there already when this began."""
        found: list[Signal] = []
        deadline = time.monotonic() + _WAITING_SECONDS
        behind = {each for each, offset in self._offsets.items() if offset < self._ends[each]}
        while behind:
            if time.monotonic() > deadline:
                raise Unreachable("read", SIGNALS, "the broker sends nothing", "It is tried again.")
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            # What is left may be no record: retention has taken it, or a transaction has ended there.
            found += self._taken_from(message)
            partition = str(message.partition())
            if _is_end(message.error()) or self._offsets.get(partition, 0) >= self._ends.get(partition, 0):
                behind.discard(partition)
        return found

    def read(self) -> Iterator[Signal]:
        """What has come since."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        while (message := self._consumer.poll(0)) is not None:
            yield from self._taken_from(message)

    def _taken_from(self, message: Message) -> Iterator[Signal]:
        error = message.error()
        if error is not None:
            passes = error.code() != KafkaError._AUTO_OFFSET_RESET and error.retriable()
            if not passes and not _is_end(error):
                raise in_words(error, "read", SIGNALS)
            return
        self._offsets[str(message.partition())] = (message.offset() or 0) + 1
        if message.key() == self._key and (signal := decode(message.value())) is not None:
            self._taken = True
            yield signal

    def take_offsets(self) -> Mapping[str, int] | None:
        """Where to go on, for the position of the step that has taken them; None when there was none."""
        if not self._taken:
            return None
        self._taken = False
        return dict(self._offsets)


def _is_end(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError._PARTITION_EOF
