"""The data directory: which topics there are, and their partitions.

``DIR/<topic>-<partition>/``  segments, indexes and producer snapshots of a partition
``DIR/catalog.json``          topics with their ids, partition counts and settings; no other exists
``DIR/checkpoint.json``       per partition: log start, compacted part, and where a clean shutdown left it
``DIR/meta.properties``       cluster id and node id
``DIR/.lock``                 held by the process that has the directory open

Both JSON files are replaced whole, so that a crash leaves the old or the new one.
"""

import base64
import fcntl
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from headwater.errors import (
    DirectoryInUse,
    DirectoryInvalid,
    InvalidPartitions,
    InvalidTopic,
    TopicExists,
    UnknownTopic,
)
from headwater.log.config import TopicConfig, check_overrides
from headwater.log.files import (
    CAN_SYNC_FILE_SYSTEM,
    OpenFiles,
    replace_file,
    sync_directories,
    sync_directory,
    sync_file_system,
)
from headwater.log.partition import PartitionLog, SyncWork, do_sync_work, write_snapshot
from headwater.log.recovery import Checkpoint, open_partition

logger = logging.getLogger("headwater.log")

CATALOG_VERSION = 1
LARGEST_PARTITION_COUNT = 10_000
MANY = 4  # files, from which on syncing their file system is quicker
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(slots=True)
class Topic:
    """A topic and its partitions."""

    name: str
    topic_id: uuid.UUID
    overrides: dict[str, str]
    config: TopicConfig
    partitions: list[PartitionLog] = field(default_factory=list)


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic for a name Kafka does not take.

    >>> check_topic_name("orders.v1")
    >>> check_topic_name("a/b")
    Traceback (most recent call last):
    ...
    headwater.errors.InvalidTopic: cannot name a topic 'a/b': it has characters that are not allowed. ...
    """
    if not name:
        raise InvalidTopic("name a topic", repr(name), "the name is empty")
    if name in (".", ".."):
        raise InvalidTopic("name a topic", repr(name), "'.' and '..' are not allowed")
    if len(name) > 249:
        raise InvalidTopic("name a topic", repr(name), "it is longer than 249 characters")
    if not _TOPIC_NAME.fullmatch(name):
        raise InvalidTopic("name a topic", repr(name), "it has characters that are not allowed")


class DataDirectory:
    """An open data directory."""

    def __init__(
        self,
        path: Path,
        defaults: Mapping[str, str] | None = None,
        open_files: int = 512,
        when_durable: Callable[[PartitionLog, int], None] | None = None,
    ) -> None:
        self.path = path
        self._when_durable = when_durable
        self.defaults = dict(defaults or {})
        self.files = OpenFiles(open_files)
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._deleting: dict[str, str] = {}  # hex id -> name of topics whose files are still to be removed
        self._checkpoints: dict[str, Checkpoint] = {}
        self._lock = self._take_lock()
        self.cluster_id, self.node_id = self._identity()
        self._load()

    # -- opening and closing ----------------------------------------------------------------------

    def _take_lock(self) -> int:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DirectoryInvalid("open", str(self.path), str(error.strerror).lower()) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise DirectoryInUse("open", str(self.path), "another process has it open") from None
        return lock

    def _identity(self) -> tuple[str, int]:
        path = self.path / "meta.properties"
        if path.exists():
            lines = (line.partition("=") for line in path.read_text().splitlines() if "=" in line)
            properties = {key.strip(): value.strip() for key, _, value in lines}
            if "cluster.id" in properties:
                return properties["cluster.id"], int(properties.get("node.id", "1"))
        cluster_id = kafka_uuid(uuid.uuid4())
        replace_file(path, f"version=1\ncluster.id={cluster_id}\nnode.id=1\n".encode())
        return cluster_id, 1

    def _load(self) -> None:
        catalog = self._read_json("catalog.json")
        if catalog.get("version", CATALOG_VERSION) != CATALOG_VERSION:
            raise DirectoryInvalid(
                "open",
                str(self.path),
                f"its catalog is of version {catalog['version']}, not {CATALOG_VERSION}",
            )
        for name, values in self._read_json("checkpoint.json").items():
            self._checkpoints[name] = Checkpoint(*values)
        self._deleting = dict(catalog.get("deleting", {}))
        for name, entry in catalog.get("topics", {}).items():
            config = TopicConfig.resolve(entry["config"], self.defaults)
            topic = Topic(name, uuid.UUID(entry["id"]), entry["config"], config)
            for number in range(entry["partitions"]):
                topic.partitions.append(self._open(topic, number))
            self._add(topic)
        self._sync_recovered()
        self._remove_deleted()
        self._report_strays()
        if self._checkpoints:
            self.checkpoint()  # a later crash must not find the marks of the clean shutdown

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            content = (self.path / name).read_bytes()
        except FileNotFoundError:
            return {}
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise DirectoryInvalid(
                "open", str(self.path / name), f"it is damaged: {error}", "Restore the file from a copy."
            ) from None
        return dict(value)

    def _open(self, topic: Topic, number: int) -> PartitionLog:
        name = f"{topic.name}-{number}"
        checkpoint = self._checkpoints.get(name)
        log = open_partition(self.files, self.path / name, topic.name, number, topic.config, checkpoint)
        log.when_durable = self._when_durable
        return log

    def _add(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def _report_strays(self) -> None:
        known = {log.name for log in self.partitions()}
        for entry in os.scandir(self.path):
            if entry.is_dir() and entry.name not in known and re.fullmatch(r".+-\d+", entry.name):
                logger.warning("%s belongs to no topic of the catalog and is left alone", entry.path)

    def close(self) -> None:
        """Sync and close every partition, so that the next open needs no recovery."""
        self._sync_closing()
        self.checkpoint(clean=True)
        self.files.close()
        os.close(self._lock)

    def _sync_closing(self) -> None:
        """Sync all partitions: each by itself, or by syncing their file system when they are many."""
        works: list[tuple[PartitionLog, SyncWork]] = []
        for log in self.partitions():
            try:
                work = log.closing_work()
                if work is not None:
                    works.append((log, work))
            except OSError as error:
                log.sync_failed(error)
        together = CAN_SYNC_FILE_SYSTEM and len(works) >= MANY
        try:
            if together:
                self._sync_file_system()
        except OSError:
            together = False
        for log, work in works:
            try:
                if together:
                    write_snapshot(work, sync=False)
                else:
                    do_sync_work(work)
                log.synced(work)
            except OSError as error:
                log.sync_failed(error)
        if together:
            self._sync_file_system()

    def _sync_file_system(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            sync_file_system(descriptor)
        finally:
            os.close(descriptor)

    def _sync_recovered(self) -> None:
        """What recovery found may be in memory only; readers will be shown it, so it has to be durable."""
        recovered = [log for log in self.partitions() if log.needs_sync]
        if CAN_SYNC_FILE_SYSTEM and len(recovered) >= MANY:
            self._sync_file_system()
        else:
            for log in recovered:
                log.sync()
        for log in recovered:
            log.needs_sync = False

    # -- topics -----------------------------------------------------------------------------------

    def partitions(self) -> Iterable[PartitionLog]:
        for topic in self.topics.values():
            yield from topic.partitions

    def topic(self, name: str) -> Topic:
        """The topic of that name, or UnknownTopic."""
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopic("find", f"topic {name}", "there is none of this name")
        return topic

    def topic_by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        return self._by_id.get(topic_id) if topic_id is not None else None

    def check_new_topic(self, name: str, partitions: int, overrides: Mapping[str, str]) -> None:
        """Raise what would make ``create_topic`` fail."""
        check_topic_name(name)
        if name in self.topics:
            raise TopicExists("create", f"topic {name}", "it exists")
        alike = name.replace(".", "_")
        if "." in name or "_" in name:
            for other in self.topics:
                if other.replace(".", "_") == alike:
                    raise InvalidTopic("create", f"topic {name}", f"its name collides with {other}")
        if not 1 <= partitions <= LARGEST_PARTITION_COUNT:
            raise InvalidPartitions(
                "create", f"topic {name}", f"{partitions} is not in [1, {LARGEST_PARTITION_COUNT}]"
            )
        check_overrides(overrides)

    def create_topic(self, name: str, partitions: int, overrides: Mapping[str, str] | None = None) -> Topic:
        """A new topic, durable when this returns."""
        overrides = dict(overrides or {})
        self.check_new_topic(name, partitions, overrides)
        topic = Topic(name, uuid.uuid4(), overrides, TopicConfig.resolve(overrides, self.defaults))
        self._make_partitions(topic, partitions)
        self._add(topic)
        self._save_catalog()
        return topic

    def add_partitions(self, name: str, total: int) -> list[PartitionLog]:
        """Give the topic more partitions; returns the new ones."""
        topic = self.topic(name)
        if total <= len(topic.partitions) or total > LARGEST_PARTITION_COUNT:
            raise InvalidPartitions(
                "add partitions to",
                f"topic {name}",
                f"it has {len(topic.partitions)}; {total} is not a larger number",
            )
        added = self._make_partitions(topic, total)
        self._save_catalog()
        return added

    def _make_partitions(self, topic: Topic, total: int) -> list[PartitionLog]:
        added = []
        for number in range(len(topic.partitions), total):
            path = self.path / f"{topic.name}-{number}"
            if path.exists():  # not of this topic: a creation that a crash undid
                os.rename(path, f"{path}.{uuid.uuid4().hex}-stray")
            self._checkpoints.pop(path.name, None)
            added.append(self._open(topic, number))
        sync_directories([log.directory for log in added])
        topic.partitions.extend(added)
        return added

    def set_config(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace the topic's own settings."""
        topic = self.topic(name)
        check_overrides(overrides)
        topic.overrides = dict(overrides)
        topic.config = TopicConfig.resolve(topic.overrides, self.defaults)
        for log in topic.partitions:
            log.config = topic.config
        self._save_catalog()

    def delete_topic(self, name: str) -> list[Path]:
        """Take the topic out of the catalog; returns the directories that ``remove`` may now delete."""
        topic = self.topic(name)
        del self.topics[name]
        del self._by_id[topic.topic_id]
        self._deleting[topic.topic_id.hex] = name
        self._save_catalog()
        renamed = []
        for log in topic.partitions:
            log.delete()
            self._checkpoints.pop(log.name, None)
            target = self.path / f"{log.name}.{topic.topic_id.hex}-delete"
            os.rename(log.directory, target)
            renamed.append(target)
        sync_directory(self.path)
        return renamed

    def remove(self, paths: Iterable[Path]) -> None:
        """Delete what ``delete_topic`` has set aside. Runs in any thread."""
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)

    def _remove_deleted(self) -> None:
        """Finish deletions that a crash cut short."""
        if not self._deleting:
            return
        for topic_id, name in self._deleting.items():
            if name not in self.topics:
                for path in self.path.glob(f"{name}-*"):
                    if re.fullmatch(re.escape(name) + r"-\d+", path.name):
                        shutil.rmtree(path, ignore_errors=True)
            for path in self.path.glob(f"*.{topic_id}-delete"):
                shutil.rmtree(path, ignore_errors=True)
        self._deleting.clear()
        self._save_catalog()

    # -- what is kept beside the logs -------------------------------------------------------------

    def _save_catalog(self) -> None:
        topics = {
            topic.name: {
                "id": str(topic.topic_id),
                "partitions": len(topic.partitions),
                "config": topic.overrides,
            }
            for topic in self.topics.values()
        }
        catalog = {"version": CATALOG_VERSION, "topics": topics, "deleting": self._deleting}
        replace_file(self.path / "catalog.json", orjson.dumps(catalog, option=orjson.OPT_INDENT_2))

    def checkpoint(self, clean: bool = False) -> None:
        """Write down what the files of the partitions do not say."""
        self._checkpoints = {}
        for log in self.partitions():
            is_clean = clean and log.failure is None
            self._checkpoints[log.name] = Checkpoint(
                log.start_offset,
                log.cleaned_offset,
                log.next_offset if is_clean else -1,
                log.active.size if is_clean else -1,
            )
        content = {
            name: [c.start_offset, c.cleaned_offset, c.clean_end, c.clean_size]
            for name, c in self._checkpoints.items()
        }
        replace_file(self.path / "checkpoint.json", orjson.dumps(content))


def kafka_uuid(value: uuid.UUID) -> str:
    """A UUID as Kafka prints it: URL-safe base64 without padding.

    >>> kafka_uuid(uuid.UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
