"""Settings of the broker: a few of its own, and Kafka's broker properties by their names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.errors import InvalidConfig
from headwater.log.config import BY_BROKER_NAME, Kind, Setting, broker_defaults

_COMPATIBILITY = "Accepted for compatibility; it changes nothing."

PROPERTIES: Mapping[str, Setting] = {
    name: Setting(name, kind, str(default), None, doc, low, high)
    for name, kind, default, doc, low, high in (
        ("auto.create.topics.enable", Kind.BOOLEAN, "true", "Make topics that clients name.", None, None),
        ("num.partitions", Kind.INT, 1, "Partitions of a topic that is made without a number.", 1, None),
        ("default.replication.factor", Kind.INT, 1, "One node holds everything.", 1, 1),
        ("delete.topic.enable", Kind.BOOLEAN, "true", "Whether topics can be deleted.", None, None),
        ("socket.request.max.bytes", Kind.INT, 100 << 20, "Larger requests end their connection.", 1, None),
        ("connections.max.idle.ms", Kind.LONG, 600_000, "Close connections silent this long.", 1, None),
        ("fetch.max.bytes", Kind.INT, 8 << 20, "The most that one fetch is answered with.", 1024, None),
        ("group.initial.rebalance.delay.ms", Kind.INT, 100, "Wait for more members of a new group.", 0, None),
        ("group.min.session.timeout.ms", Kind.INT, 6_000, "The shortest session a member may ask.", 1, None),
        ("group.max.session.timeout.ms", Kind.INT, 1_800_000, "The longest one.", 1, None),
        ("group.max.size", Kind.INT, 10_000, "Members of a classic group.", 1, None),
        ("group.consumer.session.timeout.ms", Kind.INT, 45_000, "Session of a KIP-848 member.", 1, None),
        ("group.consumer.heartbeat.interval.ms", Kind.INT, 5_000, "Its heartbeats.", 1, None),
        ("offsets.retention.minutes", Kind.INT, 10_080, "Forget offsets of groups idle this long.", 1, None),
        ("offset.metadata.max.bytes", Kind.INT, 4096, "The most metadata a commit may carry.", 0, None),
        ("offsets.topic.num.partitions", Kind.INT, 1, "Partitions of __consumer_offsets.", 1, 1),
        ("transaction.state.log.num.partitions", Kind.INT, 1, "Of __transaction_state.", 1, 1),
        ("transaction.max.timeout.ms", Kind.INT, 900_000, "The longest transaction.", 1, None),
        ("transactional.id.expiration.ms", Kind.INT, 604_800_000, "Forget idle transactional ids.", 1, None),
        ("producer.id.expiration.ms", Kind.INT, 86_400_000, "Forget idle idempotent producers.", 1, None),
        ("log.retention.check.interval.ms", Kind.LONG, 30_000, "How often retention looks.", 1, None),
        ("log.cleaner.backoff.ms", Kind.LONG, 15_000, "How often compaction looks.", 0, None),
        ("log.cleaner.enable", Kind.BOOLEAN, "true", "Whether compaction runs.", None, None),
        ("log.cleaner.threads", Kind.INT, 1, _COMPATIBILITY, 0, None),
        ("log.cleaner.dedupe.buffer.size", Kind.LONG, 128 << 20, _COMPATIBILITY, None, None),
        ("log.cleaner.io.buffer.size", Kind.INT, 512 << 10, _COMPATIBILITY, 0, None),
        ("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, "1.7976931348623157E308", _COMPATIBILITY, None, None),
        ("background.threads", Kind.INT, 10, _COMPATIBILITY, 1, None),
        ("num.io.threads", Kind.INT, 8, _COMPATIBILITY, 1, None),
        ("num.network.threads", Kind.INT, 3, _COMPATIBILITY, 1, None),
        ("num.recovery.threads.per.data.dir", Kind.INT, 2, _COMPATIBILITY, 1, None),
        ("num.replica.fetchers", Kind.INT, 1, _COMPATIBILITY, None, None),
    )
}  # fmt: skip

IN_LONGER_UNITS = frozenset({"log.retention.hours", "log.retention.minutes", "log.roll.hours"})


@dataclass(frozen=True)
class BrokerSettings:
    """How a broker runs.

    >>> settings = BrokerSettings(Path("data"), overrides={"num.partitions": "3"})
    >>> settings.integer("num.partitions"), settings.default_partitions
    (3, 3)
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 9092
    auto_create_topics: bool = True
    default_partitions: int = 1
    overrides: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, text in self.overrides.items():
            setting = PROPERTIES.get(name) or BY_BROKER_NAME.get(name)
            if setting is not None:
                setting.parse(text)
            elif name not in IN_LONGER_UNITS:
                raise InvalidConfig("set", name, "no broker property has this name")
        if "auto.create.topics.enable" in self.overrides:
            object.__setattr__(self, "auto_create_topics", self.boolean("auto.create.topics.enable"))
        if "num.partitions" in self.overrides:
            object.__setattr__(self, "default_partitions", self.integer("num.partitions"))

    def text(self, name: str) -> str:
        """The value in force of a broker property."""
        if name == "auto.create.topics.enable":
            return str(self.auto_create_topics).lower()
        if name == "num.partitions":
            return self.overrides.get(name, str(self.default_partitions))
        return self.overrides.get(name, PROPERTIES[name].default)

    def integer(self, name: str) -> int:
        return int(self.overrides.get(name, PROPERTIES[name].default))

    def boolean(self, name: str) -> bool:
        return self.overrides.get(name, PROPERTIES[name].default).strip().lower() == "true"

    def topic_defaults(self) -> dict[str, str]:
        """What the broker's properties say about topics."""
        return broker_defaults(self.overrides)


def written_address(host: str, port: int) -> str:
    """Host and port in one; the colons of an IPv6 address need brackets.

    >>> written_address("localhost", 9092), written_address("::1", 9092)
    ('localhost:9092', '[::1]:9092')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
