"""The events of the stream benchmarks, and the processes that write them.

Three workloads, all JSON of about 100 B, in topics of two partitions:

- ``words``: ``{"id": 17, "text": "ten words"}``, drawn from 5,000 words, a few of them often
- ``ticks``: ``{"id": 17, "symbol": "SYM042", "price": 103.25, "size": 300, "at": "2026-01-05T09:30:00Z"}``
  with milliseconds, 100 symbols, the symbol also as key; 1,000 events a second of event time, up to
  two seconds out of order
- ``rows``: the same ticks, for a pipeline that passes each on by itself

``fill`` writes a topic in two parts: one that is there at once, and one in a transaction that it commits when
it is told to, so that millions of events appear in one moment and nobody has to write while a system works.
Each part ends with an event of a symbol of its own in each partition, a minute later, which closes windows.
``load`` writes at a rate, with the clock as event time, and says when each event was handed to the producer.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy
from confluent_kafka import Producer

Workload = Literal["words", "ticks", "rows"]
WORKLOADS: tuple[Workload, ...] = ("words", "ticks", "rows")

PARTITIONS = 2
WORDS_IN_EVENT = 10
VOCABULARY = 5_000
SYMBOLS = 100
WINDOW_MS = 10_000
LATENESS_MS = 5_000
DISORDER_MS = 2_000
LIVE_LINGER_MS = 5  # what librdkafka waits unless told otherwise
FIRST_MS = int(datetime(2026, 1, 5, 9, 30, tzinfo=UTC).timestamp() * 1000)
GAP_MS = 120_000  # of event time between the two parts of a topic
END = "END"  # the symbols that close windows: END0, END1
TRANSACTION_SECONDS = 900  # the longest that Kafka allows by default
_CHUNK = 50_000


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it is written, and the result row in which it shows."""

    partition: int
    key: bytes | None
    value: bytes
    shows_in: str


def stored(workload: Workload, first: int, count: int) -> Iterator[Event]:
    """One part of a topic, from the event of this number on; always the same events.

    >>> events = list(stored("ticks", 0, 1000))
    >>> len(events), sorted(json.loads(events[0].value))
    (1000, ['at', 'id', 'price', 'size', 'symbol'])
    >>> events[-1].shows_in
    'END1@1767605460000'
    """
    random = numpy.random.default_rng(first + 7)
    start = FIRST_MS + first + (GAP_MS if first else 0)
    ends = 0 if workload == "words" else PARTITIONS
    for chunk in range(0, count - ends, _CHUNK):
        number = min(_CHUNK, count - ends - chunk)
        times = start + numpy.arange(chunk, chunk + number) - random.integers(0, DISORDER_MS, number)
        yield from _events(workload, first + chunk, times.tolist(), random)
    for partition in range(ends):
        at = start + count + GAP_MS // 2
        name = f"{END}{partition}"
        value = _tick(first + count - ends + partition, name, 10_000, 1, at)
        yield Event(partition, name.encode(), value, row_name(name, at - at % WINDOW_MS))


