"""Settings of topics: Kafka's names, types, defaults and ranges, and what they mean to the log.

A topic keeps only what was set for it; the rest comes from the broker's settings (under the broker's name for
the same thing, such as ``log.retention.ms``) and then from the defaults here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import isnan
from typing import Any

from headwater.errors import InvalidConfig

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class Kind(Enum):
    """The type of a setting, with the number by which DescribeConfigs names it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Setting:
    """One topic setting."""

    name: str
    kind: Kind
    default: str
    broker_name: str | None
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> Any:
        """The value of ``text``, or InvalidConfig."""
        try:
            value = self._parse(text.strip())
        except ValueError:
            raise self.invalid(text, f"not a {self.kind.name.lower()}") from None
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            raise self.invalid(text, f"outside of [{_bound(self.low)}, {_bound(self.high)}]")
        if self.choices:
            for item in value if isinstance(value, tuple) else (value,):
                if item not in self.choices:
                    raise self.invalid(text, f"not one of {', '.join(self.choices)}")
        return value

    def _parse(self, text: str) -> Any:
        match self.kind:
            case Kind.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise ValueError(text)
                return text.lower() == "true"
            case Kind.INT | Kind.LONG | Kind.DOUBLE if "_" in text:  # which Python takes, and Kafka does not
                raise ValueError(text)
            case Kind.INT | Kind.LONG:
                value = int(text)
                largest = INT_MAX if self.kind is Kind.INT else LONG_MAX
                if not -largest - 1 <= value <= largest:
                    raise ValueError(text)
                return value
            case Kind.DOUBLE:
                number = float(text)
                if isnan(number):  # which no range leaves out
                    raise ValueError(text)
                return number
            case Kind.LIST:
                return tuple(part.strip() for part in text.split(",") if part.strip())
            case Kind.STRING:
                return text

    def invalid(self, text: str, why: str) -> InvalidConfig:
        return InvalidConfig("set", self.name, f"{text!r} is {why}")


def _bound(value: float | None) -> str:
    return "..." if value is None else f"{value:g}"


