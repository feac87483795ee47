"""The lists that a data directory keeps beside its logs, and reading them with suspicion.

``DIR/catalog.json``     topics with their ids, partition counts and settings, and those still to be deleted
``DIR/checkpoint.json``  per partition: log start, compacted part, and where a clean shutdown left it

Both have a checksum (headwater.log.sealed), so that a number or an id that has become another one is noticed.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headwater.errors import DirectoryInvalid, InvalidConfig, InvalidTopic
from headwater.log.config import SETTINGS, Kind, check_overrides
from headwater.log.identity import CATALOG
from headwater.log.recovery import Checkpoint
from headwater.log.sealed import BY_HAND, Spoilt, unseal
from headwater.log.topic import LARGEST_PARTITION_COUNT, check_topic_name

CHECKPOINT = "checkpoint.json"
CATALOG_VERSION = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    """A topic as the catalog has it."""

    topic_id: uuid.UUID
    partitions: int
    overrides: dict[str, str]


@dataclass(frozen=True, slots=True)
class Catalog:
    """What the catalog says."""

    topics: dict[str, Listed] = field(default_factory=dict)
    deleting: dict[str, str] = field(default_factory=dict)  # hex id -> name


def read_catalog(directory: Path) -> Catalog | None:
    """The catalog; None when there is none. DirectoryInvalid when it is damaged."""
    return _read(directory / CATALOG, _catalog, f"Restore the file from a copy; {BY_HAND}.")


def read_checkpoint(directory: Path) -> dict[str, Checkpoint]:
    """The checkpoints by partition. DirectoryInvalid when the file is damaged."""
    advice = "Restore the file from a copy, or delete it: records deleted before their time may come back."
    return _read(directory / CHECKPOINT, _checkpoints, advice) or {}


def _read(path: Path, understand: Callable[[dict[str, Any]], T], advice: str) -> T | None:
    try:
        return understand(unseal(path.read_bytes()))
    except FileNotFoundError:
        return None
    except Spoilt as error:
        raise DirectoryInvalid("open", str(path), f"it is damaged: {error}", advice) from None


def _catalog(content: dict[str, Any]) -> Catalog:
    version = content.get("version", CATALOG_VERSION)
    if version != CATALOG_VERSION:
        raise Spoilt(f"it is of version {version}, not {CATALOG_VERSION}")
    topics = _texts_to(dict, content.get("topics"), "what topics there are")
    return Catalog(
        {name: _listed(name, entry) for name, entry in topics.items()},
        _texts_to(str, content.get("deleting", {}), "what is being deleted"),
    )


def _listed(name: str, entry: dict[str, Any]) -> Listed:
    partitions = entry.get("partitions")
    overrides = _as_taken_today(_texts_to(str, entry.get("config"), f"the settings of topic {name}"))
    try:
        check_topic_name(name)
        check_overrides(overrides)
        topic_id = uuid.UUID(str(entry.get("id")))
    except InvalidTopic as error:
        raise Spoilt(f"no topic is named {error.subject.removeprefix('a topic ')}") from None
    except InvalidConfig as error:
        raise Spoilt(f"topic {name} has {error.subject}, and {error.cause}") from None
    except ValueError:
        raise Spoilt(f"the id of topic {name} is {entry.get('id')!r}") from None
    if type(partitions) is not int or not 1 <= partitions <= LARGEST_PARTITION_COUNT:
        raise Spoilt(f"topic {name} has {partitions!r} partitions")
    return Listed(topic_id, partitions, overrides)


def _as_taken_today(overrides: dict[str, str]) -> dict[str, str]:
    """Settings of which an earlier version has taken numbers as Python has them: with underscores, and nan.

    >>> _as_taken_today({"retention.ms": "60_000", "min.cleanable.dirty.ratio": "nan", "x": "a_b"})
    {'retention.ms': '60000', 'x': 'a_b'}
    """
    taken = {}
    for name, text in overrides.items():
        if name in SETTINGS and SETTINGS[name].kind in (Kind.INT, Kind.LONG, Kind.DOUBLE):
            if text.strip().lower() in ("nan", "+nan", "-nan"):
                continue
            text = text.replace("_", "")
        taken[name] = text
    return taken


def _checkpoints(content: dict[str, Any]) -> dict[str, Checkpoint]:
    checkpoints = {}
    for name, values in content.items():
        try:
            checkpoint = Checkpoint(*values)
        except TypeError:
            raise Spoilt(f"{name} has {values!r}") from None
        is_whole = all(type(value) is int for value in values)
        if not is_whole or checkpoint.start_offset < 0 or min(values) < -1:
            raise Spoilt(f"{name} has {values!r}")
        checkpoints[name] = checkpoint
    return checkpoints


def _texts_to(kind: type[T], value: Any, what: str) -> dict[str, T]:
    if not isinstance(value, dict) or not all(isinstance(each, kind) for each in value.values()):
        raise Spoilt(f"it does not say {what}")
    return value
