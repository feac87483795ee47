"""Writing in transactions: records and consumed positions become visible together, or not at all."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.client.connection import Connection
from headwater.client.faults import in_words
from headwater.client.writer import Compression, Writer
from headwater.errors import HeadwaterError, InvalidTransaction, StaleProducerEpoch, TransactionAborted

COORDINATOR_SECONDS = 30.0
OFFSETS_SECONDS = 5.0
HUNG_SECONDS = 3.0  # behind its time-out a call is given up
TRANSACTION_SECONDS = 60.0

T = TypeVar("T")

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class TransactionalWriter(Writer):
    """A writer with a ``transactional.id``: the newest of that id fences all older ones.

    Opening it ends what an earlier instance left open. ::

        with TransactionalWriter(connection, "orders-to-invoices-0") as writer:
            with writer.transaction():
                writer.write("invoices", invoice)
                writer.send_offsets(consumer, positions)

    When the block raises, the transaction is aborted and the exception goes on. When it cannot be committed,
    it is aborted and TransactionAborted is raised: the caller reads its input again and repeats it. When a
    newer instance has taken over, StaleProducerEpoch is raised, and this writer is of no more use.
    """

    def __init__(
        self,
        connection: Connection,
        transactional_id: str,
        *,
        compression: Compression = "none",
        transaction_seconds: float = TRANSACTION_SECONDS,
    ) -> None:
        self.transactional_id = transactional_id
        self._transaction_seconds = transaction_seconds
        self._is_open = False
        self._is_hung = False
        connection.require_listener()
        super().__init__(connection, compression=compression, delivery_seconds=transaction_seconds)
        self._persist("open", lambda: self.producer.init_transactions(COORDINATOR_SECONDS))

    def _forced_options(self) -> dict[str, Any]:
        return {
            **super()._forced_options(),
            "enable.idempotence": True,
            "acks": "all",
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": round(self._transaction_seconds * 1000),
        }

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to flush: every transaction has ended with its block."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction: committed when the block ends, aborted when it raises."""
        if self._is_open:
            raise InvalidTransaction("begin", self._subject, "one is open already", "End it first.")
        written_before, self.failed, self.first_failure = self.written, 0, None
        self._persist("begin", self.producer.begin_transaction)
        self._is_open = True
        try:
            yield
            self._commit()
        except BaseException as error:
            self.written = written_before
            if not isinstance(error, StaleProducerEpoch) and not self._is_hung:
                self._abort()
            raise
        finally:
            self._is_open = False

    def send_offsets(self, consumer: Consumer, positions: Sequence[TopicPartition]) -> None:
        """Commit a group's positions (the next offset to read, each) as part of the transaction."""
        metadata = consumer.consumer_group_metadata()

        def send() -> None:
            self.producer.send_offsets_to_transaction(list(positions), metadata, OFFSETS_SECONDS)

        # When a broker went away at the wrong moment, librdkafka's call never returns, whatever its time-out.
        operation = "add offsets to"
        if not self._persist(operation, lambda: finishes(send, OFFSETS_SECONDS + HUNG_SECONDS)):
            self._is_hung = True
            cause = "the producer does not answer any more; a new one has to take over"
            raise TransactionAborted(operation, self._subject, cause)

    @property
    def _subject(self) -> str:
        return f"transaction of {self.transactional_id}"

    def _commit(self) -> None:
        self._persist("commit", lambda: self.producer.commit_transaction(COORDINATOR_SECONDS))

    def _abort(self) -> None:
        """Abort. If it fails, nothing is lost: the coordinator aborts by itself at its time-out."""
        try:
            self._persist("abort", lambda: self.producer.abort_transaction(COORDINATOR_SECONDS))
        except HeadwaterError:
            pass

    def _persist(self, operation: str, call: Callable[[], T]) -> T:
        """Make a call, again while librdkafka says that it may be repeated."""
        while True:
            try:
                return call()
            except KafkaException as error:
                fault = error.args[0]
                if fault.code() in _FENCED:
                    cause = "a newer producer has taken its transactional.id over"
                    raise StaleProducerEpoch(operation, self._subject, cause) from error
                if fault.txn_requires_abort():
                    cause = in_words(fault, operation, self._subject).cause
                    raise TransactionAborted(operation, self._subject, cause) from error
                if not fault.retriable():
                    raise in_words(fault, operation, self._subject) from error


def finishes(call: Callable[[], object], seconds: float) -> bool:
    """Makes a call in a thread of its own; False, and the thread is left behind, when it takes longer.

    >>> finishes(lambda: None, 5.0), finishes(threading.Event().wait, 0.01)
    (True, False)
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="transaction", daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    return not thread.is_alive()