def _setting(
    name: str,
    kind: Kind,
    default: object,
    doc: str,
    *,
    broker: str | None = None,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Setting:
    return Setting(name, kind, str(default), broker, doc, low, high, choices)


TIERED = "remote.storage.enable"
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        _setting(
            "cleanup.policy", Kind.LIST, "delete", "Delete old segments, compact by key, or both.",
            broker="log.cleanup.policy", choices=("compact", "delete"),
        ),
        _setting(
            "retention.ms", Kind.LONG, 604_800_000, "Delete segments whose records are older; -1 keeps them.",
            broker="log.retention.ms", low=-1,
        ),
        _setting(
            "retention.bytes", Kind.LONG, -1, "Delete the oldest segments of a partition above this size.",
            broker="log.retention.bytes",
        ),
        _setting(
            "segment.bytes", Kind.INT, 1 << 30, "Start a new segment at this size.",
            broker="log.segment.bytes", low=14,
        ),
        _setting(
            "segment.ms", Kind.LONG, 604_800_000, "Start a new segment when the first record is this old.",
            broker="log.roll.ms", low=1,
        ),
        _setting(
            "segment.jitter.ms", Kind.LONG, 0, "Accepted for compatibility; segments roll without jitter.",
            broker="log.roll.jitter.ms", low=0,
        ),
        _setting(
            "segment.index.bytes", Kind.INT, 10 << 20, "Start a new segment when an index is this large.",
            broker="log.index.size.max.bytes", low=4,
        ),
        _setting(
            "index.interval.bytes", Kind.INT, 4096, "Accepted for compatibility; an entry every 4096 bytes.",
            broker="log.index.interval.bytes", low=0,
        ),
        _setting(
            "max.message.bytes", Kind.INT, 1_048_588, "The largest batch that is accepted.",
            broker="message.max.bytes", low=0,
        ),
        _setting(
            "min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5, "Compact when this part of the log is dirty.",
            broker="log.cleaner.min.cleanable.ratio", low=0, high=1,
        ),
        _setting(
            "delete.retention.ms", Kind.LONG, 86_400_000, "How long tombstones stay after a cleaning.",
            broker="log.cleaner.delete.retention.ms", low=0,
        ),
        _setting(
            "min.compaction.lag.ms", Kind.LONG, 0, "Records younger than this are not compacted.",
            broker="log.cleaner.min.compaction.lag.ms", low=0,
        ),
        _setting(
            "max.compaction.lag.ms", Kind.LONG, LONG_MAX, "Compact at the latest after this time.",
            broker="log.cleaner.max.compaction.lag.ms", low=1,
        ),
        _setting(
            "message.timestamp.type", Kind.STRING, "CreateTime", "Whose clock stamps the records.",
            broker="log.message.timestamp.type", choices=("CreateTime", "LogAppendTime"),
        ),
        _setting(
            "message.timestamp.before.max.ms", Kind.LONG, LONG_MAX, "Refuse records older than this.",
            broker="log.message.timestamp.before.max.ms", low=0,
        ),
        _setting(
            "message.timestamp.after.max.ms", Kind.LONG, 3_600_000, "Refuse records further in the future.",
            broker="log.message.timestamp.after.max.ms", low=0,
        ),
        _setting(
            "compression.type", Kind.STRING, "producer", "The codec on disk; 'producer' keeps what came.",
            broker="compression.type", choices=_CODECS,
        ),
        _setting(
            "compression.gzip.level", Kind.INT, -1, "The level where the broker compresses with gzip.",
            broker="compression.gzip.level", low=-1, high=9,
        ),
        _setting(
            "compression.lz4.level", Kind.INT, 9, "The level where the broker compresses with lz4.",
            broker="compression.lz4.level", low=1, high=17,
        ),
        _setting(
            "compression.zstd.level", Kind.INT, 3, "The level where the broker compresses with zstd.",
            broker="compression.zstd.level", low=-131072, high=22,
        ),
        _setting(
            "min.insync.replicas", Kind.INT, 1, "One node: acks=all means written and synced to disk.",
            broker="min.insync.replicas", low=1,
        ),
        _setting(
            "file.delete.delay.ms", Kind.LONG, 60_000, "Accepted for compatibility; readers keep files.",
            broker="log.segment.delete.delay.ms", low=0,
        ),
        _setting(
            "flush.messages", Kind.LONG, LONG_MAX, "Accepted for compatibility; every append is synced.",
            broker="log.flush.interval.messages", low=1,
        ),
        _setting(
            "flush.ms", Kind.LONG, LONG_MAX, "Accepted for compatibility; every append is synced.",
            broker="log.flush.interval.ms", low=0,
        ),
        _setting(
            "preallocate", Kind.BOOLEAN, "false", "Accepted for compatibility; files grow as written.",
            broker="log.preallocate",
        ),
        _setting(
            "unclean.leader.election.enable", Kind.BOOLEAN, "false", "Accepted for compatibility; one node.",
            broker="unclean.leader.election.enable",
        ),
        _setting(
            "leader.replication.throttled.replicas", Kind.LIST, "", "Accepted for compatibility; one node.",
        ),
        _setting(
            "follower.replication.throttled.replicas", Kind.LIST, "", "Accepted for compatibility; one node.",
        ),
        _setting(
            TIERED, Kind.BOOLEAN, "false", "Accepted for compatibility; there is no tiered storage to enable.",
        ),
        _setting(
            "remote.log.copy.disable", Kind.BOOLEAN, "false", "Accepted for compatibility; nothing is tiered.",
        ),
        _setting(
            "remote.log.delete.on.disable", Kind.BOOLEAN, "false",
            "Accepted for compatibility; nothing is tiered.",
        ),
        _setting(
            "local.retention.ms", Kind.LONG, -2, "Accepted for compatibility; nothing is tiered.",
            broker="log.local.retention.ms", low=-2,
        ),
        _setting(
            "local.retention.bytes", Kind.LONG, -2, "Accepted for compatibility; nothing is tiered.",
            broker="log.local.retention.bytes", low=-2,
        ),
        _setting(
            "headwater.archive.dir", Kind.STRING, "", "Move segments here that retention would delete.",
            broker="headwater.archive.dir",
        ),
    )
}  # fmt: skip

