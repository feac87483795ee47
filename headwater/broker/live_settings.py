"""Settings of the broker that change while it runs, for this broker or for all brokers, as Kafka has it (KIP-226).

What is set for this broker goes before what is set for all, that before what was given at its start, and that
before the default. All brokers are this one, too; tools set the one or the other.

They are kept in ``DIR/broker.json``: ``{"version": 1, "all brokers": {name: value}, "this broker": {...}}`` with a
checksum (headwater.log.sealed). The file is replaced whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.broker.messages import ErrorCode
from headwater.broker.settings import IN_LONGER_UNITS, PROPERTIES, BrokerSettings
from headwater.errors import DirectoryInvalid, HeadwaterError, InvalidConfig
from headwater.log.config import BY_BROKER_NAME, LONG_MAX, Kind, Setting
from headwater.log.files import replace_file
from headwater.log.sealed import BY_HAND, Spoilt, seal, unseal
from headwater.log.segment import storage_error

VERSION = 1
MOST_UNKNOWN = 100  # settings that only a plug-in could know, and their bytes: all of them are in memory
MOST_UNKNOWN_BYTES = 64 << 10
ALL, OWN = "all brokers", "this broker"
# Where a value comes from, by the numbers that DescribeConfigs has for it.
FROM_OWN, FROM_ALL, FROM_START, FROM_DEFAULT = 2, 3, 4, 5

_LIVE_PROPERTIES = (
    "background.threads", "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.size", "log.cleaner.io.max.bytes.per.second", "log.cleaner.threads",
    "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir", "num.replica.fetchers",
    "producer.id.expiration.ms",
)  # fmt: skip
LIVE: Mapping[str, Setting] = {
    **{name: replace(setting, name=name) for name, setting in BY_BROKER_NAME.items()},
    **{name: PROPERTIES[name] for name in _LIVE_PROPERTIES},
}
KNOWN: Mapping[str, Setting] = {**PROPERTIES, **LIVE}

# Names that Kafka's brokers have and that could not be changed here: of what this broker does without, or of what
# Kafka does not change either. Any other name is taken and kept, which Kafka does for the sake of plug-ins.
_KAFKAS = (
    "advertised.", "alter.", "authorizer.", "auto.", "broker.", "client.quota.", "connection.", "controlled.",
    "controller.", "create.topic.policy.", "delegation.", "delete.records.", "early.", "fetch.", "group.",
    "initial.broker.", "inter.broker.", "kafka.", "leader.imbalance.", "listener", "log.dir",
    "log.flush.offset.", "log.flush.scheduler.", "log.flush.start.", "log.roll.jitter.hours", "max.connection",
    "max.incremental.", "max.request.", "metadata.", "metric", "node.", "num.replica.alter.", "offset", "principal.",
    "process.", "producer.purgatory.", "queued.", "quota.", "remote.log.", "replica.fetch.", "replica.high.",
    "replica.lag.", "replica.selector.", "replica.socket.", "replication.", "request.", "add.partitions.", "sasl.",
    "security.", "share.", "socket.", "ssl.", "super.", "telemetry.", "transaction.abort.", "transaction.remove.",
    "transaction.state.", "transaction.two.",
)  # fmt: skip
# The same in another unit, which in Kafka is where the default lies.
_LONGER_UNITS = {
    "log.retention.ms": ("log.retention.hours", "168"),
    "log.roll.ms": ("log.roll.hours", "168"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours", "0"),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms", str(LONG_MAX)),
}


class Refused(HeadwaterError):
    """A change of the broker's settings that cannot be. Kafka does not tell such faults apart by their number."""

    kafka_code = ErrorCode.invalid_request
    next_step = "See docs/operations.md for the settings and their ranges."


@dataclass(frozen=True, slots=True)
class Origin:
    """A value that a setting has in one of the places it can come from."""

    name: str
    value: str
    source: int


def is_fixed(name: str) -> bool:
    """Whether the setting is there and cannot change while the broker runs.

    >>> [is_fixed(name) for name in ("num.partitions", "listeners", "log.retention.ms", "my.plugin.colour")]
    [True, True, False, False]
    """
    return name not in LIVE and (name in PROPERTIES or name in IN_LONGER_UNITS or name.startswith(_KAFKAS))


def setting_of(name: str) -> Setting:
    """The setting of this name, or one that takes any text."""
    return KNOWN.get(name) or Setting(name, Kind.STRING, "", None, "")


