"""Topics, their partitions, configurations and offsets, as plain dataclasses."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headwater.client.connection import Connection, open_client
from headwater.client.faults import did_you_mean, in_words
from headwater.errors import (
    BadInput,
    HeadwaterError,
    InvalidTopic,
    RequestFailed,
    TopicExists,
    UnknownTopic,
    Unreachable,
)

T = TypeVar("T")

REQUEST_SECONDS = 10.0
CONNECT_SECONDS = 5.0
PROPAGATION_SECONDS = 5.0
LEADER_SECONDS = 10.0  # a new or moved partition refuses until its leader has heard of it
RETRY_SECONDS = 0.05
NO_SUCH_TOPIC = "there is no such topic"


class TopicSummary(NamedTuple):
    name: str
    partitions: int
    internal: bool


@dataclass(frozen=True)
class Partition:
    """A partition and who keeps it. ``leader`` is None while no broker leads it."""

    number: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Topic:
    name: str
    id: str
    internal: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class ConfigSetting:
    """One configuration of a topic; ``source`` is "topic" (set on it), "broker" or "default"."""

    name: str
    value: str | None  # None when the broker keeps it to itself
    source: str

    @property
    def is_default(self) -> bool:
        return self.source == "default"


class Admin:
    """Questions to and changes of a cluster.

    Opening it connects: it raises Unreachable in a few seconds when no broker answers.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        connection.require_listener()
        self._last_error: KafkaError | None = None
        self.client: AdminClient = open_client(
            AdminClient, connection.options(forced={"error_cb": self._remember})
        )
        self._topics = self._metadata()

    def _remember(self, error: KafkaError) -> None:
        # "All brokers are down" says nothing that the error before it did not say better.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error

    def _metadata(self) -> list[TopicSummary]:
        try:
            found = self.client.list_topics(timeout=CONNECT_SECONDS).topics
        except KafkaException as error:
            self.client.poll(0)
            subject = f"a broker at {self.connection.bootstrap}"
            if self._last_error is not None:
                raise in_words(self._last_error, "speak to", subject, _CHECK_PROTOCOL) from error
            cause = "something listens there but does not answer as a Kafka broker"
            raise Unreachable("speak to", subject, cause, _CHECK_PROTOCOL) from error
        return sorted(
            TopicSummary(name, len(topic.partitions), name.startswith("__")) for name, topic in found.items()
        )

    # -- topics ------------------------------------------------------------------------------------

    def topics(self, *, internal: bool = False) -> list[TopicSummary]:
        """All topics by name; those that Kafka keeps for itself (``__...``) only when asked for."""
        self._topics = self._metadata()
        return [topic for topic in self._topics if internal or not topic.internal]

    def topic(self, name: str, operation: str = "describe") -> Topic:
        """One topic; UnknownTopic names those that look like it."""
        if not name:
            raise InvalidTopic(operation, "a topic", "its name is empty")
        future = self._one(
            self._submit(operation, name, lambda: self.client.describe_topics(TopicCollection([name])))
        )
        found = self._result(future, operation, name)
        return Topic(
            name=found.name,
            id=str(found.topic_id),
            internal=bool(found.is_internal),
            partitions=tuple(
                Partition(
                    number=partition.id,
                    leader=partition.leader.id if partition.leader is not None else None,
                    replicas=tuple(node.id for node in partition.replicas),
                    in_sync=tuple(node.id for node in partition.isr),
                )
                for partition in sorted(found.partitions, key=lambda partition: int(partition.id))
            ),
        )

    def partitions(self, name: str, operation: str = "read") -> list[int]:
        """The partition numbers of a topic."""
        return [partition.number for partition in self.topic(name, operation).partitions]

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Create a topic; None leaves a number to the broker. False when it was there and ``exist_ok``."""
        if not name:
            raise InvalidTopic("create", "a topic", "its name is empty")
        new = NewTopic(name, partitions or -1, replication or -1, config=dict(configs or {}))
        future = self._one(self._submit("create", name, lambda: self.client.create_topics([new])))
        try:
            self._result(future, "create", name)
        except TopicExists:
            if exist_ok:
                return False
            raise
        self._await_partitions(name, lambda count: count > 0)
        return True

    def delete_topic(self, name: str) -> None:
        future = self._one(self._submit("delete", name, lambda: self.client.delete_topics([name])))
        self._result(future, "delete", name)
        self._await_partitions(name, lambda count: count == 0)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic ``total`` partitions; there must have been fewer."""
        more = [NewPartitions(name, total)]
        future = self._one(self._submit("alter", name, lambda: self.client.create_partitions(more)))
        self._result(future, "alter", name)
        self._await_partitions(name, lambda count: count >= total)

    def _await_partitions(self, name: str, arrived: Callable[[int], bool]) -> None:
        """A broker of a cluster hears of a change a moment after the controller has agreed to it.

        Without this wait, what comes next could find the topic as it was before.
        """
        deadline = time.monotonic() + PROPAGATION_SECONDS
        while time.monotonic() < deadline:
            try:
                topic = self.topic(name)
                count = (
                    len(topic.partitions) if all(part.leader is not None for part in topic.partitions) else 0
                )
            except UnknownTopic:
                count = 0
            if arrived(count):
                return
            time.sleep(0.02)

    # -- configurations ----------------------------------------------------------------------------

    def configs(self, name: str) -> list[ConfigSetting]:
        """All configurations of a topic, by name."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        future = self._one(self._submit("describe", name, lambda: self.client.describe_configs([resource])))
        entries: dict[str, ConfigEntry] = self._result(future, "describe", name)
        return [
            ConfigSetting(entry.name, entry.value, _source(entry))
            for entry in sorted(entries.values(), key=lambda entry: entry.name)
        ]

    def alter_configs(
        self, name: str, set_to: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        """Set configurations of a topic and put others back to their default; all or none of it."""
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in (set_to or {}).items()
        ]
        changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        future = self._one(
            self._submit("alter", name, lambda: self.client.incremental_alter_configs([resource]))
        )
        self._result(future, "alter", name)

    # -- offsets -----------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The first offset of each partition."""
        return self._offsets(partitions, _EARLIEST, committed=False)

    def latest(
        self, partitions: Iterable[tuple[str, int]], *, committed: bool = False
    ) -> dict[tuple[str, int], int]:
        """The offset after the last record of each partition; with ``committed`` the last stable offset."""
        return self._offsets(partitions, _LATEST, committed=committed)

    def at_time(
        self, partitions: Iterable[tuple[str, int]], milliseconds: int
    ) -> dict[tuple[str, int], int | None]:
        """The first offset with this or a later timestamp; None when there is none."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(milliseconds), committed=False)
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def _offsets(
        self, partitions: Iterable[tuple[str, int]], spec: OffsetSpec, *, committed: bool
    ) -> dict[tuple[str, int], int]:
        wanted = {TopicPartition(topic, number): spec for topic, number in partitions}
        if not wanted:
            return {}
        found: dict[tuple[str, int], int] = {}
        deadline = time.monotonic() + LEADER_SECONDS
        while wanted:
            may_retry = time.monotonic() < deadline
            found |= self._ask_offsets(wanted, committed, may_retry)
            wanted = {
                partition: spec
                for partition, spec in wanted.items()
                if (partition.topic, partition.partition) not in found
            }
            if wanted:
                time.sleep(RETRY_SECONDS)
        return found

    def _ask_offsets(
        self, wanted: dict[TopicPartition, OffsetSpec], committed: bool, may_retry: bool
    ) -> dict[tuple[str, int], int]:
        """The offsets; without those of partitions that have no leader just now, when they may be asked for again."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self._submit(
            "read the offsets of",
            ", ".join(sorted({partition.topic for partition in wanted})),
            lambda: self.client.list_offsets(
                wanted, isolation_level=isolation, request_timeout=REQUEST_SECONDS
            ),
        )
        found: dict[tuple[str, int], int] = {}
        for partition, future in futures.items():
            place = (partition.topic, partition.partition)
            try:
                found[place] = self._result(future, "read the offsets of", f"{place[0]}-{place[1]}").offset
            except UnknownTopic as error:
                cause = "there is no such topic or partition"
                raise UnknownTopic(
                    error.operation, error.subject, cause, "See `headwater topics list`."
                ) from error
            except RequestFailed as error:
                if not (may_retry and _has_no_leader(error)):
                    raise
        return found

    # -- futures -----------------------------------------------------------------------------------

    def _submit(self, operation: str, subject: str, call: Any) -> Any:
        """What an admin call returns; confluent-kafka refuses some arguments before it sends them."""
        try:
            return call()
        except KafkaException as error:
            raise self._explain(error, operation, subject) from error
        except (ValueError, TypeError) as error:
            raise BadInput(operation, subject, str(error)) from error

    @staticmethod
    def _one(futures: "Mapping[Any, Future[T]]") -> "Future[T]":
        (future,) = futures.values()
        return future

    def _result(self, future: "Future[T]", operation: str, subject: str) -> T:
        try:
            return future.result(timeout=REQUEST_SECONDS * 6)
        except KafkaException as error:
            raise self._explain(error, operation, subject) from error
        except TimeoutError as error:
            raise Unreachable(operation, subject, "no answer in time") from error

    def _explain(self, error: KafkaException, operation: str, subject: str) -> HeadwaterError:
        fault = in_words(error, operation, subject)
        return self.unknown_topic(operation, subject) if isinstance(fault, UnknownTopic) else fault

    def unknown_topic(self, operation: str, name: str) -> UnknownTopic:
        """The error for a topic that is not there; it names the topics that look like it."""
        known = [topic.name for topic in self._topics if not topic.internal]
        step = did_you_mean(name, known, f"Create it: headwater topics create {name}.")
        return UnknownTopic(operation, name, NO_SUCH_TOPIC, step)


_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_CHECK_PROTOCOL = "Check the address, and security.protocol among the client properties."


_NO_LEADER = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)


def _has_no_leader(error: RequestFailed) -> bool:
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() in _NO_LEADER


def _source(entry: ConfigEntry) -> str:
    # confluent-kafka hands the source on as librdkafka's number.
    source = ConfigSource(entry.source) if isinstance(entry.source, int) else entry.source
    if source is ConfigSource.DYNAMIC_TOPIC_CONFIG:
        return "topic"
    return "default" if source is ConfigSource.DEFAULT_CONFIG or entry.is_default else "broker"


def both_ends(
    admin: Admin, partitions: Sequence[tuple[str, int]], *, committed: bool = False
) -> dict[tuple[str, int], tuple[int, int]]:
    """The first offset of each partition, and the one after its last record."""
    first, last = admin.earliest(partitions), admin.latest(partitions, committed=committed)
    return {partition: (first[partition], last[partition]) for partition in partitions}
