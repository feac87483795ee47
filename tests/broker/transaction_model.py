"""What transactions mean, in the simplest terms: lists of batches, each open, committed, aborted or plain.

The model is told what the broker acknowledged, and says what every kind of reader has to see.
"""

from dataclasses import dataclass, field
from enum import Enum

Partition = int
Identity = tuple[int, int]


class Fate(Enum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False)
class Transaction:
    """One transaction, from its first write to its end."""

    producer_id: int
    fate: Fate = Fate.OPEN
    partitions: set[Partition] = field(default_factory=set)  # that it has written to or named
    offsets: dict[str, "Position"] = field(default_factory=dict)  # by group


@dataclass(frozen=True)
class Position:
    """Where a group stands; of two, the one that was written later counts."""

    offset: int
    written: int


@dataclass
class Batch:
    """A batch that the broker has acknowledged."""

    offset: int
    values: list[str]
    transaction: Transaction | None = None

    @property
    def is_visible(self) -> bool:
        """Whether read_committed readers see it, once all before it has ended."""
        return self.transaction is None or self.transaction.fate is Fate.COMMITTED


class Model:
    """Partitions of one topic, and the offsets of groups in it."""

    def __init__(self, partitions: int) -> None:
        self.batches: list[list[Batch]] = [[] for _ in range(partitions)]
        self.positions: dict[str, Position] = {}
        self.transactions: list[Transaction] = []
        self._commits = 0

    def first_open(self, partition: Partition) -> int | None:
        """The first offset of a transaction that is open in the partition."""
        for batch in self.batches[partition]:
            if batch.transaction is not None and batch.transaction.fate is Fate.OPEN:
                return batch.offset
        return None

    def visible(self, partition: Partition, start: int) -> list[tuple[int, str]]:
        """Offsets and values that a read_committed reader sees from ``start`` on."""
        stable = self.first_open(partition)
        return [
            (batch.offset + number, value)
            for batch in self.batches[partition]
            if batch.is_visible and (stable is None or batch.offset < stable)
            for number, value in enumerate(batch.values)
            if batch.offset + number >= start
        ]

    def written(self, partition: Partition) -> list[tuple[int, str]]:
        """Offsets and values that a read_uncommitted reader sees."""
        return [
            (batch.offset + number, value)
            for batch in self.batches[partition]
            for number, value in enumerate(batch.values)
        ]

    def is_unstable(self, group: str) -> bool:
        """Whether an open transaction holds an offset of the group."""
        return any(t.fate is Fate.OPEN and group in t.offsets for t in self.transactions)

    def commit(self, group: str, offset: int, transaction: Transaction | None = None) -> None:
        """A group's offset was committed, in a transaction or beside all of them."""
        self._commits += 1
        position = Position(offset, self._commits)
        if transaction is None:
            self.positions[group] = position
        else:
            transaction.offsets[group] = position

    def end(self, transaction: Transaction, fate: Fate) -> None:
        """The transaction has ended, and its offsets count or not."""
        transaction.fate = fate
        if fate is not Fate.COMMITTED:
            return
        for group, position in transaction.offsets.items():
            known = self.positions.get(group)
            if known is None or known.written < position.written:
                self.positions[group] = position
