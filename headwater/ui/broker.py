"""What the log has: topics, partitions, offsets, sizes, and who reads them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.client.admin import Admin, ConfigSetting
from headwater.client.connection import Connection
from headwater.client.groups import Groups
from headwater.ui.histories import Rates
from headwater.ui.sizes import partition_sizes

SLOW_SECONDS = 10.0  # between two looks at what changes seldom: first offsets and sizes
LISTENER_SECONDS = 1.0


@dataclass(frozen=True)
class TopicFacts:
    """A topic. Offsets are by partition; a partition without a leader is not among them."""

    name: str
    partitions: int
    first: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    rate: float | None = None  # offsets a second
    sizes: Mapping[int, int] = field(default_factory=dict)  # bytes, where they are known
    internal: bool = False

    @property
    def records(self) -> int:
        """Offsets between the ends: records, where nothing was compacted away."""
        return sum(end - self.first.get(number, 0) for number, end in self.end.items())

    @property
    def size(self) -> int | None:
        """Bytes on disk."""
        return sum(self.sizes.values()) if self.sizes else None


@dataclass(frozen=True)
class BrokerFacts:
    """The log at one moment."""

    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    brokers: int = 0

    def end(self, topic: str, partition: int) -> int | None:
        """Where a partition ends."""
        known = self.topics.get(topic)
        return known.end.get(partition) if known is not None else None


@dataclass(frozen=True)
class ReaderFacts:
    """Who has read a topic how far: a consumer group, or an output of the application."""

    name: str
    kind: str  # "group" or "query"
    offsets: Mapping[int, int]
    state: str = ""

    def lag(self, topic: TopicFacts) -> int:
        """Offsets that it has yet to read.

        >>> ReaderFacts("a", "group", {0: 7}).lag(TopicFacts("t", 2, {0: 0, 1: 3}, {0: 10, 1: 5}))
        5
        """
        return sum(
            max(0, end - self.offsets.get(number, topic.first.get(number, 0)))
            for number, end in topic.end.items()
        )


class BrokerWatch:
    """Looks at a broker again and again; raises what keeps it from doing so."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._admin: Admin | None = None
        self._rates = Rates()
        self._first: dict[tuple[str, int], int] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self._slow_at = -SLOW_SECONDS

    def admin(self) -> Admin:
        """Opened when it is first needed."""
        self._admin = self._admin or Admin(self._connection)
        return self._admin

    def look(self) -> BrokerFacts:
        """All topics, with one request each for metadata and ends."""
        # Kafka's clients would wait for long, and then not say why.
        self._connection.require_listener(LISTENER_SECONDS)
        admin = self.admin()
        metadata = admin.client.list_topics(timeout=5.0)
        # Offsets of partitions that nobody leads cannot be asked for.
        places = [
            (name, number)
            for name, topic in metadata.topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader >= 0
        ]
        ends, now = admin.latest(places), time.time()
        self._look_slowly(
            admin, places, [(str(node.host), int(node.port)) for node in metadata.brokers.values()]
        )
        topics: dict[str, TopicFacts] = {}
        for name, topic in sorted(metadata.topics.items()):
            numbers = [number for number in sorted(topic.partitions) if (name, number) in ends]
            end = {number: ends[name, number] for number in numbers}
            topics[name] = TopicFacts(
                name=name,
                partitions=len(topic.partitions),
                first={number: self._first.get((name, number), 0) for number in numbers},
                end=end,
                rate=self._rates.take(name, now, sum(end.values())),
                sizes={n: self._sizes[name, n] for n in numbers if (name, n) in self._sizes},
                internal=name.startswith("__"),
            )
        return BrokerFacts(topics, len(metadata.brokers))

    def _look_slowly(
        self, admin: Admin, places: list[tuple[str, int]], brokers: list[tuple[str, int]]
    ) -> None:
        is_known = all(place in self._first for place in places)
        if is_known and time.monotonic() - self._slow_at < SLOW_SECONDS:
            return
        self._slow_at = time.monotonic()
        self._first = admin.earliest(places)
        self._sizes = partition_sizes(self._connection, brokers) or {}

    def configs(self, topic: str) -> list[ConfigSetting]:
        """All configurations of a topic."""
        return self.admin().configs(topic)

    def groups(self, topic: str) -> list[ReaderFacts]:
        """The consumer groups that have committed offsets of a topic."""
        groups = Groups(self.admin())
        found = []
        for summary in groups.summaries():
            offsets = {
                number: offset
                for (name, number), offset in groups.committed(summary.name).items()
                if name == topic
            }
            if offsets:
                found.append(ReaderFacts(summary.name, "group", offsets, summary.state))
        return found
