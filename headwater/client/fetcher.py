"""A small synchronous reader of topics, for any Kafka without TLS and SASL: batches as they are in the log.

It follows leaders, and repeats what failed because a broker went away or leads no longer, until its patience
ends. What it gives is read_committed: nothing behind the last stable offset, and the list of the transactions
that were rolled back, which `columns` leaves out.

One thread at a time may use a fetcher.
"""

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self, TypeVar

from headwater.client.bare_requests import (
    EARLIEST,
    FETCH,
    LATEST,
    LIST_OFFSETS,
    METADATA,
    Fetched,
    Metadata,
    Place,
    fetch_body,
    metadata_body,
    next_offset,
    offsets_body,
    read_fetch,
    read_metadata,
    read_offsets,
    request,
)
from headwater.client.columns import Columns, decode
from headwater.client.connection import Connection, addresses
from headwater.errors import (
    InvalidTopic,
    NotAllowed,
    OffsetOutOfRange,
    RequestFailed,
    UnknownTopic,
    Unreachable,
)

T = TypeVar("T")

PATIENCE_SECONDS = 60.0  # a leader's fail-over takes less; who waits longer should hear of it
ANSWER_SECONDS = 30.0
CONNECT_SECONDS = 5.0
FETCH_BYTES = 4 << 20  # enough to keep a decoder busy while the next answer comes
LARGEST_ANSWER = 1 << 30

OFFSET_OUT_OF_RANGE = 1
_UNKNOWN_TOPIC, _INVALID_TOPIC, _NOT_ALLOWED = 3, 17, 29
# Errors that pass: no leader or another one, coordinator or storage busy, an epoch that changed meanwhile.
_PASSING = {3, 5, 6, 7, 9, 13, 56, 74, 75, 76, 78, 95, 100, 103}


class _Lost(Exception):
    """A request that has to be sent again, perhaps to another broker."""


class _Broker:
    """One connection to one broker. Requests are answered in the order in which they were sent."""

    def __init__(self, address: tuple[str, int]) -> None:
        try:
            self.socket = socket.create_connection(address, CONNECT_SECONDS)
        except OSError as error:
            raise _Lost(f"{address[0]}:{address[1]} {error.strerror or error}".lower()) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(ANSWER_SECONDS)
        self._number = 0
        self._awaited = 0

    def send(self, api_key: int, body: bytes) -> None:
        self._number = (self._number + 1) & 0x7FFFFFFF
        try:
            self.socket.sendall(request(api_key, self._number, body))
        except OSError as error:
            raise _Lost(str(error)) from error

    @property
    def owes_an_answer(self) -> bool:
        """Whether a request was sent whose answer nobody has received."""
        return self._number != self._awaited

    def receive(self) -> memoryview:
        """The body of the next answer."""
        self._awaited = (self._awaited + 1) & 0x7FFFFFFF
        try:
            size, number = struct.unpack(">ii", self._exactly(8))
            if number != self._awaited or not 4 <= size <= LARGEST_ANSWER:
                raise _Lost("something that is no Kafka broker answers there")
            return self._exactly(size - 4)
        except OSError as error:
            raise _Lost("no answer in time" if isinstance(error, TimeoutError) else str(error)) from error

    def _exactly(self, size: int) -> memoryview:
        content = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            got = self.socket.recv_into(content[filled:])
            if not got:
                raise _Lost("the broker closed the connection")
            filled += got
        return content

    def close(self) -> None:
        self.socket.close()


