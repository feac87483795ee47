"""The broker: the data directory, the coordinators, and what the handlers of all connections share."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.broker.fetch_sessions import Sessions
from headwater.broker.frames import FramePool
from headwater.broker.groups.coordinator import GroupCoordinator
from headwater.broker.groups.settings import GroupSettings
from headwater.broker.housekeeping import Housekeeping
from headwater.broker.journal import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Entry, Journal
from headwater.broker.live_settings import LiveSettings, Refused
from headwater.broker.metadata_cache import ResponseCache
from headwater.broker.settings import BrokerSettings, written_address
from headwater.broker.transactions.coordinator import TransactionCoordinator
from headwater.errors import HeadwaterError, InvalidConfig
from headwater.log.commit import GroupCommit
from headwater.log.directory import DataDirectory
from headwater.log.files import raise_open_file_limit
from headwater.log.identity import refuse_strange
from headwater.log.partition import PartitionLog
from headwater.log.topic import Topic

if TYPE_CHECKING:
    from headwater.broker.connection import Connection
    from headwater.broker.fetch import Fetch

logger = logging.getLogger("headwater.broker")

T = TypeVar("T")

SPARE_FILES = 64  # descriptors for what is open for a moment only, and for the listening socket
TURNED_AWAY_SECONDS = 10.0  # between two lines of the log about refused connections


class Broker:
    """Everything a handler can reach."""

    def __init__(self, settings: BrokerSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.loop = loop
        self.host = settings.host
        self.port = settings.port
        self.largest_request = settings.integer("socket.request.max.bytes")
        self.largest_fetch = settings.integer("fetch.max.bytes")
        self.stopping = False
        self.connections: set[Connection] = set()
        self.requests: set[asyncio.Task[None]] = set()  # under way, those of closed connections among them
        self.fetch_sessions = Sessions()
        self.frames = FramePool()
        self.readers = ThreadPoolExecutor(4, "headwater-read")
        self._catalog_thread = ThreadPoolExecutor(1, "headwater-catalog")
        self._waiting_fetches: dict[PartitionLog, set[Fetch]] = {}
        limit = raise_open_file_limit()
        open_files = max(64, limit // 2)
        self.most_connections = max(16, limit - open_files - SPARE_FILES)
        self._turned_away = 0
        self._next_word_of_it = 0.0
        refuse_strange(settings.data)
        self.live = LiveSettings(settings, settings.data / "broker.json")
        self.directory = DataDirectory(
            settings.data, self.live.topic_defaults(), open_files, when_durable=self._on_durable
        )
        self.metadata_cache = ResponseCache()
        self.generation = 0  # of the catalog: rises with every change of topics
        self.commit = GroupCommit(post=loop.call_soon_threadsafe, soon=loop.call_soon)
        self._transactions_journal = Journal(self, TRANSACTIONS_TOPIC)
        self.transactions = TransactionCoordinator(self, self._transactions_journal)
        self._offsets_journal = Journal(self, OFFSETS_TOPIC)
        self.groups = GroupCoordinator(
            _GroupJournal(self._offsets_journal),
            BrokerTopics(self.directory),
            group_settings(settings),
            own_settings=self.directory.path / "groups.json",
        )
        self.housekeeping = Housekeeping(self)

    @property
    def address(self) -> str:
        """Where clients find it, as people write it."""
        return written_address(self.host, self.port)

    async def start(self) -> None:
        """Read the coordinators' journals and begin to keep house."""
        for journal in (self._offsets_journal, self._transactions_journal):
            journal.settle()
        for item in self._offsets_journal.read():
            if isinstance(item, Entry):
                self.groups.replay(item.key, item.value, item.producer)
            else:
                self.groups.replay_marker(item.producer_id, item.committed)
        self.groups.start()
        await self.transactions.start()
        self.housekeeping.start()

    async def stop(self) -> None:
        """Let requests under way finish, then close the log."""
        self.stopping = True
        for fetches in list(self._waiting_fetches.values()):
            for fetch in list(fetches):
                fetch.try_now()
        for connection in list(self.connections):
            connection.drain()
        self.groups.release()
        await self._wait_until_drained(seconds=5.0)
        await self.housekeeping.stop()
        await self.groups.stop()
        await self.transactions.stop()
        self.readers.shutdown()
        self._catalog_thread.shutdown()
        self.commit.close()
        self.directory.close()

    async def _wait_until_drained(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(0.005)
        for connection in list(self.connections):
            connection.close()
        if self.requests:
            await asyncio.wait(self.requests, timeout=max(end - self.loop.time(), 0.1))
        for request in list(self.requests):
            request.cancel()
        await asyncio.gather(*self.requests, return_exceptions=True)

    def turn_away(self, host: str) -> None:
        """Note a connection that is refused: were all descriptors those of connections, there would be none
        left for the files of the log."""
        self._turned_away += 1
        if self.loop.time() >= self._next_word_of_it:
            self._next_word_of_it = self.loop.time() + TURNED_AWAY_SECONDS
            logger.warning(
                "refused %d connections, the last from %s: %d are open, as many as the limit of open files allows"
                " (ulimit -n)",
                self._turned_away, host, len(self.connections),
            )  # fmt: skip
            self._turned_away = 0

    # -- topics -----------------------------------------------------------------------------------

    def find_topic(self, topic: str | uuid.UUID) -> Topic | None:
        if isinstance(topic, uuid.UUID):
            return self.directory.topic_by_id(topic)
        return self.directory.topics.get(topic)

    def find_log(self, topic: str | uuid.UUID, partition: int) -> PartitionLog | None:
        """The partition's log, or None."""
        found = self.find_topic(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def is_internal(self, topic: str) -> bool:
        return topic in INTERNAL_TOPICS

    async def change_catalog(self, change: Callable[..., T], *arguments: Any) -> T:
        """Run a change of topics where its syncs hold up nobody; one after another."""
        try:
            return await self.loop.run_in_executor(self._catalog_thread, change, *arguments)
        finally:
            self.generation += 1
            self.groups.topics_changed()

    async def create_topic(self, name: str, partitions: int, overrides: dict[str, str]) -> Topic:
        return await self.change_catalog(self.directory.create_topic, name, partitions, overrides)

    async def delete_topic(self, name: str) -> None:
        """Delete the topic, the offsets that groups have in it, and its files."""
        topic = self.directory.topic(name)
        paths = await self.change_catalog(self.directory.delete_topic, name)
        self.loop.run_in_executor(self._catalog_thread, self.directory.remove, paths)
        for log in topic.partitions:
            for fetch in list(self._waiting_fetches.get(log, ())):
                fetch.try_now()
        await self.groups.topic_deleted(name)

    def check_settings(self, whose: str, changed: Mapping[str, str]) -> None:
        """Raise Refused for settings that ``change_settings`` would not take."""
        self.live.check(changed)
        try:
            self.directory.check_defaults(self.live.topic_defaults(whose, changed))
        except InvalidConfig as error:
            raise Refused("set", error.subject, error.cause) from None

    def change_settings(self, whose: str, changed: Mapping[str, str]) -> None:
        """Set these and no others for this broker, or for all; durable, then in force. Part of the catalog:
        one change after another."""
        self.check_settings(whose, changed)
        self.live.replace(whose, changed)
        self.directory.take_defaults(self.live.topic_defaults())

    async def save_checkpoint(self) -> None:
        """Make where partitions start, and how far they are compacted, durable."""
        await self.loop.run_in_executor(self._catalog_thread, self.directory.checkpoint)

    # -- durability and waiting -------------------------------------------------------------------

    def durable(self, log: PartitionLog) -> "asyncio.Future[None]":
        """A future that is done when all that is written to ``log`` now is on disk."""
        future: asyncio.Future[None] = self.loop.create_future()

        def done(error: HeadwaterError | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.commit.add(log, done)
        return future

    def _on_durable(self, log: PartitionLog, new_bytes: int) -> None:
        waiting = self._waiting_fetches.get(log)
        if waiting:
            for fetch in tuple(waiting):
                fetch.wake(new_bytes)

    def wait_for(self, log: PartitionLog, fetch: "Fetch") -> None:
        self._waiting_fetches.setdefault(log, set()).add(fetch)

    def stop_waiting_for(self, log: PartitionLog, fetch: "Fetch") -> None:
        waiting = self._waiting_fetches.get(log)
        if waiting is not None:
            waiting.discard(fetch)
            if not waiting:
                del self._waiting_fetches[log]


class _GroupJournal:
    """The journal of groups, all of which live in its one partition."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def append(
        self,
        group_id: str,
        records: Iterable[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None = None,
    ) -> None:
        await self._journal.append(list(records), producer)


class BrokerTopics:
    """The topics, as the group coordinator sees them."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory

    def names(self) -> Iterable[str]:
        return list(self._directory.topics)

    def partition_count(self, topic: str) -> int | None:
        found = self._directory.topics.get(topic)
        return len(found.partitions) if found is not None else None

    def topic_id(self, topic: str) -> uuid.UUID | None:
        found = self._directory.topics.get(topic)
        return found.topic_id if found is not None else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        found = self._directory.topic_by_id(topic_id)
        return found.name if found is not None else None

    def is_internal(self, topic: str) -> bool:
        return topic in INTERNAL_TOPICS


def group_settings(settings: BrokerSettings) -> GroupSettings:
    """The group coordinator's part of the broker's settings."""
    return GroupSettings(
        initial_rebalance_delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=settings.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=settings.integer("group.max.session.timeout.ms"),
        max_size=settings.integer("group.max.size"),
        consumer_session_timeout_ms=settings.integer("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=settings.integer("group.consumer.heartbeat.interval.ms"),
        offsets_retention_ms=settings.integer("offsets.retention.minutes") * 60_000,
        offset_metadata_max_bytes=settings.integer("offset.metadata.max.bytes"),
    )
