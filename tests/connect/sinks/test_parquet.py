"""The history of a topic as Parquet files, read back with DuckDB."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.writer import Writer
from headwater.connect.sinks.factory import parquet as declare
from headwater.connect.sinks.sink import Sink
from headwater.errors import RecordsMissed, SinkImpossible
from tests.connect.sinks.following import (
    Pair,
    caught_up,
    dead_of,
    delete,
    event,
    following,
    key,
    produce,
    until,
    upsert,
)


def sink_of(directory: Path, topic: str, **options: Any) -> Sink:
    return declare(str(directory), topic=topic, **options).make(directory)


def query(directory: Path, topic: str, columns: str, rest: str = "") -> list[tuple[Any, ...]]:
    files = f"read_parquet('{directory}/{topic}/*.parquet', union_by_name=true)"
    return duckdb.sql(f"SELECT {columns} FROM {files} {rest} ORDER BY _partition, _offset").fetchall()


def names(directory: Path, topic: str) -> list[str]:
    return sorted(path.name for path in (directory / topic).glob("*.parquet"))


def follow(connection: Connection, directory: Path, topic: str, records: list[Pair], **options: Any) -> None:
    produce(connection, topic, records)
    with following(connection, sink_of(directory, topic, **options)) as worker:
        until(caught_up(worker, len(records)))


def test_every_record_is_a_line_with_its_operation_and_place(
    connection: Connection, tmp_path: Path, topic: str
) -> None:
    records = [
        upsert({"id": 1, "name": "a", "tags": ["x"]}, "r"),
        upsert({"id": 1, "name": "b", "tags": None}, "u"),
    ]
    records += [*delete(1), (key(2), b'{"id":2,"name":"plain"}'), (None, event("t"))]
    records += [(key(3), event("u", {"id": 3, "name": "old"}, {"id": 3, "name": "new", "_op": "mine"}))]
    follow(connection, tmp_path, topic, records)
    assert names(tmp_path, topic) == ["00000-00000000000000000000-00000000000000000007.parquet"]
    assert query(tmp_path, topic, "_op, _key, _offset, id, name, tags, _before, _op_") == [
        ("r", '{"id":1}', 0, 1, "a", '["x"]', None, None),
        ("u", '{"id":1}', 1, 1, "b", None, None, None),
        ("d", '{"id":1}', 2, 1, None, None, '{"id":1,"name":null}', None),
        ("tombstone", '{"id":1}', 3, None, None, None, None, None),
        (None, '{"id":2}', 4, 2, "plain", None, None, None),
        ("t", None, 5, None, None, None, None, None),
        ("u", '{"id":3}', 6, 3, "new", None, '{"id":3,"name":"old"}', "mine"),
    ]
    (times,) = query(tmp_path, topic, "epoch_ms(_source_time), _log_time > _source_time", "WHERE _offset = 0")
    assert times == (1_700_000_000_000, True)


def test_a_topic_made_anew_is_followed_when_the_files_are_gone(
    connection: Connection, tmp_path: Path, topic: str
) -> None:
    follow(connection, tmp_path, topic, [upsert({"id": 1})])
    Admin(connection).delete_topic(topic)
    produce(connection, topic, [upsert({"id": number}) for number in (2, 3)])
    with (
        pytest.raises(RecordsMissed, match=r"made anew.*Move its files elsewhere"),
        following(connection, sink_of(tmp_path, topic)) as worker,
    ):
        until(lambda: worker.status().state == "failed")
    for name in names(tmp_path, topic):
        (tmp_path / topic / name).rename(tmp_path / name)
    follow(connection, tmp_path, topic, [])
    assert query(tmp_path, topic, "id") == [(2,), (3,)]


def test_files_end_by_rows_and_by_time_and_it_goes_on_behind_them(
    connection: Connection, tmp_path: Path, topic: str
) -> None:
    produce(connection, topic, [upsert({"id": number}) for number in range(10)])
    with following(connection, sink_of(tmp_path, topic, seconds=0.3)) as worker:
        until(lambda: len(names(tmp_path, topic)) == 1)
        produce(connection, topic, [upsert({"id": number}) for number in range(10, 15)])
        until(lambda: len(names(tmp_path, topic)) == 2)
        until(lambda: worker.status().counts.written == 15)
    follow(connection, tmp_path, topic, [upsert({"id": 15})], rows=1, seconds=1e9)
    assert [name[6:] for name in names(tmp_path, topic)] == [
        f"{start:020d}-{end:020d}.parquet" for start, end in ((0, 10), (10, 15), (15, 16))
    ]
    assert [id for (id,) in query(tmp_path, topic, "id")] == list(range(16))


def test_types_stay_what_they_were(connection: Connection, tmp_path: Path, topic: str) -> None:
    """In files of their own: null, then whole numbers, then none of them, then fractions, then a text."""
    rows: list[dict[str, Any]] = [
        {"id": 1, "n": None, "u": 2**64 - 1, "b": True},
        {"id": 2, "n": 5, "u": 1, "b": None},
        {"id": 3, "u": 2, "b": False},
        {"id": 4, "n": 0.5, "u": 3},
        {"id": "five", "n": 6, "u": None},
    ]
    for row in rows:
        follow(connection, tmp_path, topic, [upsert(row)])
    files = [tmp_path / topic / name for name in names(tmp_path, topic)]
    kinds = [
        dict(duckdb.sql(f"SELECT name, type FROM parquet_schema('{file}')").fetchall()) for file in files
    ]
    assert ["n" in each for each in kinds] == [False, True, True, True, True]
    assert [each.get("n") for each in kinds[1:]] == ["INT64", "INT64", "DOUBLE", "DOUBLE"]
    assert [each["id"] for each in kinds] == ["INT64"] * 4 + ["BYTE_ARRAY"]
    assert {each["u"] for each in kinds} == {"BYTE_ARRAY"} and {each["b"] for each in kinds} == {"BOOLEAN"}
    assert query(tmp_path, topic, "id, n, u, b") == [
        ("1", None, str(2**64 - 1), True),
        ("2", 5.0, "1", None),
        ("3", None, "2", False),
        ("4", 0.5, "3", None),
        ("five", 6.0, None, None),
    ]


def test_types_within_one_file(connection: Connection, tmp_path: Path, topic: str) -> None:
    """Parts of a file that were read one after the other, the last with a text."""
    produce(connection, topic, [upsert({"id": 1, "n": 1})])
    with following(connection, sink_of(tmp_path, topic)) as worker:
        until(caught_up(worker, 1))
        produce(connection, topic, [upsert({"id": 2, "n": 1.5})])
        until(caught_up(worker, 2))
        produce(connection, topic, [upsert({"id": 3, "n": "x"}), upsert({"id": 4, "n": {"a": 1}})])
        until(caught_up(worker, 4))
    assert query(tmp_path, topic, "n") == [("1",), ("1.5",), ("x",), ('{"a":1}',)]


def test_what_is_no_row_is_set_aside_once(connection: Connection, tmp_path: Path, topic: str) -> None:
    follow(connection, tmp_path, topic, [(key(1), b"no JSON"), (key(2), b"3")])
    follow(connection, tmp_path, topic, [])
    assert [headers["headwater.offset"] for *_, headers in dead_of(connection, topic)] == ["0", "1"]
    follow(connection, tmp_path, topic, [upsert({"id": 3})])
    assert query(tmp_path, topic, "_offset, id") == [(2, 3)]


def test_times_that_are_none_and_names_like_ours(connection: Connection, tmp_path: Path, topic: str) -> None:
    config = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    Admin(connection).create_topic(topic, 1, configs=config)
    with Writer(connection) as writer:
        for moment in (5, 2**60, 2**64 - 1):  # the second is of who counts in nanoseconds
            row = {"id": 1, "_op": "mine", "_op_": "theirs"}
            value = {"op": "c", "before": None, "after": row, "source": {"ts_ms": moment}}
            writer.write(topic, json.dumps(value).encode(), key(1), timestamp=min(moment, 2**60))
    with following(connection, sink_of(tmp_path, topic)) as worker:
        until(caught_up(worker, 3))
    found = query(tmp_path, topic, "epoch_ms(_log_time), epoch_ms(_source_time), _op, _op__, _op_")
    named = ("c", "mine", "theirs")
    assert found == [(5, 5, *named), (None, None, *named), (None, None, *named)]


def test_several_partitions(connection: Connection, tmp_path: Path, topic: str) -> None:
    produce(connection, topic, [upsert({"id": number}) for number in range(300)], partitions=3)
    with following(connection, sink_of(tmp_path, topic)) as worker:
        until(caught_up(worker, 300))
    assert [name[:5] for name in names(tmp_path, topic)] == ["00000", "00001", "00002"]
    assert {id for (id,) in query(tmp_path, topic, "id")} == set(range(300))


def test_leftovers_are_removed_and_only_one_writes(
    connection: Connection, tmp_path: Path, topic: str
) -> None:
    (tmp_path / topic).mkdir()
    leftover = tmp_path / topic / ".part-00000-00000000000000000000-00000000000000000007.parquet"
    leftover.write_bytes(b"half a file")
    produce(connection, topic, [upsert({"id": 1})])
    with following(connection, sink_of(tmp_path, topic)) as first:
        until(caught_up(first, 1))
        with following(connection, sink_of(tmp_path, topic)) as second:
            until(lambda: "another process" in second.status().error)
    assert not leftover.exists()
    assert len(query(tmp_path, topic, "id")) == 1


def test_files_that_overlap_are_refused(connection: Connection, tmp_path: Path, topic: str) -> None:
    follow(connection, tmp_path, topic, [upsert({"id": number}) for number in range(10)])
    (file,) = (tmp_path / topic).glob("*.parquet")
    file.with_name(file.name.replace("00000000000000000000-", "00000000000000000005-")).write_bytes(
        file.read_bytes()
    )
    with (
        pytest.raises(SinkImpossible, match="another file"),
        following(connection, sink_of(tmp_path, topic)) as it,
    ):
        until(lambda: it.status().state == "failed")


def test_keys_are_json(connection: Connection, tmp_path: Path, topic: str) -> None:
    schema_key = json.dumps({"schema": {}, "payload": {"id": 1}}).encode()
    follow(connection, tmp_path, topic, [(schema_key, b"{}"), (b"user-1", b"{}"), (None, b'{"a":1}')])
    assert query(tmp_path, topic, "_key") == [('{"id":1}',), ("user-1",), (None,)]