BY_BROKER_NAME: Mapping[str, Setting] = {s.broker_name: s for s in SETTINGS.values() if s.broker_name}
_MILLISECONDS: Mapping[str, tuple[str, Callable[[int], int]]] = {
    "log.retention.hours": ("log.retention.ms", lambda value: value * 3_600_000),
    "log.retention.minutes": ("log.retention.ms", lambda value: value * 60_000),
    "log.roll.hours": ("log.roll.ms", lambda value: value * 3_600_000),
}


def broker_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """Topic defaults from broker properties; longer units give way to the one in milliseconds.

    >>> broker_defaults({"log.retention.hours": "1", "num.partitions": "3"})
    {'retention.ms': '3600000'}
    """
    in_ms: dict[str, str] = {}
    for name, (target, convert) in _MILLISECONDS.items():
        if name in properties:
            try:
                value = int(properties[name])
            except ValueError:
                raise InvalidConfig("set", name, f"{properties[name]!r} is not a number") from None
            in_ms.setdefault(target, str(convert(value) if value >= 0 else -1))
    given = {**in_ms, **properties}
    defaults = {s.name: given[name] for name, s in BY_BROKER_NAME.items() if name in given}
    check_overrides(defaults)
    return defaults


def check_overrides(overrides: Mapping[str, str]) -> None:
    """Raise InvalidConfig for a name that is not known or a value that does not fit.

    >>> check_overrides({"retention.ms": "soon"})
    Traceback (most recent call last):
    ...
    headwater.errors.InvalidConfig: cannot set retention.ms: 'soon' is not a long. ...
    """
    for name, text in overrides.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise InvalidConfig("set", name, "no topic setting has this name")
        if setting.parse(text) and name == TIERED:
            raise InvalidConfig("set", name, "tiered storage functionality is disabled in the broker")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings in force for one topic, as the log uses them."""

    compact: bool
    delete: bool
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    segment_index_bytes: int
    max_message_bytes: int
    dirty_ratio: float
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    append_time: bool
    before_max_ms: int
    after_max_ms: int
    codec: str
    codec_level: int | None
    archive_dir: str

    @classmethod
    def resolve(
        cls, overrides: Mapping[str, str] | None = None, defaults: Mapping[str, str] | None = None
    ) -> "TopicConfig":
        """What ``overrides`` of a topic over ``defaults`` of the broker come to.

        >>> TopicConfig.resolve({"cleanup.policy": "compact"}).compact
        True
        """
        given = {**(defaults or {}), **(overrides or {})}

        def value(name: str) -> Any:
            setting = SETTINGS[name]
            return setting.parse(given.get(name, setting.default))

        codec = value("compression.type")
        level = value(f"compression.{codec}.level") if f"compression.{codec}.level" in SETTINGS else None
        return cls(
            compact="compact" in value("cleanup.policy"),
            delete="delete" in value("cleanup.policy"),
            retention_ms=value("retention.ms"),
            retention_bytes=value("retention.bytes"),
            segment_bytes=value("segment.bytes"),
            # A compacted topic must not keep a record in its active segment past the longest lag.
            segment_ms=min(value("segment.ms"), value("max.compaction.lag.ms")),
            segment_index_bytes=value("segment.index.bytes"),
            max_message_bytes=value("max.message.bytes"),
            dirty_ratio=value("min.cleanable.dirty.ratio"),
            delete_retention_ms=value("delete.retention.ms"),
            min_compaction_lag_ms=value("min.compaction.lag.ms"),
            max_compaction_lag_ms=value("max.compaction.lag.ms"),
            append_time=value("message.timestamp.type") == "LogAppendTime",
            before_max_ms=value("message.timestamp.before.max.ms"),
            after_max_ms=value("message.timestamp.after.max.ms"),
            codec=codec,
            codec_level=level,
            archive_dir=value("headwater.archive.dir"),
        )
