"""Signals to running sources: the topic headwater.signals, keyed by the source's name.

A record's value is JSON: ``{"kind": "snapshot", "tables": ["users"], "where": "id > 100"}``. Which signals a source
has taken is committed with its position, so that each is taken once, also by a source that was not running.
"""

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, get_args

import orjson
from confluent_kafka import Consumer, KafkaError, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection, open_client
from headwater.client.faults import in_words
from headwater.client.writer import Writer
from headwater.connect.source import Signal, SignalKind
from headwater.errors import BadInput

SIGNALS = "headwater.signals"
CONFIGS = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3600 * 1000)}
KINDS: tuple[str, ...] = get_args(SignalKind)

_LOOK_SECONDS = 0.05  # between two looks, while a source is busy


def encode(signal: Signal) -> bytes:
    """The value of a signal's record.

    >>> decode(encode(Signal("snapshot", ("users",), "id > 100")))
    Signal(kind='snapshot', tables=('users',), where='id > 100')
    """
    document = {"kind": signal.kind, "tables": signal.tables, "where": signal.where}
    return orjson.dumps({key: value for key, value in document.items() if value})


def decode(value: bytes | None) -> Signal | None:
    """The signal of a record; None for one that makes no sense, which is passed over."""
    try:
        document: Any = orjson.loads(value or b"")
        if document["kind"] not in KINDS:
            return None
        return Signal(document["kind"], tuple(document.get("tables") or ()), document.get("where"))
    except (ValueError, KeyError, TypeError):
        return None


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
        self._taken = not offsets  # a first position says where the signals begin
        self._next_look = 0.0
        forced = {
            "group.id": "headwater-signals",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5000,  # an answer comes at once when there is something
            "isolation.level": "read_committed",
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

    def read(self) -> Iterator[Signal]:
        """What has come since."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        while (message := self._consumer.poll(0)) is not None:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET or not error.retriable():
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
