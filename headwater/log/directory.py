"""The data directory: which topics there are, and their partitions.

``DIR/<topic>-<partition>/``  segments, indexes and producer snapshots of a partition
``DIR/catalog.json``          topics with their ids, partition counts and settings; no other exists
``DIR/checkpoint.json``       per partition: log start, compacted part, and where a clean shutdown left it

What makes it one of ours is in headwater.log.identity. Both JSON files (read in headwater.log.catalog) are
replaced whole, so that a crash leaves the old or the new one. A change of topics is in the catalog on disk
before anybody sees it.
"""

import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, replace
from pathlib import Path

from headwater.errors import (
    DirectoryInvalid,
    DiskFull,
    HeadwaterError,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    TopicExists,
    UnknownTopic,
)
from headwater.log.aborted import aborted_checksum
from headwater.log.catalog import (
    CATALOG_VERSION,
    CHECKPOINT,
    Catalog,
    read_catalog,
    read_checkpoint,
)
from headwater.log.config import TopicConfig, check_overrides
from headwater.log.files import OpenFiles, replace_file, sync_directories, sync_directory
from headwater.log.identity import CATALOG, claim, take_lock
from headwater.log.partition import CHECKPOINT_BYTES, PartitionLog
from headwater.log.recovery import Checkpoint, open_partition
from headwater.log.sealed import seal
from headwater.log.segment import storage_error
from headwater.log.sync_all import close_partitions, sync_recovered
from headwater.log.topic import LARGEST_PARTITION_COUNT, Topic, check_topic_name

logger = logging.getLogger("headwater.log")

