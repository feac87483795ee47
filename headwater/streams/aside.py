"""What a pipeline could not use, kept aside: dead values and late events, each written once.

Not in the path of the data: a query counts what it leaves out, and when it left something out, the range of
the log is read again and what was left out is copied, with key, value and headers as they were, and headers
that say where it came from and why. Topics: ``<stream>.dead`` and ``<output>.late``.

Dead values belong to a stream, whoever reads it. How far they have been copied is the committed position of a
group of their own in the stream's topic, moved in the transaction that copies them. Late events belong to an
output, and to a batch of its query: their mark is the number of the batch.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F

from headwater.client.admin import Admin
from headwater.client.connection import Connection, open_client
from headwater.client.marked import MarkedWriter
from headwater.client.positions import read_positions, save_positions
from headwater.client.transactions import TransactionalWriter
from headwater.errors import Unreachable
from headwater.streams.backlog import Backlog
from headwater.streams.declarations import Stream
from headwater.streams.engine.checkpoint import BatchRecord, Checkpoint, Offsets
from headwater.streams.engine.watch import first_line
from headwater.streams.inputs import problems, times
from headwater.streams.late import FIRST_WATERMARK, WindowUse, is_late
from headwater.streams.naming import col
from headwater.streams.settings import StreamSettings
from headwater.streams.sources.topic_read import PROBLEM

logger = logging.getLogger("headwater.streams")

FETCH_SECONDS = 30.0
RETRY_SECONDS = 2.0
LAST_TRIES_SECONDS = 10.0  # at a stop: what fails then may have failed because of something that has passed
SAVE_SECONDS = 5.0

Place = tuple[str, int]


def as_text(topic: str, offsets: Mapping[int, int]) -> dict[str, dict[str, int]]:
    """Offsets of a topic as a source takes them.

    >>> as_text("clicks", {0: 7})
    {'clicks': {'0': 7}}
    """
    return {topic: {str(number): at for number, at in offsets.items()}}


def dead_topic(stream: str) -> str:
    """Where the values of a stream go that do not parse."""
    return f"{stream}.dead"


def late_topic(output: str) -> str:
    """Where the events go that came too late for an output."""
    return f"{output}.late"


@dataclass
class Counts:
    """What has been set aside since the start."""

    dead: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DeadValues:
    """Values that were left out, `count` of them, in a range of a stream."""

    stream: Stream
    start: Mapping[int, int]
    end: Mapping[int, int]
    count: int

    def joined(self, later: "DeadValues") -> "DeadValues":
        """Both in one range. What lies between them nobody has counted, so it counts as something to look for."""
        is_gap = any(at > self.end.get(number, 0) for number, at in later.start.items())
        end = {**later.end, **{number: max(at, later.end.get(number, 0)) for number, at in self.end.items()}}
        return replace(self, end=end, count=self.count + later.count + is_gap)


@dataclass(frozen=True)
class LateEvents:
    """Batches of a query in which events of an output came too late, or may have done so."""

    output: str
    query: str
    streams: Sequence[Stream]
    windows: Sequence[WindowUse]
    steps: tuple[tuple[BatchRecord, BatchRecord], ...]  # each batch, behind the one before it

    def joined(self, later: "LateEvents") -> "LateEvents":
        known = {now.id for _, now in self.steps}
        return replace(
            self, steps=self.steps + tuple(step for step in later.steps if step[1].id not in known)
        )


class Aside:
    """Copies what was left out, in a thread of its own, and again until it succeeds."""

    def __init__(self, spark: SparkSession, settings: StreamSettings, application: str) -> None:
        self._spark, self._settings, self._application = spark, settings, application
        self._connection = Connection(settings.bootstrap, settings.properties)
        self._work: Backlog[DeadValues | LateEvents] = Backlog()
        self._stopped = threading.Event()
        self._last_try = 0.0  # once it is stopped
        self._thread = threading.Thread(target=self._run, name="aside", daemon=True)
        self._dead: dict[str, _DeadLetters] = {}
        self._late: dict[str, MarkedWriter] = {}
        self.counts = Counts()

    def begin(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def end(self, seconds: float = 30.0) -> None:
        """Finishes what is waiting, and stops. What takes longer is found again at the next start."""
        self._work.end()
        self._last_try = time.monotonic() + min(LAST_TRIES_SECONDS, seconds)
        self._stopped.set()
        self._thread.join(seconds)
        for writer in self._late.values():
            writer.close()
        for letters in self._dead.values():
            letters.close()

    def follow(self, stream: Stream) -> None:
        """Before any query reads the stream: notes where it begins, so that nothing is missed."""
        self._letters(stream).position()

    def dead(self, stream: Stream, start: Offsets, end: Offsets, count: int) -> None:
        """A query has read the stream from `start` to `end` and left out `count` values."""
        topic = stream.topic
        values = DeadValues(stream, start.get(topic, {}), end.get(topic, {}), count)
        self._work.put(f"dead {stream.name}", values)

    def late(
        self,
        output: str,
        query: str,
        streams: Sequence[Stream],
        windows: Sequence[WindowUse],
        checkpoint: Checkpoint,
        batches: range,
    ) -> None:
        """In these batches a query left out events that came too late, or may have done so.

        What the checkpoint says of them is read now: it forgets.
        """
        records = [checkpoint.batch(number) for number in range(batches.start - 1, batches.stop)]
        if batches.start == 0 and records[1] is not None:
            records[0] = _before(records[1], streams)
        steps = tuple(
            (before, now) for before, now in pairwise(records) if before is not None and now is not None
        )
        if gone := records[1:].count(None):
            logger.warning("which events of %s were late cannot be told of %s batches any more", output, gone)
        if steps:
            self._work.put(f"late {query}", LateEvents(output, query, streams, windows, steps))

    def late_position(self, query: str) -> int:
        """The batch up to which the late events of a query have been copied."""
        return self._late_writer(query).position()

    def _run(self) -> None:
        while (work := self._work.take()) is not None:
            while True:
                try:
                    if isinstance(work, DeadValues):
                        self._copy_dead(work)
                    else:
                        self._copy_late(work)
                    break
                except Exception as error:  # whatever it is: nobody else would ever copy these
                    logger.warning("what was left out waits to be written: %s", first_line(error))
                    if self._stopped.wait(RETRY_SECONDS):
                        if time.monotonic() > self._last_try:
                            return
                        time.sleep(RETRY_SECONDS / 4)

    def _letters(self, stream: Stream) -> "_DeadLetters":
        letters = self._dead.get(stream.name)
        if letters is None:
            letters = self._dead[stream.name] = _DeadLetters(self._connection, self._application, stream)
        return letters

    def _copy_dead(self, values: DeadValues) -> None:
        stream, topic = values.stream, values.stream.topic
        letters = self._letters(stream)
        done = letters.position()
        behind = {number: at for number, at in values.end.items() if at > done.get(number, 0)}
        if not behind:
            return
        counted = all(values.start.get(number, 0) <= done.get(number, 0) for number in behind)
        if values.count == 0 and counted:
            letters.move(behind)
            return
        # Something is dead, or nobody has counted what lies between: after a crash, say.
        found = problems(
            self._spark,
            stream,
            self._settings,
            as_text(topic, {number: done.get(number, 0) for number in behind}),
            as_text(topic, behind),
        ).collect()
        reasons = {(topic, row["partition"], row["offset"]): str(row[PROBLEM]) for row in found}
        letters.write(reasons, behind)
        self.counts.dead[stream.name] = self.counts.dead.get(stream.name, 0) + len(reasons)

    def _copy_late(self, late: LateEvents) -> None:
        writer = self._late_writer(late.query)
        position = writer.position()
        steps = [(before, now) for before, now in late.steps if now.id >= position]
        if not steps:
            return
        reasons: dict[tuple[str, int, int], str] = {}
        for stream in late.streams:
            if stream.time is not None:
                reasons |= self._late_in(stream, late.windows, steps)
        messages = list(fetch(self._connection, reasons))
        topic = late_topic(late.output)
        if writer.write(steps[-1][1].id, lambda transaction: copy(transaction, topic, messages, reasons)):
            self.counts.late[late.output] = self.counts.late.get(late.output, 0) + len(messages)

    def _late_in(
        self, stream: Stream, windows: Sequence[WindowUse], steps: Sequence[tuple[BatchRecord, BatchRecord]]
    ) -> dict[tuple[str, int, int], str]:
        """The late events of some batches in a row, each with its reason: one read of the log for all."""
        assert stream.time is not None
        ends = [record.offsets.get(stream.topic, {}) for record in (steps[0][0], steps[-1][1])]
        marks = []
        for before, now in steps:
            begin, end = before.offsets.get(stream.topic, {}), now.offsets.get(stream.topic, {})
            if end and begin != end:
                watermark = before.watermark or FIRST_WATERMARK
                late = is_late(col(stream.time), watermark, windows)
                mark = str(watermark.replace(tzinfo=None))
                marks.append(F.when(_is_between(begin, end) & late, F.lit(mark)))
        if not marks:
            return {}
        texts, mark_of = [as_text(stream.topic, offsets) for offsets in ends], F.coalesce(*marks)
        rows: list[Row] = (
            times(self._spark, stream, self._settings, texts[0], texts[1])
            # As a text: Python has no moment for the first of the year 1, which some languages have for none.
            .select(
                "partition", "offset", col(stream.time).cast("string").alias("_time"), mark_of.alias("_mark")
            )
            .where("_mark IS NOT NULL")
            .collect()
        )
        return {
            (
                stream.topic,
                row["partition"],
                row["offset"],
            ): f"its time {row['_time']} was behind the watermark {row['_mark']}"
            for row in rows
        }

    def _late_writer(self, query: str) -> MarkedWriter:
        if query not in self._late:
            self._late[query] = MarkedWriter(self._connection, f"{query}.late")
        return self._late[query]


class _DeadLetters:
    """The dead values of one stream, and how far they have been copied."""

    def __init__(self, connection: Connection, application: str, stream: Stream) -> None:
        self._connection, self._stream = connection, stream
        name = f"headwater.{application}.{stream.name}.dead"
        self._consumer: Consumer = open_client(
            Consumer, connection.options(forced={"group.id": name, "enable.auto.commit": False})
        )
        self._name = name
        self._writer: TransactionalWriter | None = None
        self._position: dict[int, int] | None = None
        self._saved = time.monotonic()

    def close(self) -> None:
        """Keeps the position, so that the next start need not look again."""
        if self._position:
            self._save(self._position)
        self._consumer.close()

    def position(self) -> dict[int, int]:
        """By partition, up to where values have been looked at."""
        if self._position is None:
            self._take_over()  # then nobody else moves it any more
            numbers = Admin(self._connection).partitions(self._stream.topic)
            places = [TopicPartition(self._stream.topic, number) for number in numbers]
            found = read_positions(self._consumer, places, self._name)
            position = {each.partition: each.offset for each in found}
            new = [number for number, offset in position.items() if offset < 0]
            if new:
                position |= self._beginning(new)
                self._save(position)
            self._position = position
        return self._position

    def _beginning(self, numbers: list[int]) -> dict[int, int]:
        """Where the stream begins for its first reader."""
        admin, topic = Admin(self._connection), self._stream.topic
        ends = admin.latest if self._stream.start == "latest" else admin.earliest
        return {
            number: offset for (_, number), offset in ends([(topic, number) for number in numbers]).items()
        }

    def move(self, end: Mapping[int, int]) -> None:
        """Nothing was dead up to here. It is saved from time to time: to look again does no harm."""
        position = self.position()
        position.update(end)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self._save(position)

    def _save(self, position: Mapping[int, int]) -> None:
        places = [TopicPartition(self._stream.topic, number, at) for number, at in position.items()]
        save_positions(self._consumer, places, self._name)
        self._saved = time.monotonic()

    def write(self, reasons: Mapping[tuple[str, int, int], str], end: Mapping[int, int]) -> None:
        """Copies these records, and moves the position, in one transaction."""
        messages = list(fetch(self._connection, reasons))
        places = [TopicPartition(self._stream.topic, number, at) for number, at in end.items()]
        writer = self._take_over()
        try:
            with writer.transaction():
                copy(writer, dead_topic(self._stream.name), messages, reasons)
                writer.send_offsets(self._consumer, places)
        except BaseException:
            # Whether it was committed is in the position, to be read when the next writer has taken over.
            self._writer = self._position = None
            raise
        self.position().update(end)

    def _take_over(self) -> TransactionalWriter:
        if self._writer is None:
            self._writer = TransactionalWriter(self._connection, self._name)
        return self._writer


def _before(first: BatchRecord, streams: Sequence[Stream]) -> BatchRecord:
    """What stands before the first batch of a query.

    Of streams that are not read from their beginning nobody knows where it began: nothing of them is looked at.
    """
    whole = {stream.topic for stream in streams if stream.start == "earliest"}
    begun = {
        topic: dict.fromkeys(partitions, 0) if topic in whole else partitions
        for topic, partitions in first.offsets.items()
    }
    return BatchRecord(first.id - 1, begun, None)


def _is_between(begin: Mapping[int, int], end: Mapping[int, int]) -> Column:
    """Whether a record lies between two positions of its topic."""
    partition, offset = F.col("partition"), F.col("offset")
    parts = [
        (partition == number) & (offset >= begin.get(number, 0)) & (offset < at) for number, at in end.items()
    ]
    return reduce(lambda left, right: left | right, parts)


def fetch(connection: Connection, wanted: Iterable[tuple[str, int, int]]) -> Iterator[Message]:
    """The records at these places, by topic, partition and offset; those that are gone are left out.

    Unreachable when the broker is away for so long that nobody knows whether they are gone.
    """
    by_partition: dict[Place, set[int]] = {}
    for topic, partition, at in wanted:
        by_partition.setdefault((topic, partition), set()).add(at)
    if not by_partition:
        return
    options = {"group.id": "headwater.aside", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer: Consumer = open_client(
        Consumer, connection.options(forced={**options, "auto.offset.reset": "earliest"})
    )
    try:
        for (topic, partition), offsets in sorted(by_partition.items()):
            consumer.assign([TopicPartition(topic, partition, min(offsets))])
            last, ended, until = max(offsets), False, time.monotonic() + FETCH_SECONDS
            while not ended:
                for message in consumer.consume(1000, 0.2):
                    error, offset = message.error(), message.offset()
                    if error is not None:
                        # Other errors, of a broker that is away, pass: the consumer goes on by itself.
                        ended = ended or error.code() == KafkaError._PARTITION_EOF
                        continue
                    if offset in offsets:
                        yield message
                    ended = ended or (offset is not None and offset >= last)
                    until = time.monotonic() + FETCH_SECONDS
                if not ended and time.monotonic() > until:
                    raise Unreachable("read", f"{topic}-{partition}", "no record came in time")
    finally:
        consumer.close()


def copy(
    writer: TransactionalWriter,
    topic: str,
    messages: Iterable[Message],
    reasons: Mapping[tuple[str, int, int], str],
) -> None:
    """Writes records as they were, with headers that say where they came from, and why."""
    for message in messages:
        place = (str(message.topic()), int(message.partition() or 0), int(message.offset() or 0))
        headers: list[tuple[str, Any]] = [*(message.headers() or [])]
        headers += [
            ("headwater.topic", place[0].encode()),
            ("headwater.partition", str(place[1]).encode()),
            ("headwater.offset", str(place[2]).encode()),
            ("headwater.reason", reasons[place].encode()),
        ]
        writer.write(topic, message.value(), message.key(), headers=headers)
