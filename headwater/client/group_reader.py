"""Reading as a member of a consumer group, with commits that follow what the caller has finished."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.faults import in_words
from headwater.client.groups import require_name
from headwater.client.reader import Isolation, PartitionId, Stream
from headwater.errors import Unreachable

EMPTY_HANDED_SECONDS = 10.0
REPEATED = "The group reads from its last commit again: expect repeated records."


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
        require_name(group, "read as a member of")
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
        self._sent: dict[PartitionId, int] = {}  # what the last commit of each partition said
        self._confirmed: dict[PartitionId, int] = {}  # what the coordinator has agreed to
        self._empty_since = time.monotonic()
        self._was_assigned = False
        options = {"group.id": group, "auto.offset.reset": unread, "on_commit": self._committed}
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

    def commit(self, *, wait: bool = False) -> None:
        """Commit what is done. Without ``wait`` a failure shows at the latest in ``close``, which commits
        again what was not confirmed: a commit is the whole position, so that a later one makes up for it."""
        known = self._confirmed if wait else self._sent
        news = {place: offset for place, offset in self._done.items() if known.get(place) != offset}
        if not news:
            return
        offsets = [TopicPartition(*partition, offset) for partition, offset in news.items()]
        self._sent |= news
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
        self._confirmed |= news

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            if error is None and partition.error is None:
                self._confirmed[partition.topic, partition.partition] = partition.offset

    def _commit_failed(self, error: KafkaError) -> Exception:
        return in_words(error, "commit offsets of", f"group {self.group}", REPEATED)

    def close(self) -> None:
        """Commit what is done, and leave the group. When no broker answers, neither is waited for."""
        try:
            self.connection.require_listener(1.0)
        except Unreachable as error:
            # Closing waits for commits that are under way, for most of a minute: so it has to do that alone.
            threading.Thread(target=self._close_quietly, daemon=True).start()
            if any(self._confirmed.get(place) != offset for place, offset in self._done.items()):
                subject = f"group {self.group}"
                raise Unreachable("commit offsets of", subject, error.cause, REPEATED) from error
            return
        try:
            self.commit(wait=True)
        finally:
            self.consumer.close()

    def _close_quietly(self) -> None:
        try:
            self.consumer.close()
        except Exception:
            pass  # there is nobody left to tell

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
            for offsets in (self._done, self._sent, self._confirmed):
                offsets.pop((partition.topic, partition.partition), None)
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
