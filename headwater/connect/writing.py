"""Writing a source's records and its position in one transaction, while the source goes on.

The source's thread hands records to the producer as they come. A thread of its own commits: so a transaction ends in
time when the source waits for its database, and the source goes on while the log works. What comes during a commit
is kept aside, bounded, and is the beginning of the next transaction.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException, Producer

from headwater.client.admin import Admin
from headwater.client.connection import Connection, open_client
from headwater.client.faults import in_words
from headwater.client.transactions import HUNG_SECONDS
from headwater.connect.pace import Pace
from headwater.connect.positions import POSITIONS, Standing, partition_of, prepare_positions, read_standing
from headwater.connect.source import Record, Step, TopicNeeds
from headwater.errors import InvalidBatch, NotAllowed, StaleProducerEpoch, TransactionAborted, Unreachable

# A commit waits so long for a broker that went away, before another producer tries.
COMMIT_SECONDS = 20.0
TRANSACTION_SECONDS = 60.0
_SETTLED_SECONDS = 0.5  # until all nodes of a cluster know of another configuration
ASIDE_RECORDS = 10_000  # kept while a commit is under way; then the source waits
ASIDE_BYTES = 32 * 1024 * 1024  # of their values, likewise
LARGEST_RECORD = 64 * 1024 * 1024  # bytes; rows can be larger than the megabyte that Kafka takes by default
QUEUE_KILOBYTES = 65 * 1024  # more than the largest record, or it would wait for ever

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def transactional_id(name: str) -> str:
    """By which the newest worker of a source fences all older ones."""
    return f"headwater.connect.{name}"


class LogWriter:
    """The transactions of one source. After any failure it is of no more use: a new one takes over."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        topic_needs: Callable[[str], TopicNeeds],
        *,
        worker: str,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Takes the source over: an older worker can write no more. `worker` says who it is from now on."""
        self.connection, self.name, self.worker = connection, name, worker
        self._topic_needs = topic_needs
        self._admin = Admin(connection)
        self._partition = partition_of(name, prepare_positions(self._admin))
        self._known: set[str] = set()
        self._keyless: set[str] = set()  # topics of which it was seen to that they take records without a key
        self._pace = Pace()
        self._producer: Producer = open_client(Producer, connection.options(_DEFAULTS, self._forced()))
        self._call("open", lambda: self._producer.init_transactions(COMMIT_SECONDS))
        found = read_standing(connection, self._admin, name, give_up)
        # Said at once, so that one who is fenced can see whether somebody has taken over or only its time ran out.
        self.committed, self._next = found, replace(found, worker=worker, ts_ms=0)
        self.records = self.bytes = self.transactions = 0  # committed so far
        self.commit_seconds = 0.0  # of the last commit
        self._pending = self._pending_bytes = 0  # records of the open transaction
        self._is_open = False  # whether a transaction is
        self._urgent = True
        self._aside: list[tuple[Step, Mapping[str, int] | None]] = []
        self._aside_records = self._aside_bytes = 0
        self._commit_began: float | None = None
        self._ending = False
        self._failure: BaseException | None = None
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._commit_in_time, name=f"commit {name}", daemon=True)
        self._thread.start()

    def _forced(self) -> dict[str, Any]:
        return {
            "transactional.id": transactional_id(self.name),
            "enable.idempotence": True,
            "acks": "all",
            "transaction.timeout.ms": round(TRANSACTION_SECONDS * 1000),
            "message.timeout.ms": round(TRANSACTION_SECONDS * 1000),
            # Failed deliveries make the commit fail; nobody has to be told of each.
            "delivery.report.only.error": True,
        }

    # -- the source's thread -----------------------------------------------------------------------

    def put(self, step: Step, signals: Mapping[str, int] | None = None) -> None:
        """Takes a step; waits while too much is under way. `signals` are those that its position has taken."""
        with self._lock:
            while self._commit_began is not None and self._is_full_aside():
                self._check()
                self._lock.wait(0.5)
            self._check()
            if self._commit_began is not None:
                self._aside.append((step, signals))
                self._aside_records += len(step.records)
                self._aside_bytes += sum(len(value) for _, _, value, _ in step.records if value is not None)
            else:
                self._take(step, signals)
                self._lock.notify_all()

    def _is_full_aside(self) -> bool:
        return self._aside_records >= ASIDE_RECORDS or self._aside_bytes >= ASIDE_BYTES

    def finish(self) -> None:
        """Commits all that was taken, and ends."""
        with self._lock:
            self._ending = self._urgent = True
            self._lock.notify_all()
            while self._thread.is_alive():
                self._check()
                self._lock.wait(0.1)
            self._check()
        self._let_go()

    def abandon(self) -> None:
        """Ends without a commit."""
        with self._lock:
            self._failure = self._failure or TransactionAborted("write for", self.name, "it was abandoned")
            self._lock.notify_all()
        self._let_go()

    def _let_go(self) -> None:
        producers: list[Producer] = [self.__dict__.pop("_producer")] if "_producer" in self.__dict__ else []

        def close() -> None:
            try:
                if self._is_open:
                    # Else it stays open until somebody takes over or its time is up, and holds readers back.
                    producers[0].abort_transaction(COMMIT_SECONDS)
            except KafkaException:
                pass
            producers.clear()

        # It can take long, or for ever when a call hangs in the producer: not in this thread.
        if producers:
            threading.Thread(target=close, name=f"close {self.name}", daemon=True).start()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        # When a broker went away at the wrong moment, librdkafka's call may never return, whatever its time-out.
        began = self._commit_began
        if began is not None and time.monotonic() - began > COMMIT_SECONDS + HUNG_SECONDS:
            cause = "the producer does not answer any more; a new one has to take over"
            raise TransactionAborted("commit", self._subject, cause)

    # -- the transaction; the lock is held ---------------------------------------------------------

    def _take(self, step: Step, signals: Mapping[str, int] | None) -> None:
        records, position = step
        if records:
            self._produce(records)
        elif position == self._next.position and signals is None:
            return
        if signals is not None:
            self._urgent = True
        self._next = Standing(position, self._next.signals if signals is None else signals, self.worker)

    def _produce(self, records: Sequence[Record]) -> None:
        self._begin()
        known, produce, size = self._known, self._producer.produce, 0
        for topic, key, value, headers in records:
            if topic not in known:
                self._make(topic)
            if key is None and topic not in self._keyless:
                self._prepare_keyless(topic)
            while True:
                try:
                    if headers:
                        produce(topic, value, key, headers=list(headers))
                    else:
                        produce(topic, value, key)
                    break
                except BufferError:
                    self._make_room()
                except KafkaException as error:
                    self._explain(error, topic)
            if value is not None:
                size += len(value)
        self._producer.poll(0)
        self._pending += len(records)
        self._pending_bytes += size

    def _produce_position(self) -> None:
        value, key = self._next.encoded(), self.name.encode()
        while True:
            try:
                self._producer.produce(POSITIONS, value, key, partition=self._partition)
                return
            except BufferError:
                self._make_room()
            except KafkaException as error:
                self._explain(error, POSITIONS)

    def _explain(self, error: KafkaException, topic: str) -> NoReturn:
        if error.args[0].code() in (KafkaError._FATAL, KafkaError._STATE):
            # The producer has failed before, in the background; to abort tells why.
            self._call("write for", lambda: self._producer.abort_transaction(COMMIT_SECONDS))
            raise TransactionAborted("write for", self.name, "an earlier record was not taken") from error
        raise in_words(error, "write to", topic) from error

    def _make_room(self) -> None:
        deadline = time.monotonic() + COMMIT_SECONDS
        full = len(self._producer)
        while len(self._producer) >= full:
            self._producer.poll(0.01)
            if time.monotonic() > deadline:
                raise Unreachable("write for", self.name, "the broker takes no records", "It is tried again.")

    def _begin(self) -> None:
        if not self._is_open:
            self._call("begin", self._producer.begin_transaction)
            self._is_open = True

    def _make(self, topic: str) -> None:
        needs = self._topic_needs(topic)
        configs = {"max.message.bytes": str(LARGEST_RECORD), **needs.configs}
        self._admin.create_topic(topic, needs.partitions, configs=configs, exist_ok=True)
        self._known.add(topic)

    def _prepare_keyless(self, topic: str) -> None:
        """A table may lose its key. Its topic was made to be compacted then, and would take none of its records."""
        self._keyless.add(topic)
        wanted = self._topic_needs(topic).configs
        if "compact" in wanted.get("cleanup.policy", ""):
            return
        found = {each.name: each.value or "" for each in self._admin.configs(topic)}
        if "compact" in found.get("cleanup.policy", ""):
            self._admin.alter_configs(topic, wanted)
            time.sleep(_SETTLED_SECONDS)

    # -- the committing thread ---------------------------------------------------------------------

    def _commit_in_time(self) -> None:
        try:
            while self._await_due():
                self._commit()
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or error
                self._lock.notify_all()

    def _await_due(self) -> bool:
        """Waits until a commit is due and makes it ready; False when all is done."""
        with self._lock:
            while self._failure is None:
                if self._next is self.committed:
                    if self._ending:
                        return False
                    self._lock.wait()
                    continue
                wait = self._pace.wait(time.monotonic(), self._pending, self._urgent)
                if wait > 0:
                    self._lock.wait(wait)
                    continue
                self._begin()
                self._produce_position()
                self._commit_began = time.monotonic()
                return True
        return False

    def _commit(self) -> None:
        producer, standing, began = self._producer, self._next, self._commit_began or 0.0
        self._call("commit", lambda: producer.commit_transaction(COMMIT_SECONDS))
        with self._lock:
            if self._failure is not None:
                return
            ended = time.monotonic()
            self._pace.committed(began, ended, self._pending)
            self.committed, self._is_open, self._urgent = standing, False, self._ending
            self.records += self._pending
            self.bytes += self._pending_bytes
            self.transactions += 1
            self.commit_seconds = ended - began
            self._pending = self._pending_bytes = 0
            self._commit_began = None
            aside, self._aside = self._aside, []
            self._aside_records = self._aside_bytes = 0
            for step, signals in aside:
                self._take(step, signals)
            self._lock.notify_all()

    @property
    def _subject(self) -> str:
        return f"a transaction of {self.name}"

    def _call(self, operation: str, call: Callable[[], object]) -> None:
        deadline = time.monotonic() + COMMIT_SECONDS
        while True:
            try:
                call()
                return
            except KafkaException as error:
                fault = error.args[0]
                if fault.code() in _FENCED:
                    cause = "another worker has taken this source over"
                    raise StaleProducerEpoch(operation, self._subject, cause, _ONE_WORKER) from error
                told = in_words(fault, operation, self._subject)
                if isinstance(told, InvalidBatch | NotAllowed):
                    raise told from error  # to repeat it would change nothing
                if fault.txn_requires_abort():
                    raise TransactionAborted(operation, self._subject, told.cause) from error
                if not fault.retriable() or time.monotonic() > deadline:
                    raise told from error


_ONE_WORKER = "Run one worker a source; this one has stopped."
_DEFAULTS: dict[str, Any] = {
    "compression.type": "lz4",  # change events are much alike: less to send, to write and to read
    "partitioner": "murmur2_random",  # the Java client's, so that a key lands where others would put it
    "linger.ms": 5,  # a commit does not wait for it
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": QUEUE_KILOBYTES,
    "message.max.bytes": LARGEST_RECORD,
}
