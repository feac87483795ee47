"""The data directory: topics that come, change and go, and what a crash at any step leaves of them."""

import logging
import os
import random
import resource
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import orjson
import pytest

from headwater.errors import (
    DirectoryInUse,
    DirectoryInvalid,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    TopicExists,
    UnknownTopic,
)
from headwater.log.check import check_directory
from headwater.log.directory import DataDirectory
from headwater.log.identity import claim, kafka_uuid
from headwater.log.partition import PartitionLog
from headwater.log.producer_ids import PRODUCER_IDS
from headwater.log.topic import check_topic_name
from tests.log.crashes import crash_points
from tests.log.logs import NOW, add, contents, fill, flip, producer_state, records, segment_file


def killed(directory: DataDirectory) -> Path:
    """Leave the directory as a kill does; where it is."""
    os.close(directory._lock)
    directory.files.close()
    return directory.path


def faults(path: Path) -> list[str]:
    found = check_directory(path)
    # No broker is here that would have given out the ids of the producers.
    return [f"{each.path.name}: {each.kind}" for each in found if each.path.name != PRODUCER_IDS]


# -- opening ---------------------------------------------------------------------------------------


def test_a_new_directory(folder: Path) -> None:
    directory = DataDirectory(folder / "deep" / "data")
    assert directory.topics == {}
    assert len(directory.cluster_id) == 22
    identity = (directory.cluster_id, directory.node_id)
    directory.close()
    again = DataDirectory(folder / "deep" / "data")
    assert (again.cluster_id, again.node_id) == identity
    again.close()
    assert faults(folder / "deep" / "data") == []


def test_only_one_process_has_it(folder: Path) -> None:
    directory = DataDirectory(folder)
    with pytest.raises(DirectoryInUse, match="another process has it open"):
        DataDirectory(folder)
    code = "import sys; from pathlib import Path; from headwater.log.directory import DataDirectory; "
    code += "DataDirectory(Path(sys.argv[1]))"
    other = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert "DirectoryInUse" in other.stderr
    directory.close()
    DataDirectory(folder).close()


def test_a_directory_that_cannot_be_one(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(DirectoryInvalid):
        DataDirectory(folder / "file")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("catalog.json", b"{"),
        ("catalog.json", b"[1]"),
        ("catalog.json", b'{"version": 99}'),
        ("checkpoint.json", b"garbage"),
        ("checkpoint.json", b'{"t-0": 5}'),
        ("checkpoint.json", b'{"t-0": [1, 2, 3, 4, 5, 6, 7]}'),
        ("meta.properties", b"cluster.id=abc\nnode.id=many\n"),
    ],
)
def test_a_spoilt_file_is_named_and_the_lock_released(folder: Path, name: str, content: bytes) -> None:
    directory = DataDirectory(folder)
    directory.create_topic("t", 1)
    directory.close()
    good = (folder / name).read_bytes()
    (folder / name).write_bytes(content)
    for _ in range(2):
        with pytest.raises(DirectoryInvalid, match=str(folder)):
            DataDirectory(folder)
    (folder / name).write_bytes(good)
    DataDirectory(folder).close()