def live(workload: Workload, first: int = 0, seed: int = 11) -> Iterator[Event]:
    """Events that happen when they are asked for, without end.

    A word that no other event has, in the place of the tenth, shows when the event has been counted.
    """
    random = numpy.random.default_rng(seed)
    for number in itertools.count(first):
        yield from _events(workload, number, [time.time_ns() // 1_000_000], random, marked=True)


def _events(
    workload: Workload, first: int, times: list[int], random: numpy.random.Generator, marked: bool = False
) -> Iterator[Event]:
    if workload == "words":
        drawn = (_vocabulary_index(random, (len(times), WORDS_IN_EVENT))).tolist()
        for number, line in enumerate(drawn, first):
            words = [_WORDS[index] for index in line]
            if marked:
                words[-1] = f"n{number}"
            value = b'{"id":%d,"text":"%b"}' % (number, " ".join(words).encode())
            yield Event(number % PARTITIONS, None, value, words[-1])
        return
    symbols = random.integers(0, SYMBOLS, len(times)).tolist()
    prices = random.integers(5_000, 15_000, len(times)).tolist()
    sizes = random.integers(1, 1_000, len(times)).tolist()
    for number, (at, symbol, price, size) in enumerate(
        zip(times, symbols, prices, sizes, strict=True), first
    ):
        name = f"SYM{symbol:03}"
        value = _tick(number, name, price, size, at)
        shows_in = row_name(name, at - at % WINDOW_MS) if workload == "ticks" else str(number)
        yield Event(symbol % PARTITIONS, name.encode(), value, shows_in)


def _tick(number: int, symbol: str, price: int, size: int, at: int) -> bytes:
    cells = (number, symbol.encode(), price // 100, price % 100, size, _iso(at))
    return b'{"id":%d,"symbol":"%b","price":%d.%02d,"size":%d,"at":"%b"}' % cells


def row_name(symbol: str, window_start_ms: int) -> str:
    """How the row of a symbol and window is named here, whatever a system calls it.

    >>> row_name("SYM042", 1767605400000)
    'SYM042@1767605400000'
    """
    return f"{symbol}@{window_start_ms}"


_SECONDS: dict[int, bytes] = {}


def _iso(milliseconds: int) -> bytes:
    second, rest = divmod(milliseconds, 1000)
    text = _SECONDS.get(second)
    if text is None:
        text = _SECONDS[second] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
    return b"%b.%03dZ" % (text, rest)


def _vocabulary() -> list[str]:
    random = numpy.random.default_rng(3)
    letters = numpy.array(list("abcdefghijklmnopqrstuvwxyz"))
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        words["".join(random.choice(letters, int(random.integers(4, 10))))] = None
    return list(words)


_WORDS = _vocabulary()


def _vocabulary_index(random: numpy.random.Generator, shape: tuple[int, int]) -> Any:
    """Few words often, many seldom: the logarithm of the index is drawn evenly."""
    return numpy.minimum(numpy.exp(random.random(shape) * numpy.log(VOCABULARY)), VOCABULARY - 1).astype(int)


def _producer(bootstrap: str, linger: float, **options: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": linger,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,
            **options,
        }
    )


def _fill(bootstrap: str, topic: str, workload: Workload, count: int, held: int) -> None:
    """Prints ``ready``, waits for a line, commits what it held back, and prints when it did."""
    plain = _producer(bootstrap, 50)
    _write(plain, topic, stored(workload, 0, count))
    if not held:
        return
    timeout = TRANSACTION_SECONDS * 1000
    producer = _producer(bootstrap, 50, **{"transactional.id": topic, "transaction.timeout.ms": timeout})
    producer.init_transactions(30)
    producer.begin_transaction()
    _write(producer, topic, stored(workload, count, held))
    print("ready", flush=True)
    sys.stdin.readline()
    at = time.monotonic()
    producer.commit_transaction(30)
    print(at, flush=True)


def _write(producer: Producer, topic: str, events: Iterator[Event]) -> None:
    for event in events:
        while True:
            try:
                producer.produce(topic, event.value, event.key, event.partition)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(120)
    if left:
        raise SystemExit(f"{left} events were not written")


def _load(bootstrap: str, topic: str, workload: Workload, rate: int, seconds: float, first: int) -> None:
    """Prints one line of JSON: for each event the row in which it shows and when it was sent."""
    producer = _producer(bootstrap, LIVE_LINGER_MS)
    sent: list[tuple[str, int]] = []
    started = time.perf_counter()
    for number, event in enumerate(live(workload, first)):
        if number >= rate * seconds:
            break
        sent.append((event.shows_in, time.monotonic_ns()))
        producer.produce(topic, event.value, event.key, event.partition)
        producer.poll(0)
        ahead = started + (number + 1) / rate - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
    producer.flush(30)
    took = time.perf_counter() - started
    json.dump({"sent": sent, "rate": len(sent) / took}, sys.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["fill", "load"])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--held", type=int, default=0)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    if options.what == "fill":
        _fill(options.bootstrap, options.topic, options.workload, options.count, options.held)
    else:
        rate, seconds = options.rate, options.seconds
        _load(options.bootstrap, options.topic, options.workload, rate, seconds, options.first)


if __name__ == "__main__":
    main()
