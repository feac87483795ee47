"""Reading as a member of a consumer group, with commits that follow what the caller has finished."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.faults import in_words
from headwater.client.reader import Isolation, PartitionId, Stream

EMPTY_HANDED_SECONDS = 10.0


class GroupReader(Stream):
    """A member of a group: each record goes to one member, and is committed when the caller says ``done``.

    ``unread`` says where the group begins in partitions it never committed for. Delivery is at least once:
    after a crash the group gets again what was not yet committed.
    """

    def __init__(
        self,
        connection: Connection,
        group: str,
        topics: Sequence[str],
        *,
        unread: Literal["earliest", "latest"] = "latest",
        to_end: bool = False,
        isolation: Isolation = "read_committed",
        on_outage: Callable[[bool], None] | None = None,
        admin: Admin | None = None,
    ) -> None:
        admin = admin or Admin(connection)
        self.group = group
        topics = list(dict.fromkeys(topics))
        partitions = [(topic, number) for topic in topics for number in admin.partitions(topic)]
        self._ends: dict[PartitionId, int] = (
            admin.latest(partitions, committed=isolation == "read_committed") if to_end else {}
        )
        self._finished: set[PartitionId] = set()
        self._held: set[PartitionId] = set()
        self._done: dict[PartitionId, int] = {}  # the offset after what the caller has finished
        self._news = False  # something is done that no commit was sent for
        self._empty_since = time.monotonic()
        self._was_assigned = False
        options = {"group.id": group, "auto.offset.reset": unread}
        super().__init__(connection, options, isolation=isolation, to_end=to_end, on_outage=on_outage)
        self.consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )  # fmt: skip

    # -- commits -----------------------------------------------------------------------------------

    def done(self, records: Iterable[Message]) -> None:
        """The caller has finished with these records: the next commit covers them."""
        done, held = self._done, self._held
        for record in records:
            partition = (record.topic() or "", record.partition() or 0)
            if partition in held:
                done[partition] = (record.offset() or 0) + 1
                self._news = True

    def commit(self, *, wait: bool = False) -> None:
        """Commit what is done. Without ``wait`` a failure shows at the next commit that waits, at the latest
        in ``close``: commits carry the whole position, so that a later one makes up for it."""
        if not self._done or not (self._news or wait):
            return
        offsets = [TopicPartition(*partition, offset) for partition, offset in self._done.items()]
        self._news = False
        if not wait:
            self.consumer.commit(offsets=offsets, asynchronous=True)
            return
        try:
            results = self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise self._commit_failed(error.args[0]) from error
        for result in results:
            if result.error is not None:
                raise self._commit_failed(result.error)
        self._done.clear()

    def _commit_failed(self, error: KafkaError) -> Exception:
        step = "The group reads from its last commit again: expect repeated records."
        return in_words(error, "commit offsets of", f"group {self.group}", step)

    def close(self) -> None:
        """Commit what is done, and leave the group."""
        try:
            self.commit(wait=True)
        finally:
            self.consumer.close()

    # -- assignment --------------------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._was_assigned = True
        taken = {(partition.topic, partition.partition) for partition in partitions}
        self._held |= taken
        self._finished -= taken

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            self.commit(wait=True)
        except Exception:
            # The group has moved on without us; whoever has the partitions now reads from the last commit.
            pass
        self._drop(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop(partitions)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._held.discard((partition.topic, partition.partition))
            self._done.pop((partition.topic, partition.partition), None)
        self._empty_since = time.monotonic()

    # -- the end -----------------------------------------------------------------------------------

    def _is_finished(self) -> bool:
        if self._held:
            return self._held <= self._finished
        # Other members may hold everything there is.
        return self._was_assigned and time.monotonic() - self._empty_since > EMPTY_HANDED_SECONDS

    def _reached(self, topic: str, partition: int, offset: int) -> None:
        if offset >= self._ends.get((topic, partition), 0):
            self._finished.add((topic, partition))

    def _within_bounds(self, records: list[Message]) -> list[Message]:
        kept = []
        for record in records:
            partition = (record.topic() or "", record.partition() or 0)
            end = self._ends.get(partition, 0)
            offset = record.offset() or 0
            if offset < end:
                kept.append(record)
            if offset >= end - 1:
                self._finished.add(partition)
        return kept