class Fetcher:
    """Reads partitions of topics as raw batches.

    ``patience`` is how long it goes on without an answer before it raises Unreachable; ``fetch_bytes`` how much it
    asks for at a time.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        patience: float = PATIENCE_SECONDS,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self.connection = connection
        self.patience = patience
        self._fetch_bytes = fetch_bytes
        self._metadata = Metadata({}, {})
        self._brokers: dict[tuple[str, int], _Broker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next question opens them again."""
        for broker in self._brokers.values():
            broker.close()
        self._brokers.clear()

    # -- questions ---------------------------------------------------------------------------------

    def partitions(self, topics: Iterable[str]) -> list[Place]:
        """All partitions of the topics, in order. UnknownTopic when one of the topics is not there."""
        names = sorted(set(topics))
        return self._persist("read", ", ".join(names), lambda: self._partitions(names))

    def _partitions(self, names: list[str]) -> list[Place]:
        self._refresh(names)
        places = []
        for name in names:
            topic = self._metadata.topics[name]
            places += [(name, number) for number in sorted(topic.partitions)]
            if not topic.partitions:
                raise _Lost("the topic has no partitions yet")
        return places

    def offsets(
        self, places: Iterable[Place], at: int | Mapping[Place, int] = LATEST, *, committed: bool = True
    ) -> dict[Place, int]:
        """Of each place the first offset at or after a time (milliseconds), -1 when there is none.

        ``EARLIEST`` and ``LATEST`` stand for the log's start, and for its end to a read_committed reader.
        """
        wanted = list(places)
        subject = ", ".join(sorted({topic for topic, _ in wanted}))
        return self._persist("read the offsets of", subject, lambda: self._offsets(wanted, at, committed))

    def _offsets(
        self, wanted: list[Place], at: int | Mapping[Place, int], committed: bool
    ) -> dict[Place, int]:
        found: dict[Place, int] = {}
        for address, places in self._led(wanted).items():
            broker = self._broker(address)
            broker.send(LIST_OFFSETS, offsets_body(places, at, committed))
            for place, (error, offset) in read_offsets(broker.receive()).items():
                _check(error, "read the offsets of", place)
                found[place] = offset
        return found

    def ends(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """Of each place the first offset, and the one behind what a read_committed reader may see."""
        wanted = list(places)
        first, last = self.offsets(wanted, EARLIEST), self.offsets(wanted, LATEST)
        return {place: (first[place], last[place]) for place in wanted}

    # -- records -----------------------------------------------------------------------------------

    def _fetch(self, place: Place, offset: int) -> Fetched:
        """Batches from the one that holds ``offset`` on. The error is 0 or OFFSET_OUT_OF_RANGE."""
        return self._persist("read", _name(place), lambda: self._answer(self._ask(place, offset), place))

    def columns(self, place: Place, start: int, end: int) -> Iterator[Columns]:
        """The committed records from one offset up to another, an answer of the broker at a time.

        The next answer is on its way while its receiver works on the one before. `OffsetOutOfRange` when the log
        does not hold the position that it has come to.
        """
        asked: _Broker | None = None
        position = start
        began = time.monotonic()
        try:
            while position < end:
                try:
                    fetched = self._answer(asked or self._ask(place, position), place)
                except _Lost:
                    self._forget()
                    fetched = self._fetch(place, position)
                asked = None
                if fetched.error:
                    raise OffsetOutOfRange("read", _name(place), f"it does not hold offset {position}")
                following = next_offset(fetched, position)
                if following == position:
                    if fetched.stable_end >= end and not fetched.throttled:
                        return  # what is left was compacted away
                    if time.monotonic() - began > self.patience:
                        cause = f"it ends at offset {fetched.stable_end}, and was to reach {end}"
                        raise Unreachable("read", _name(place), cause, "Read up to the offset where it ends.")
                    time.sleep(0.05)
                    continue
                if following < end:
                    try:
                        asked = self._ask(place, following)
                    except _Lost:
                        self._forget()
                found = decode(fetched, position, end)
                if found is not None:
                    yield found
                position, began = following, time.monotonic()
        finally:
            if asked is not None:  # nobody waits for this answer any more
                self.close()

    def _ask(self, place: Place, offset: int) -> _Broker:
        (address,) = self._led([place])
        broker = self._broker(address)
        size = self._fetch_bytes
        body = fetch_body({place: offset}, wait_ms=500, min_bytes=1, max_bytes=size, partition_bytes=size)
        broker.send(FETCH, body)
        return broker

    def _answer(self, broker: _Broker, place: Place) -> Fetched:
        error, found = read_fetch(broker.receive())
        fetched = found.get(place)
        if error or fetched is None:
            _check(error or -1, "read", place)
        elif fetched.error != OFFSET_OUT_OF_RANGE:
            _check(fetched.error, "read", place)
        assert fetched is not None
        return fetched

    def await_records(self, positions: Mapping[Place, int], seconds: float) -> dict[Place, int | None]:
        """Returns when one of the positions has a record to give, or after ``seconds``.

        What comes is where each partition ends for a read_committed reader, of those that said so: None when it
        does not hold the position.
        """
        subject = ", ".join(sorted({topic for topic, _ in positions}))
        return self._persist("read", subject, lambda: self._await_records(positions, seconds))

    def _await_records(self, positions: Mapping[Place, int], seconds: float) -> dict[Place, int | None]:
        waiting: dict[socket.socket, tuple[tuple[str, int], _Broker]] = {}
        found: dict[Place, int | None] = {}
        for address, places in self._led(positions).items():
            broker = self._broker(address)
            body = fetch_body(
                {place: positions[place] for place in places},
                wait_ms=round(seconds * 1000), min_bytes=1, max_bytes=1, partition_bytes=1,
            )  # fmt: skip
            broker.send(FETCH, body)
            waiting[broker.socket] = (address, broker)
        try:
            while waiting and all(found.get(place, at) == at for place, at in positions.items()):
                for connection in _readable(list(waiting), seconds + ANSWER_SECONDS):
                    error, answered = read_fetch(waiting[connection][1].receive())
                    del waiting[connection]
                    for place, fetched in answered.items():
                        if error or fetched.error != OFFSET_OUT_OF_RANGE:
                            _check(error or fetched.error, "read", place)
                        found[place] = None if fetched.error else fetched.stable_end
        finally:
            # A broker answers in order: who has news does not wait for those that have none.
            for address, _ in waiting.values():
                self._drop(address)
        return found

    # -- brokers and leaders -----------------------------------------------------------------------

    def _persist(self, operation: str, subject: str, attempt: Callable[[], T]) -> T:
        """Make the attempt again while it fails for reasons that pass."""
        deadline = time.monotonic() + self.patience
        pause = 0.05
        while True:
            try:
                return attempt()
            except _Lost as error:
                self._forget()
                if time.monotonic() + pause > deadline:
                    raise Unreachable(operation, subject, str(error)) from error
            except struct.error as error:
                self.close()
                raise RequestFailed(operation, subject, "the broker's answer is cut short") from error
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def _forget(self) -> None:
        """Connections and leaders, after something went wrong with one of them."""
        self.close()
        self._metadata = Metadata({}, {})

    def _refresh(self, topics: Iterable[str]) -> None:
        asked = set(topics)
        names = sorted(asked | set(self._metadata.topics))
        known = [*self._brokers, *self._metadata.brokers.values(), *addresses(self.connection.bootstrap)]
        reasons: list[str] = []
        for address in dict.fromkeys(known):
            try:
                broker = self._broker(address)
                broker.send(METADATA, metadata_body(names))
                found = read_metadata(broker.receive())
                break
            except _Lost as error:
                self._drop(address)
                reasons.append(str(error))
        else:
            raise _Lost("; ".join(dict.fromkeys(reasons)))
        for name, topic in list(found.topics.items()):
            if topic.error and name not in asked:
                del found.topics[name]  # whoever reads it hears of that; this question is about others
                continue
            if topic.error == _UNKNOWN_TOPIC:
                cause, step = "there is no such topic", f"Create it: headwater topics create {name}."
                raise UnknownTopic("read", name, cause, step)
            _check(topic.error, "read", (name, -1))
        self._metadata = found

    def _led(self, places: Iterable[Place]) -> dict[tuple[str, int], list[Place]]:
        """The places by the address of the broker that leads them."""
        wanted = list(places)
        topics = self._metadata.topics
        if any(place[0] not in topics or place[1] not in topics[place[0]].partitions for place in wanted):
            self._refresh({topic for topic, _ in wanted})
        led: dict[tuple[str, int], list[Place]] = {}
        for place in wanted:
            partition = self._metadata.topics[place[0]].partitions.get(place[1])
            if partition is None:
                raise UnknownTopic(
                    "read", _name(place), "there is no such partition", "See `headwater topics`."
                )
            address = self._metadata.brokers.get(partition.leader)
            if address is None:
                raise _Lost(f"no broker leads {_name(place)}")
            led.setdefault(address, []).append(place)
        return led

    def _broker(self, address: tuple[str, int]) -> _Broker:
        broker = self._brokers.get(address)
        if broker is not None and broker.owes_an_answer:
            # To `columns` that somebody has left in the middle: whoever goes on with them asks again.
            self._drop(address)
        if address not in self._brokers:
            self._brokers[address] = _Broker(address)
        return self._brokers[address]

    def _drop(self, address: tuple[str, int]) -> None:
        broker = self._brokers.pop(address, None)
        if broker is not None:
            broker.close()


def _readable(connections: list[socket.socket], seconds: float) -> list[socket.socket]:
    with selectors.DefaultSelector() as selector:
        for each in connections:
            selector.register(each, selectors.EVENT_READ)
        ready = [key.fileobj for key, _ in selector.select(seconds)]
    if not ready:
        raise _Lost("no answer in time")
    return [each for each in ready if isinstance(each, socket.socket)]


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}" if place[1] >= 0 else place[0]


def _check(error: int, operation: str, place: Place) -> None:
    if not error:
        return
    if error in _PASSING:
        raise _Lost(f"the broker answers for {_name(place)} with error {error}")
    if error == _NOT_ALLOWED:
        raise NotAllowed(operation, _name(place), "the broker does not allow it")
    if error == _INVALID_TOPIC:
        raise InvalidTopic(operation, _name(place), "Kafka does not allow this name")
    raise RequestFailed(operation, _name(place), f"the broker answers with error {error}")