@pytest.mark.parametrize("name", ["catalog.json", "checkpoint.json", "meta.properties"])
def test_whatever_becomes_of_a_small_file_is_told_in_the_words_of_the_catalogue(
    folder: Path, name: str
) -> None:
    """A byte that was changed makes it unreadable, or says something else; never is it taken for a fault of ours."""
    data = folder / "data"
    directory = DataDirectory(data)
    topic_id, cluster_id = (
        directory.create_topic("t", 2, {"retention.ms": "1000"}).topic_id,
        directory.cluster_id,
    )
    log = directory.topics["t"].partitions[0]
    fill(log, 15)
    log.move_start(10)
    directory.close()
    good = (data / name).read_bytes()
    dice = random.Random(7)
    copy = folder / "copy"
    for _ in range(150):
        shutil.copytree(data, copy)
        position = dice.randrange(len(good))
        changed = dice.choice((dice.choice(b'0e."-[{'), good[position] ^ 1 << dice.randrange(8)))
        (copy / name).write_bytes(good[:position] + bytes([changed]) + good[position + 1 :])
        found = [each.path.name for each in check_directory(copy)]
        try:
            opened = DataDirectory(copy)
        except DirectoryInvalid as error:
            assert str(copy) in str(error)
            assert name in found
        else:  # a blank, or the name of the checksum
            topics = [(topic.name, topic.topic_id, topic.overrides) for topic in opened.topics.values()]
            assert topics == [("t", topic_id, {"retention.ms": "1000"})]
            assert [log.start_offset for log in opened.partitions()] == [10, 0]
            assert opened.cluster_id == cluster_id
            opened.close()
        shutil.rmtree(copy)


def test_a_small_file_without_a_checksum_passes(folder: Path) -> None:
    """Of an earlier version, or changed by hand."""
    directory = DataDirectory(folder)
    topic = directory.create_topic("t", 1)
    fill(topic.partitions[0], 15)
    topic.partitions[0].move_start(10)
    directory.close()
    for name in ("catalog.json", "checkpoint.json"):
        content = orjson.loads((folder / name).read_bytes())
        assert len(content.pop("checksum")) == 8
        (folder / name).write_bytes(orjson.dumps(content))
    meta = folder / "meta.properties"
    lines = meta.read_text().splitlines(keepends=True)
    assert lines.pop().startswith("checksum=")
    meta.write_text("".join(lines))
    assert list(check_directory(folder)) == []
    reopened = DataDirectory(folder)
    assert (reopened.cluster_id, reopened.topics["t"].topic_id) == (directory.cluster_id, topic.topic_id)
    assert reopened.topics["t"].partitions[0].start_offset == 10
    reopened.close()


def test_no_cluster_id_is_made_up_for_one_that_is_damaged(folder: Path) -> None:
    directory = DataDirectory(folder)
    directory.close()
    meta = folder / "meta.properties"
    good = meta.read_text()
    for bad in (good.replace("cluster.id", "cluster_id"), good.replace(directory.cluster_id, "x"), ""):
        meta.write_text(bad)
        with pytest.raises(
            DirectoryInvalid, match=r"meta.properties: it is damaged: (it has no cl|its checks)"
        ):
            DataDirectory(folder)
        assert [(each.path.name, each.kind) for each in check_directory(folder)] == [(meta.name, "damage")]
        assert meta.read_text() == bad


def test_settings_that_an_earlier_version_has_taken(folder: Path) -> None:
    """Numbers as Python has them: refused today, but no reason not to start."""
    directory = DataDirectory(folder)
    directory.create_topic("t", 1, {"retention.ms": "60000", "min.cleanable.dirty.ratio": "0.25"})
    directory.create_topic("u", 1, {"min.cleanable.dirty.ratio": "0.25"})
    directory.close()
    content = orjson.loads((folder / "catalog.json").read_bytes())
    del content["checksum"]  # there was none
    content["topics"]["t"]["config"] = {"retention.ms": "60_000", "min.cleanable.dirty.ratio": "0.2_5"}
    content["topics"]["u"]["config"] = {"min.cleanable.dirty.ratio": "nan"}
    (folder / "catalog.json").write_bytes(orjson.dumps(content))
    directory = DataDirectory(folder)
    settings = {name: topic.overrides for name, topic in directory.topics.items()}
    assert settings == {"t": {"retention.ms": "60000", "min.cleanable.dirty.ratio": "0.25"}, "u": {}}
    assert directory.topics["t"].config.retention_ms == 60_000
    directory.close()


