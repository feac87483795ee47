"""Writing numbered batches to topics, each of them once: the batch and its number are committed together.

A writer has a name and a place (a query and one of its tasks). Its mark, the number of the next batch, is the
committed offset of the group ``headwater.<name>`` for the partition `place` of the topic MARKS, with the
number of places as its metadata. It is committed in the transaction that carries the batch, and it is read
back after the transactional.id has been taken over, when nobody else can move it any more: a batch that comes
again finds its mark and is not written.

It rests on a batch that comes again having the same records in each place. That is checked as far as it can
be: a batch that comes again spread over another number of places is refused.
"""

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection, open_client
from headwater.client.positions import read_positions
from headwater.client.transactions import TransactionalWriter
from headwater.errors import InvalidTransaction, StaleProducerEpoch, TransactionAborted

MARKS = "headwater.marks"
PLACES = 16  # partitions of MARKS to begin with
_ATTEMPTS = 3


def prepare_marks(connection: Connection, places: int = PLACES) -> None:
    """Makes the topic MARKS, with a partition for every place."""
    admin = Admin(connection)
    made = admin.create_topic(
        MARKS, max(places, PLACES), configs={"cleanup.policy": "compact"}, exist_ok=True
    )
    if not made and len(admin.partitions(MARKS)) < places:
        admin.add_partitions(MARKS, places)


class MarkedWriter:
    """A writer of numbered batches in one place. `producing` are properties of its producer alone."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        place: int = 0,
        places: int = 1,
        *,
        producing: Mapping[str, str] | None = None,
    ) -> None:
        self._producing = Connection(connection.bootstrap, {**(producing or {}), **connection.properties})
        self.connection, self.name, self.place, self.places = connection, name, place, places
        self._consumer: Consumer = open_client(
            Consumer,
            connection.options(forced={"group.id": f"headwater.{name}", "enable.auto.commit": False}),
        )
        self._writer: TransactionalWriter | None = None
        self._next = 0  # of the mark: batches before it are written
        self._places_then = places

    def close(self) -> None:
        """Lets go of the connections. A transaction that is open is aborted by the coordinator."""
        self._consumer.close()
        self._writer = None

    def position(self) -> int:
        """The number of the next batch that would be written."""
        self._take_over()
        return self._next

    def write(self, batch: int, fill: Callable[[TransactionalWriter], None]) -> bool:
        """Writes what `fill` writes, and the mark, in one transaction; False when it was written before."""
        for attempt in range(_ATTEMPTS):
            writer = self._take_over()
            if batch < self._next:
                self._refuse_other_spread(batch)
                return False
            try:
                with writer.transaction():
                    fill(writer)
                    mark = TopicPartition(MARKS, self.place, batch + 1, str(self.places))
                    writer.send_offsets(self._consumer, [mark])
            except BaseException as error:
                # Somebody else took the place over for a while, or the broker aborted: whether the batch was
                # written is in the mark. After any other failure the producer may be of no more use.
                self._writer = None
                passes = isinstance(error, StaleProducerEpoch | TransactionAborted)
                if not passes or attempt == _ATTEMPTS - 1:
                    raise
                continue
            self._next, self._places_then = batch + 1, self.places
            return True
        raise AssertionError("unreachable")

    def _take_over(self) -> TransactionalWriter:
        if self._writer is None:
            writer = TransactionalWriter(self._producing, f"headwater.{self.name}.{self.place}")
            self._next, self._places_then = self._mark()
            self._writer = writer
        return self._writer

    def _mark(self) -> tuple[int, int]:
        partition = TopicPartition(MARKS, self.place)
        (found,) = read_positions(self._consumer, [partition], f"{self.name}, place {self.place}")
        metadata = found.metadata or ""
        places = int(metadata) if metadata.isdigit() else self.places
        return max(found.offset, 0), places

    def _refuse_other_spread(self, batch: int) -> None:
        if batch == self._next - 1 and self._places_then != self.places:
            raise InvalidTransaction(
                "repeat",
                f"batch {batch} of {self.name}",
                f"it was written from {self._places_then} tasks, and comes again from {self.places}",
                "Run it once with as many shuffle partitions as before, then change them.",
            )