READ_AGAIN = 256 << 20  # about so much of all partitions together has to be read again after a crash,
READ_AGAIN_EACH = 256 << 10  # or so much of each, if that is more
LONGEST_FILE_NAME = 255  # bytes, on nearly every file system
_PARTITION_NAME = re.compile(r".+-\d+")
_PARTITION_FILE = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)")


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
        self._lock = take_lock(path)
        try:
            self.cluster_id, self.node_id = claim(path)
            self._load()
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError):
                raise storage_error("open", str(self.path), error) from error
            raise

    # -- opening and closing ----------------------------------------------------------------------

    def _load(self) -> None:
        catalog = read_catalog(self.path)
        if catalog is None:
            self._refuse_lost_catalog()
            catalog = Catalog()
        self._checkpoints = read_checkpoint(self.path)
        self._deleting = dict(catalog.deleting)
        for name, listed in catalog.topics.items():
            topic = Topic(name, listed.topic_id, listed.overrides, self._config(listed.overrides))
            topic.partitions = self._open_all(topic, listed.partitions)
            self.topics[name] = self._by_id[topic.topic_id] = topic
        self._spread_snapshots()
        sync_recovered(self.path, self.partitions())
        try:
            self._remove_deleted()
            if self._checkpoints:
                self.checkpoint()  # the marks of the clean shutdown have served
        except (DiskFull, OSError) as error:  # the marks say how the log was: no harm once it is different
            logger.warning("%s", error)
        self._report_strays()

    def _refuse_lost_catalog(self) -> None:
        for path in sorted(self.path.iterdir()):
            if _PARTITION_NAME.fullmatch(path.name) and _has_records(path):
                raise DirectoryInvalid(
                    "open",
                    str(self.path),
                    f"catalog.json is missing, though {path.name} has records",
                    "Restore the file from a copy.",
                )

    def check_defaults(self, defaults: Mapping[str, str]) -> None:
        """Raise InvalidConfig for what topics cannot have by default."""
        check_overrides(defaults)
        self._config({}, defaults)

    def take_defaults(self, defaults: Mapping[str, str]) -> None:
        """From now on topics have these where they set nothing themselves."""
        self.check_defaults(defaults)
        self.defaults = dict(defaults)
        for topic in self.topics.values():
            self._take_config(topic, self._config(topic.overrides))

    def _take_config(self, topic: Topic, config: TopicConfig) -> None:
        topic.config = config
        for log in topic.partitions:
            log.config = config

    def _config(self, overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> TopicConfig:
        config = TopicConfig.resolve(overrides, self.defaults if defaults is None else defaults)
        if config.archive_dir and Path(config.archive_dir).resolve() == self.path.resolve():
            raise InvalidConfig("set", "headwater.archive.dir", "it is the data directory itself")
        return config

    def _open_all(self, topic: Topic, partitions: int) -> list[PartitionLog]:
        logs = []
        made = []
        for number in range(partitions):
            path = self.path / f"{topic.name}-{number}"
            is_there = path.is_dir()
            log = self._open(topic, number)
            if not is_there:
                made.append(path)
                logger.error(
                    "%s was missing; it is made again, empty, and goes on at offset %d", path, log.next_offset
                )
            logs.append(log)
        sync_directories(made)
        return logs

    def _open(self, topic: Topic, number: int) -> PartitionLog:
        name = f"{topic.name}-{number}"
        checkpoint = self._checkpoints.get(name)
        log = open_partition(self.files, self.path / name, topic.name, number, topic.config, checkpoint)
        log.when_durable = self._when_durable
        return log

    def _add(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._spread_snapshots()

    def _spread_snapshots(self) -> None:
        """The more partitions there are, the less of each may have to be read again after a crash."""
        logs = list(self.partitions())
        interval = min(max(READ_AGAIN // max(len(logs), 1), READ_AGAIN_EACH), CHECKPOINT_BYTES)
        for log in logs:
            log.snapshot_interval = interval

    def _report_strays(self) -> None:
        known = {log.name for log in self.partitions()}
        for entry in list(os.scandir(self.path)):
            if entry.is_dir() and entry.name not in known and _PARTITION_NAME.fullmatch(entry.name):
                if _is_empty_partition(Path(entry.path)):  # of a creation that a crash undid
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    logger.warning("%s belongs to no topic of the catalog and is left alone", entry.path)

    def close(self) -> None:
        """Sync and close every partition, so that the next open needs no recovery."""
        try:
            self.checkpoint(clean=close_partitions(self.path, self.partitions()))
        except HeadwaterError as error:  # the next open recovers
            logger.error("%s", error)
        self.files.close()
        os.close(self._lock)

    # -- topics -----------------------------------------------------------------------------------

    def partitions(self) -> Iterable[PartitionLog]:
        for topic in list(self.topics.values()):  # topics may come and go in another thread meanwhile
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
            for other in list(self.topics):
                if other.replace(".", "_") == alike:
                    raise InvalidTopic("create", f"topic {name}", f"its name collides with {other}")
        if not 1 <= partitions <= LARGEST_PARTITION_COUNT:
            raise InvalidPartitions(
                "create", f"topic {name}", f"{partitions} is not in [1, {LARGEST_PARTITION_COUNT}]"
            )
        check_overrides(overrides)
        self._config(overrides)

    def create_topic(self, name: str, partitions: int, overrides: Mapping[str, str] | None = None) -> Topic:
        """A new topic, durable when this returns."""
        overrides = dict(overrides or {})
        self.check_new_topic(name, partitions, overrides)
        topic = Topic(name, uuid.uuid4(), overrides, self._config(overrides))
        made = self._make_partitions(topic, partitions, replace(topic))
        topic.partitions.extend(made)
        self._add(topic)
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
        made = self._make_partitions(topic, total, replace(topic))
        topic.partitions.extend(made)
        self._spread_snapshots()
        return made

    def _make_partitions(self, topic: Topic, total: int, future: Topic) -> list[PartitionLog]:
        """New partitions on disk, and ``future``, the topic with them, in the catalog; or an error, and
        nothing of it."""
        made: list[PartitionLog] = []
        try:
            for number in range(len(topic.partitions), total):
                path = self.path / f"{topic.name}-{number}"
                if path.exists():
                    self._set_aside(path)
                self._checkpoints.pop(path.name, None)
                made.append(self._open(topic, number))
            sync_directories([log.directory for log in made])
            future.partitions = [*topic.partitions, *made]
            self._save_catalog({**self.topics, topic.name: future})
        except OSError as error:
            for log in made:
                log.delete()
                shutil.rmtree(log.directory, ignore_errors=True)
                log.forget_files()
            raise storage_error("make partitions of", f"topic {topic.name}", error) from error
        return made

    def _set_aside(self, path: Path) -> None:
        """A directory that belongs to no topic: of a creation that a crash undid, or somebody's data."""
        if _is_empty_partition(path):
            shutil.rmtree(path)
        else:
            target = _marked(path, f"{uuid.uuid4().hex}-stray")
            os.rename(path, target)
            logger.warning("%s belonged to no topic of the catalog and is now %s", path, target.name)

    def set_config(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace the topic's own settings."""
        topic = self.topic(name)
        check_overrides(overrides)
        future = replace(topic, overrides=dict(overrides), config=self._config(overrides))
        try:
            self._save_catalog({**self.topics, name: future})
        except OSError as error:
            raise storage_error("set the configuration of", f"topic {name}", error) from error
        topic.overrides = future.overrides
        self._take_config(topic, future.config)

    def delete_topic(self, name: str) -> list[Path]:
        """Take the topic out of the catalog; returns the directories that ``remove`` may now delete."""
        topic = self.topic(name)
        topic_id = topic.topic_id.hex
        self._deleting[topic_id] = name
        try:
            self._save_catalog({key: value for key, value in self.topics.items() if key != name})
        except OSError as error:
            del self._deleting[topic_id]
            raise storage_error("delete", f"topic {name}", error) from error
        del self.topics[name]
        del self._by_id[topic.topic_id]
        renamed = []
        for log in topic.partitions:
            log.delete()
            self._checkpoints.pop(log.name, None)
        for log in topic.partitions:
            target = _marked(log.directory, f"{topic_id}-delete")
            try:
                os.rename(log.directory, target)
                renamed.append(target)
            except OSError as error:  # the next start removes it
                logger.warning("%s: %s", log.directory, error.strerror)
            log.forget_files()
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
        self._save_catalog(self.topics)

    # -- what is kept beside the logs -------------------------------------------------------------

    def _save_catalog(self, topics: Mapping[str, Topic]) -> None:
        entries = {
            topic.name: {
                "id": str(topic.topic_id),
                "partitions": len(topic.partitions),
                "config": topic.overrides,
            }
            for topic in topics.values()
        }
        # What is removed already need not be remembered any longer.
        left = {path.name.rpartition(".")[2] for path in self.path.glob("*-delete")}
        known = {topic.topic_id.hex for topic in self.topics.values()}
        self._deleting = {
            topic_id: name
            for topic_id, name in self._deleting.items()
            if topic_id in known or f"{topic_id}-delete" in left
        }
        catalog = {"version": CATALOG_VERSION, "topics": entries, "deleting": self._deleting}
        replace_file(self.path / CATALOG, seal(catalog))

    def checkpoint(self, clean: bool = False) -> None:
        """Write down what the files of the partitions do not say."""
        checkpoints = {}
        for log in self.partitions():
            is_clean = clean and log.failure is None
            checkpoints[log.name] = Checkpoint(
                log.start_offset,
                log.cleaned_offset,
                log.next_offset if is_clean else -1,
                log.active.base_offset if is_clean else -1,
                log.active.size if is_clean else -1,
                aborted_checksum(log.producers.aborted, log.start_offset) if is_clean else -1,
            )
        content = {name: astuple(each) for name, each in checkpoints.items()}
        try:
            replace_file(self.path / CHECKPOINT, seal(content, layout=0))
        except OSError as error:
            raise storage_error("write", str(self.path / CHECKPOINT), error) from error
        self._checkpoints = checkpoints


def _marked(path: Path, mark: str) -> Path:
    """Where a partition's directory is put that is none any more. The topic's name is cut where a file could
    not be named so; its partition and the mark stay."""
    topic, _, number = path.name.rpartition("-")
    ending = f"-{number}.{mark}"
    return path.with_name(topic[: LONGEST_FILE_NAME - len(ending)] + ending)


def _has_records(path: Path) -> bool:
    return any(log.stat().st_size for log in path.glob("*.log"))


def _is_empty_partition(path: Path) -> bool:
    """Whether there is nothing in the directory but files of a partition without records."""
    return not _has_records(path) and all(_PARTITION_FILE.fullmatch(each.name) for each in path.iterdir())