def test_without_a_catalog_records_are_not_thrown_away(folder: Path) -> None:
    directory = DataDirectory(folder)
    fill(directory.create_topic("t", 1).partitions[0], 3)
    directory.close()
    (folder / "catalog.json").rename(folder / "saved")
    with pytest.raises(DirectoryInvalid, match=r"catalog.json is missing, though t-0 has records"):
        DataDirectory(folder)
    (folder / "saved").rename(folder / "catalog.json")
    directory = DataDirectory(folder)
    assert len(contents(directory.topics["t"].partitions[0])) == 3
    directory.close()


def test_without_a_checkpoint_the_logs_are_recovered(folder: Path) -> None:
    directory = DataDirectory(folder)
    log = directory.create_topic("t", 1).partitions[0]
    add(log, records("a"), (1, 0, 0))
    log.sync()
    directory.close()
    (folder / "checkpoint.json").unlink()
    directory = DataDirectory(folder)
    log = directory.topics["t"].partitions[0]
    assert (log.next_offset, len(log.producers)) == (1, 1)
    directory.close()


def test_a_missing_partition_is_made_again_and_told_of(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = DataDirectory(folder)
    for log in directory.create_topic("t", 2).partitions:
        fill(log, 4)
    directory.close()
    shutil.rmtree(folder / "t-1")
    assert faults(folder) == ["t-1: missing"]
    with caplog.at_level(logging.ERROR):
        directory = DataDirectory(folder)
    assert "t-1 was missing; it is made again, empty, and goes on at offset 4" in caplog.text
    logs = directory.topics["t"].partitions
    assert [(log.start_offset, log.next_offset) for log in logs] == [(0, 4), (4, 4)]
    fill(logs[1], 1)
    directory.close()
    assert faults(folder) == []


def test_many_partitions_with_few_files_open(folder: Path) -> None:
    """More partitions than the process may open files, closed, killed and closed again."""
    directory = DataDirectory(folder, open_files=8)
    for log in directory.create_topic("t", 60).partitions:
        add(log, records("a"), (1, 0, 0))
        log.roll(NOW)
        add(log, records("b"), (1, 0, 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 30, hard))
    try:
        for is_clean in (True, False, False, True):
            if is_clean:
                directory.close()
            else:
                for log in directory.partitions():
                    log.sync()
                killed(directory)
            directory = DataDirectory(folder, open_files=8)
            for log in directory.partitions():
                assert log.failure is None
                assert log.next_offset == 2
        directory.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert faults(folder) == []


@pytest.mark.parametrize("partitions", [1, 10], ids=["few", "many"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_everything_is_there_again(folder: Path, partitions: int, is_clean: bool) -> None:
    directory = DataDirectory(folder)
    topic = directory.create_topic("t", partitions, {"segment.bytes": "500"})
    for number, log in enumerate(topic.partitions):
        fill(log, 20)
        add(log, records("x"), (number, 0, 0), transactional=True)
        log.sync()
        log.move_start(3)
    directory.checkpoint()
    before = [(log.name, contents(log), producer_state(log)) for log in directory.partitions()]
    for _ in range(3):
        if is_clean:
            directory.close()
        else:
            killed(directory)
        directory = DataDirectory(folder)
        after = [(log.name, contents(log), producer_state(log)) for log in directory.partitions()]
        assert after == before
        assert directory.topics["t"].topic_id == topic.topic_id
        assert [log.last_stable_offset for log in directory.partitions()] == [20] * partitions
        assert all(not log.needs_sync for log in directory.partitions())
    directory.close()
    assert faults(folder) == []


def test_after_a_kill_only_what_was_written_since_the_snapshot_is_synced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Syncing all would wait for whatever else the file system has to write."""
    directory = DataDirectory(folder)
    for log in directory.create_topic("t", 30).partitions:
        fill(log, 3)
    directory.close()
    directory = DataDirectory(folder)
    fill(directory.topics["t"].partitions[7], 1)
    killed(directory)
    synced: list[PartitionLog] = []
    monkeypatch.setattr(PartitionLog, "sync_recovered", lambda log: synced.append(log))
    monkeypatch.setattr("headwater.log.sync_all.sync_file_system", lambda _: pytest.fail("all of it"))
    directory = DataDirectory(folder)
    assert [log.name for log in synced] == ["t-7"]
    assert [log.durable_offset for log in directory.partitions()] == [3] * 7 + [4] + [3] * 22
    killed(directory)


def test_a_failed_partition_is_not_marked_as_closed(folder: Path) -> None:
    directory = DataDirectory(folder)
    log = directory.create_topic("t", 1).partitions[0]
    fill(log, 2)
    log.sync_failed(OSError(5, "Input/output error"))
    directory.close()
    assert orjson.loads((folder / "checkpoint.json").read_bytes())["t-0"][2:] == [-1, -1, -1, -1]
    directory = DataDirectory(folder)
    assert directory.topics["t"].partitions[0].failure is None
    directory.close()


def test_the_marks_of_a_clean_shutdown_are_gone_once_it_is_open(folder: Path) -> None:
    directory = DataDirectory(folder)
    directory.create_topic("t", 1)
    directory.close()
    assert orjson.loads((folder / "checkpoint.json").read_bytes())["t-0"][2] == 0
    killed(DataDirectory(folder))
    assert orjson.loads((folder / "checkpoint.json").read_bytes())["t-0"][2] == -1


def test_damage_survives_every_way_of_opening(folder: Path) -> None:
    directory = DataDirectory(folder)
    log = directory.create_topic("t", 1).partitions[0]
    fill(log, 9)
    path = segment_file(log)
    flip(path, 300)
    directory.close()
    for _ in range(3):
        assert faults(folder) == [f"{path.name}: damage"]
        killed(DataDirectory(folder))
        DataDirectory(folder).close()


def test_the_more_partitions_the_less_of_each_is_read_again(folder: Path) -> None:
    directory = DataDirectory(folder)
    few = directory.create_topic("few", 1).partitions[0]
    assert few.snapshot_interval == 64 << 20
    many = directory.create_topic("many", 999).partitions
    assert {log.snapshot_interval for log in (few, *many)} == {268_435}
    for number in range(100):
        add(many[0], records("x"), (1, 0, number))
        many[0].sync()
    assert many[0].next_offset - many[0].recovery_offset < 40
    assert 2 <= len(many[0].snapshots()) <= 4
    killed(directory)
    directory = DataDirectory(folder)
    log = directory.topics["many"].partitions[0]
    assert log.next_offset - log.recovery_offset < 40
    assert add(log, records("x"), (1, 0, 99)).duplicate
    directory.close()


# -- topics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\n"])
def test_names_that_kafka_does_not_take(name: str) -> None:
    with pytest.raises(InvalidTopic):
        check_topic_name(name)


@pytest.mark.parametrize("name", ["a", "...", "A.b_c-9", "x" * 249])
def test_names_that_it_takes(name: str) -> None:
    check_topic_name(name)


def test_topics_are_made_once(folder: Path) -> None:
    directory = DataDirectory(folder, {"retention.ms": "77"})
    topic = directory.create_topic("a.b", 3, {"segment.bytes": "1000"})
    assert [log.name for log in topic.partitions] == ["a.b-0", "a.b-1", "a.b-2"]
    assert (topic.config.retention_ms, topic.config.segment_bytes) == (77, 1000)
    assert directory.topic_by_id(topic.topic_id) is topic
    assert directory.topic_by_id(uuid.uuid4()) is None
    assert directory.topic_by_id(None) is None
    with pytest.raises(TopicExists):
        directory.create_topic("a.b", 1)
    with pytest.raises(InvalidTopic, match=r"collides with a\.b"):
        directory.create_topic("a_b", 1)
    for count in (0, -1, 10_001):
        with pytest.raises(InvalidPartitions):
            directory.create_topic("c", count)
    for settings in ({"retention.ms": "soon"}, {"no.such": "1"}):
        with pytest.raises(InvalidConfig):
            directory.create_topic("c", 1, settings)
    with pytest.raises(UnknownTopic):
        directory.topic("c")
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["a.b-0", "a.b-1", "a.b-2"]
    directory.close()


def test_partitions_are_added_and_never_taken_away(folder: Path) -> None:
    directory = DataDirectory(folder)
    directory.create_topic("t", 2)
    added = directory.add_partitions("t", 4)
    assert [log.name for log in added] == ["t-2", "t-3"]
    for total in (4, 3, 0, 10_001):
        with pytest.raises(InvalidPartitions):
            directory.add_partitions("t", total)
    killed(directory)
    directory = DataDirectory(folder)
    assert len(directory.topics["t"].partitions) == 4
    directory.close()


def test_settings_reach_the_partitions_and_stay(folder: Path) -> None:
    directory = DataDirectory(folder)
    topic = directory.create_topic("t", 2, {"retention.ms": "1"})
    directory.set_config("t", {"cleanup.policy": "compact"})
    for log in topic.partitions:
        assert log.config.compact and log.config.retention_ms == 604_800_000
    with pytest.raises(InvalidConfig):
        directory.set_config("t", {"retention.ms": "x"})
    killed(directory)
    directory = DataDirectory(folder)
    assert directory.topics["t"].overrides == {"cleanup.policy": "compact"}
    directory.close()


def test_the_data_directory_is_no_archive(folder: Path) -> None:
    """Segments that retention moved there would be part of the log again."""
    directory = DataDirectory(folder)
    directory.create_topic("t", 1)
    for settings in ({"headwater.archive.dir": str(folder)}, {"headwater.archive.dir": f"{folder}/x/.."}):
        with pytest.raises(InvalidConfig, match="the data directory itself"):
            directory.create_topic("u", 1, settings)
        with pytest.raises(InvalidConfig):
            directory.set_config("t", settings)
    directory.close()


def test_a_deleted_topic_is_gone_and_a_new_one_of_its_name_is_empty(folder: Path) -> None:
    directory = DataDirectory(folder)
    old = directory.create_topic("t", 2)
    fill(old.partitions[0], 5)
    paths = directory.delete_topic("t")
    assert len(paths) == 2
    assert "t" not in directory.topics and directory.topic_by_id(old.topic_id) is None
    new = directory.create_topic("t", 1)
    assert new.topic_id != old.topic_id
    fill(new.partitions[0], 2)
    with pytest.raises(UnknownTopic):
        old.partitions[0].read(0, 100, 5)
    with pytest.raises(UnknownTopic):
        add(old.partitions[0], records("x"))
    directory.remove(paths)
    for again in (directory, None):
        if again is None:
            killed(directory)
            directory = DataDirectory(folder)
        assert len(contents(directory.topics["t"].partitions[0])) == 2
    directory.close()
    assert faults(folder) == []


def test_the_longest_name_can_be_deleted_and_made_again(folder: Path) -> None:
    """What is set aside is named after it, and no file's name has more than 255 bytes."""
    directory = DataDirectory(folder)
    name = "t" * 249
    for _ in range(2):
        for log in directory.create_topic(name, 12).partitions:
            fill(log, 1)
        paths = directory.delete_topic(name)
        assert len(paths) == 12
    stray = folder / f"{name}-0"
    stray.mkdir()
    (stray / "notes").write_text("important")
    assert contents(directory.create_topic(name, 1).partitions[0]) == []
    (aside,) = folder.glob("*-stray")
    assert (aside / "notes").exists()
    killed(directory)
    directory = DataDirectory(folder)
    assert not list(folder.glob("*-delete"))
    directory.close()


def test_deletions_are_not_remembered_for_ever(folder: Path) -> None:
    directory = DataDirectory(folder)
    for _ in range(5):
        directory.create_topic("t", 1)
        directory.remove(directory.delete_topic("t"))
    directory.create_topic("t", 1)
    assert orjson.loads((folder / "catalog.json").read_bytes())["deleting"] == {}
    directory.close()


# -- crashes ---------------------------------------------------------------------------------------


def prepared(folder: Path) -> DataDirectory:
    directory = DataDirectory(folder / "data")
    fill(directory.create_topic("other", 1).partitions[0], 3)
    return directory


def check_copies(copies: list[Path], expected: set[int | None], topic: str = "t") -> list[int | None]:
    """The number of partitions that the topic has in each copy, None where there is no such topic."""
    seen: list[int | None] = []
    for copy in copies:
        directory = DataDirectory(copy)
        found = directory.topics.get(topic)
        seen.append(None if found is None else len(found.partitions))
        assert len(contents(directory.topics["other"].partitions[0])) == 3
        if found is None:
            made = directory.create_topic(topic, 2)
            assert contents(made.partitions[0]) == []
            fill(made.partitions[0], 1)
        killed(directory)
        directory = DataDirectory(copy)
        assert topic in directory.topics
        directory.close()
        assert faults(copy) == [], copy
        assert not list(copy.glob("*-stray")) and not list(copy.glob("*-delete"))
    assert set(seen) == expected
    return seen


def test_a_crash_at_every_step_of_a_creation(folder: Path) -> None:
    directory = prepared(folder)
    with crash_points(directory.path, folder / "copies") as copies:
        directory.create_topic("t", 3)
    killed(directory)
    assert len(copies) > 5
    seen = check_copies(copies, {None, 3})
    assert seen == sorted(seen, key=lambda count: count or 0), "once it is there, it stays"


def test_a_crash_at_every_step_of_adding_partitions(folder: Path) -> None:
    directory = prepared(folder)
    directory.create_topic("t", 2)
    with crash_points(directory.path, folder / "copies") as copies:
        directory.add_partitions("t", 4)
    killed(directory)
    for copy in copies:
        # What is left of the partitions that were not added is found, and made anew when they are.
        again = DataDirectory(copy)
        if len(again.topics["t"].partitions) == 2:
            again.add_partitions("t", 4)
        assert len(again.topics["t"].partitions) == 4
        again.close()
        assert faults(copy) == []


def test_a_crash_at_every_step_of_a_deletion(folder: Path) -> None:
    directory = prepared(folder)
    for log in directory.create_topic("t", 3).partitions:
        fill(log, 2)
    with crash_points(directory.path, folder / "copies") as copies:
        directory.remove(directory.delete_topic("t"))
    killed(directory)
    assert len(copies) > 10
    seen = check_copies(copies, {None, 3})
    assert seen == sorted(seen, key=lambda count: -(count or 0)), "once it is gone, it stays gone"


def test_a_crash_at_every_step_of_closing_and_opening(folder: Path) -> None:
    directory = prepared(folder)
    for log in directory.create_topic("t", 2).partitions:
        fill(log, 2)
        add(log, records("x"), (1, 0, 0))
        log.sync()
    with crash_points(directory.path, folder / "copies") as copies:
        directory.close()
        directory = DataDirectory(directory.path)
    killed(directory)
    assert len(copies) > 10
    for copy in copies:
        directory = DataDirectory(copy)
        for log in directory.topics["t"].partitions:
            assert log.next_offset == 3
            assert add(log, records("x"), (1, 0, 0)).duplicate
        directory.close()
        assert faults(copy) == []


def test_somebody_elses_directory_is_set_aside_not_overwritten(folder: Path) -> None:
    directory = prepared(folder)
    stray = DataDirectory(folder / "another")
    fill(stray.create_topic("t", 1).partitions[0], 7)
    stray.close()
    shutil.copytree(folder / "another" / "t-0", directory.path / "t-0")
    topic = directory.create_topic("t", 1)
    assert contents(topic.partitions[0]) == []
    (aside,) = directory.path.glob("t-0.*-stray")
    assert (aside / f"{0:020d}.log").stat().st_size > 0
    directory.close()


def test_what_is_not_ours_is_never_removed(folder: Path) -> None:
    directory = prepared(folder)
    for name in ("notes-1", "t-0"):
        (directory.path / name).mkdir()
        (directory.path / name / "todo.txt").write_text("important")
    (directory.path / "empty-1").mkdir()
    directory.close()
    directory = DataDirectory(directory.path)
    directory.create_topic("t", 1)
    assert (directory.path / "notes-1" / "todo.txt").exists()
    (aside,) = directory.path.glob("t-0.*-stray")
    assert (aside / "todo.txt").exists()
    assert not (directory.path / "empty-1").exists()
    directory.close()


def test_topics_come_and_go_while_another_thread_looks_at_all_partitions(folder: Path) -> None:
    directory = DataDirectory(folder)
    for number in range(5):
        directory.create_topic(f"t{number}", 1)
    walk = iter(directory.partitions())
    seen = [next(walk).name]
    directory.create_topic("new", 1)
    directory.delete_topic("t4")
    seen += [log.name for log in walk]
    assert len(seen) == 5
    directory.close()


def test_ids_as_kafka_prints_them() -> None:
    assert kafka_uuid(uuid.UUID(int=(1 << 128) - 1)) == "_____________________w"


# -- whose it is -----------------------------------------------------------------------------------


def test_a_directory_of_somebody_else_is_refused_and_left_as_it_is(folder: Path) -> None:
    for name in ("notes.txt", "photos", "b", "c", "d"):
        (folder / name).mkdir()
    cause = "it is not a data directory: it has no meta.properties, but b, c, d and 2 more"
    with pytest.raises(DirectoryInvalid, match=cause) as refused:
        DataDirectory(folder)
    assert str(folder) in str(refused.value)
    assert {path.name for path in folder.iterdir()} == {"notes.txt", "photos", "b", "c", "d"}


def test_partitions_alone_do_not_make_a_data_directory(folder: Path) -> None:
    directory = DataDirectory(folder)
    fill(directory.create_topic("t", 1).partitions[0], 3)
    directory.close()
    for name in ("meta.properties", "catalog.json"):
        (folder / name).rename(folder.with_name(f"{folder.name}-{name}"))
    with pytest.raises(DirectoryInvalid, match="not a data directory"):
        DataDirectory(folder)
    (folder.with_name(f"{folder.name}-catalog.json")).rename(folder / "catalog.json")
    directory = DataDirectory(folder)
    assert len(contents(directory.topics["t"].partitions[0])) == 3, "a new identity, the same records"
    directory.close()


@pytest.mark.parametrize("names", [(), ("lost+found",), (".lock",), (".lock", "meta.properties.tmp")])
def test_a_new_file_system_or_a_start_cut_short_is_no_obstacle(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (folder / name).mkdir() if name == "lost+found" else (folder / name).write_bytes(b"")
    directory = DataDirectory(folder)
    directory.create_topic("t", 1)
    directory.close()
    directory = DataDirectory(folder)
    assert list(directory.topics) == ["t"]
    directory.close()


def test_other_things_may_lie_beside_the_log(folder: Path) -> None:
    identity = claim(folder)
    (folder / "views.db").write_bytes(b"")
    directory = DataDirectory(folder)
    assert (directory.cluster_id, directory.node_id) == identity
    directory.close()
    assert (folder / "views.db").exists()


def test_a_directory_that_kafka_formatted_keeps_its_identity(folder: Path) -> None:
    (folder / "meta.properties").write_text("#\nnode.id=7\nversion=1\ncluster.id=abc\ndirectory.id=x\n")
    (folder / "bootstrap.checkpoint").write_bytes(b"")
    directory = DataDirectory(folder)
    assert (directory.cluster_id, directory.node_id) == ("abc", 7)
    directory.close()