class LiveSettings:
    """The broker's settings in force. ``path`` is where changes are kept.

    >>> live = LiveSettings(BrokerSettings(Path("data")), Path("/nowhere/broker.json"))
    >>> live.integer("log.cleaner.backoff.ms"), live.topic_defaults(OWN, {"log.segment.bytes": "5000000"})
    (15000, {'segment.bytes': '5000000'})
    """

    def __init__(self, settings: BrokerSettings, path: Path) -> None:
        self._path = path
        self._layers: dict[str, dict[str, str]] = {OWN: {}, ALL: {}}
        if path.exists():
            self._layers = _read(path)
        defaults = settings.topic_defaults()
        self._at_start = {
            name: defaults[setting.name]
            for name, setting in BY_BROKER_NAME.items()
            if setting.name in defaults
        }
        for name, setting in PROPERTIES.items():
            if settings.text(name) != setting.default:
                self._at_start[name] = settings.text(name)
        self._origins: dict[str, list[Origin]] = {}

    def of(self, whose: str) -> Mapping[str, str]:
        """What is set for this broker, or for all."""
        return self._layers[whose]

    def origins(self, name: str) -> list[Origin]:
        """The values that a setting has, the one in force first, and its default; nothing where Kafka has its
        default in another unit, and nothing else is set."""
        known = self._origins  # another dict once a change is in force, made by another thread
        origins = known.get(name)
        if origins is None:
            layers = (
                (FROM_OWN, self._layers[OWN]),
                (FROM_ALL, self._layers[ALL]),
                (FROM_START, self._at_start),
            )
            origins = [Origin(name, layer[name], source) for source, layer in layers if name in layer]
            if name in _LONGER_UNITS and origins:
                origins.append(Origin(*_LONGER_UNITS[name], FROM_DEFAULT))
            elif name in KNOWN and name not in _LONGER_UNITS:
                origins.append(Origin(name, KNOWN[name].default, FROM_DEFAULT))
            if name in KNOWN:  # of others there is no end
                known[name] = origins
        return origins

    def integer(self, name: str) -> int:
        return int(self.origins(name)[0].value)

    def topic_defaults(self, whose: str = OWN, changed: Mapping[str, str] | None = None) -> dict[str, str]:
        """What topics have that they do not set themselves, by their names; with other settings, if given."""
        layers = self._layers if changed is None else {**self._layers, whose: changed}
        given = {**self._at_start, **layers[ALL], **layers[OWN]}
        return {setting.name: given[name] for name, setting in BY_BROKER_NAME.items() if name in given}

    def check(self, changed: Mapping[str, str]) -> None:
        """Raise Refused for settings that cannot be set while the broker runs."""
        fixed = ", ".join(sorted(name for name in changed if is_fixed(name)))
        if fixed:
            cause = f"Cannot update these configs dynamically: Set({fixed})"
            advice = "Give broker properties at start: headwater broker --set KEY=VALUE."
            raise Refused("alter", "the broker", cause, advice)
        try:
            _parse(changed)
        except InvalidConfig as error:
            raise Refused("set", error.subject, error.cause) from None
        unknown = {name: value for name, value in changed.items() if name not in KNOWN}
        size = sum(len(name) + len(value) for name, value in unknown.items())
        if len(unknown) > MOST_UNKNOWN or size > MOST_UNKNOWN_BYTES:
            cause = f"it has {len(unknown)} settings that nobody knows, of {size} characters"
            limit = (
                f"At most {MOST_UNKNOWN} of {MOST_UNKNOWN_BYTES} characters are kept; delete some of them."
            )
            raise Refused("alter", "the broker", cause, limit)
        if "log.retention.ms" in changed and int(changed["log.retention.ms"]) == 0:
            raise Refused("set", "log.retention.ms", "it must be unlimited (-1), or at least 1")

    def replace(self, whose: str, changed: Mapping[str, str]) -> None:
        """Set these and no others for this broker, or for all; durable when this returns."""
        future = {**self._layers, whose: dict(changed)}
        try:
            replace_file(self._path, seal({"version": VERSION, **future}))
        except OSError as error:
            raise storage_error("set the configuration of", whose, error) from error
        self._layers = future
        self._origins = {}


def _parse(changed: Mapping[str, str]) -> None:
    for name, value in changed.items():
        setting_of(name).parse(value)


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        content = unseal(path.read_bytes())
        if content.get("version") != VERSION:
            raise Spoilt(f"it is of version {content.get('version')}, not {VERSION}")
        layers = {whose: {str(k): str(v) for k, v in content[whose].items()} for whose in (OWN, ALL)}
        for layer in layers.values():
            _parse(layer)
        return layers
    except OSError as error:
        raise storage_error("read", str(path), error) from error
    except (AttributeError, KeyError, InvalidConfig, Spoilt) as error:
        advice = "Restore the file from a copy, or delete it and set again what was set while the broker ran"
        advice = f"{advice}; {BY_HAND}."
        raise DirectoryInvalid("open", str(path), f"it is damaged: {error}", advice) from None
