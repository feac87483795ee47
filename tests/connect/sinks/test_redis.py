"""Redis kept in step with a topic, against a real Redis."""

import json
import threading
import time
from pathlib import Path

import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.connect.sinks.factory import redis as declare
from headwater.connect.sinks.resp import RedisAddress, RedisConnection, command
from headwater.connect.sinks.sink import Sink
from headwater.connect.sinks.worker import SinkWorker
from headwater.errors import ApplicationInvalid, RecordsMissed, SinkImpossible, TakenOver
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
from tests.support.redis import Redis


def sink_of(redis: Redis, topic: str, **options: object) -> Sink:
    return declare(redis.url, topic=topic, **options).make(Path())  # type: ignore[arg-type]


def follow(connection: Connection, redis: Redis, topic: str, records: list[Pair], **options: object) -> None:
    """Writes records, and lets a sink take them."""
    produce(connection, topic, records)
    with following(connection, sink_of(redis, topic, **options)) as worker:
        until(caught_up(worker, len(records)))


def rows(redis: Redis, prefix: str) -> dict[str, object]:
    return {
        name.removeprefix(f"{prefix}:"): json.loads(value)
        for name, value in redis.rows(f"{prefix}:*").items()
    }


def test_rows_follow_changes_deletes_and_changed_keys(
    connection: Connection, redis: Redis, topic: str
) -> None:
    records = [
        upsert({"id": 1, "name": "a"}, "r"),
        upsert({"id": 2, "name": "b"}),
        upsert({"id": 3, "name": None}),
    ]
    records += [upsert({"id": 1, "name": "ä", "big": 2**63, "sum": 0.1}, "u")]
    records += [*delete(2), upsert({"id": 20, "name": "b"})]  # as a changed key arrives
    records += [*delete(3)]
    follow(connection, redis, topic, records)
    assert rows(redis, topic) == {
        "1": {"id": 1, "name": "ä", "big": 2**63, "sum": 0.1},
        "20": {"id": 20, "name": "b"},
    }
    assert redis.ask("HGET", f"headwater:sink:{topic}.redis", f"{topic}-0") == str(len(records)).encode()


def test_all_forms_of_records(connection: Connection, redis: Redis, topic: str) -> None:
    schema_key = json.dumps({"schema": {"type": "struct"}, "payload": {"id": 1}}).encode()
    records: list[Pair] = [
        (schema_key, event("c", None, {"id": 1, "v": "with a schema"}, schema=True)),
        (key(2), b'{"id":2,"v":"plain"}'),
        (b'{"window":"x","page":"a:b"}', b'{"window":"x","page":"a:b","count":3}'),
        (b'{"window":"x:a","page":"b"}', b'{"window":"x:a","page":"b","count":4}'),
        (b"user-7", b'{"v":"a key that is no JSON"}'),
        (key(9), b'{"v":1}'),
        (key(9), None),
        (b"\xff\x00", b'{"v":"bytes"}'),
    ]
    follow(connection, redis, topic, records)
    assert rows(redis, topic) == {
        "1": {"id": 1, "v": "with a schema"},
        "2": {"id": 2, "v": "plain"},
        "x:a%3Ab": {"window": "x", "page": "a:b", "count": 3},
        "x%3Aa:b": {"window": "x:a", "page": "b", "count": 4},
        "user-7": {"v": "a key that is no JSON"},
        "0xff00": {"v": "bytes"},
    }


def test_hashes_lose_columns_that_a_row_no_longer_has(
    connection: Connection, redis: Redis, topic: str
) -> None:
    records = [
        upsert({"id": 1, "name": "a", "old": 1}),
        upsert({"id": 1, "name": None, "tags": ["x"], "ok": True}),
    ]
    produce(connection, topic, records[:1])
    with following(connection, sink_of(redis, topic, key=topic + "/{id}!", form="hash", ttl=300)) as worker:
        until(caught_up(worker, 1))
        assert redis.ask("HGET", f"{topic}/1!", "old") == b"1"
        produce(connection, topic, records[1:])
        until(caught_up(worker, 2))
    flat = redis.ask("HGETALL", f"{topic}/1!")
    assert dict(zip(flat[::2], flat[1::2], strict=True)) == {b"id": b"1", b"tags": b'["x"]', b"ok": b"true"}
    assert 200_000 < redis.ask("PTTL", f"{topic}/1!") <= 300_000


def test_rows_expire(connection: Connection, redis: Redis, topic: str) -> None:
    follow(connection, redis, topic, [upsert({"id": 1})], ttl=0.3)
    until(lambda: not rows(redis, topic), 5)


def test_truncate_empties_what_came_before_it(connection: Connection, redis: Redis, topic: str) -> None:
    produce(connection, topic, [upsert({"id": number}) for number in range(6000)])
    with following(connection, sink_of(redis, topic)) as worker:
        until(caught_up(worker, 6000))
        assert len(rows(redis, topic)) == 6000
        redis.ask("SET", f"{topic}:somebody else's", b"1")
        later = [upsert({"id": 6001}), (None, event("t")), upsert({"id": 1, "again": True})]
        produce(connection, topic, later)
        until(caught_up(worker, 6003))
    assert rows(redis, topic) == {"1": {"id": 1, "again": True}, "somebody else's": 1}


def test_a_table_without_a_key_is_followed_by_columns_of_its_rows(
    connection: Connection, redis: Redis, topic: str
) -> None:
    records: list[Pair] = [
        (None, event("c", None, {"id": 1, "v": "a"})),
        (None, event("c", None, {"id": 2, "v": "b"})),
        (None, event("u", {"id": 1, "v": "a"}, {"id": 3, "v": "a"})),
        (None, event("d", {"id": 2, "v": "b"})),
        (None, None),
    ]
    follow(connection, redis, topic, records, key=topic + ":{id}")
    assert rows(redis, topic) == {"3": {"id": 3, "v": "a"}}


def test_what_cannot_be_used_is_set_aside_and_the_rest_goes_on(
    connection: Connection, redis: Redis, topic: str
) -> None:
    records: list[Pair] = [
        upsert({"id": 1}),
        (key(2), b"no JSON"),
        (None, b'{"id":3}'),
        (key(4), b"[1]"),
        (key(5), event("x")),
        upsert({"id": 6}),
    ]
    produce(connection, topic, records)
    with following(connection, sink_of(redis, topic)) as worker:
        until(caught_up(worker, 6))
        assert worker.status().counts.dead == 4
    assert set(rows(redis, topic)) == {"1", "6"}
    found = dead_of(connection, topic)
    assert [(each, value) for each, value, _ in found] == records[1:5]
    assert [headers["headwater.offset"] for _, _, headers in found] == ["1", "2", "3", "4"]
    assert [headers["headwater.reason"].split(":")[0] for _, _, headers in found] == [
        "its value is not JSON",
        "it has no key; name columns of its row in a template to follow it all the same",
        "its value is not a JSON object",
        "it is no change event",
    ]


def test_what_cannot_be_used_hides_no_older_record_of_its_key(
    connection: Connection, redis: Redis, topic: str
) -> None:
    records: list[Pair] = [upsert({"id": n, "name": "void"}, "r") for n in range(4)]
    records += [(None, event("t"))]
    records += [upsert({"id": 1, "name": "old"}), upsert({"id": 1, "name": "new"})]
    records += [upsert({"id": 2, "name": "gone"}), *delete(2)]
    records += [(key(n), b"not json %d" % again) for n in range(4) for again in range(2)]
    records += [upsert({"id": 3, "name": "after"})]
    follow(connection, redis, topic, records)
    assert rows(redis, topic) == {"1": {"id": 1, "name": "new"}, "3": {"id": 3, "name": "after"}}


def test_several_partitions(connection: Connection, redis: Redis, topic: str) -> None:
    produce(connection, topic, [upsert({"id": number}) for number in range(1000)], partitions=3)
    with following(connection, sink_of(redis, topic)) as worker:
        until(caught_up(worker, 1000))
        assert len(rows(redis, topic)) == 1000
        produce(connection, topic, [pair for number in range(900) for pair in delete(number)])
        until(caught_up(worker, 2800))
        assert worker.status().position.count(":") == 3
    assert set(rows(redis, topic)) == {str(number) for number in range(900, 1000)}


def test_it_goes_on_where_it_was_and_an_emptied_redis_is_filled_again(
    connection: Connection, topic: str
) -> None:
    with Redis() as redis:
        follow(connection, redis, topic, [upsert({"id": number}) for number in range(100)])
        produce(connection, topic, [upsert({"id": 100})])
        with following(connection, sink_of(redis, topic)) as worker:
            until(caught_up(worker, 1))
            assert worker.status().counts.records == 1
        redis.ask("FLUSHALL")
        with following(connection, sink_of(redis, topic)) as worker:
            until(caught_up(worker, 101))
        assert len(rows(redis, topic)) == 101


def test_a_newer_worker_takes_over(connection: Connection, redis: Redis, topic: str) -> None:
    produce(connection, topic, [upsert({"id": 1})])
    with pytest.raises(TakenOver), following(connection, sink_of(redis, topic)) as old:
        until(caught_up(old, 1))
        with following(connection, sink_of(redis, topic)) as new:
            until(lambda: new.status().state == "running")
            produce(connection, topic, [upsert({"id": 2})])
            until(lambda: old.status().state == "failed" and set(rows(redis, topic)) == {"1", "2"})
            produce(connection, topic, [upsert({"id": 3})])
            until(lambda: set(rows(redis, topic)) == {"1", "2", "3"})


def test_a_topic_that_is_not_there_yet_is_waited_for(
    connection: Connection, redis: Redis, topic: str
) -> None:
    with following(connection, sink_of(redis, topic)) as worker:
        until(lambda: worker.status().state == "waiting")
        assert "no such topic" in worker.status().error
        produce(connection, topic, [upsert({"id": 1})])
        until(caught_up(worker, 1))


def test_a_topic_made_anew_stops_it_with_reason(connection: Connection, redis: Redis, topic: str) -> None:
    follow(connection, redis, topic, [upsert({"id": number}) for number in range(10)])
    Admin(connection).delete_topic(topic)
    produce(connection, topic, [upsert({"id": number}) for number in range(20, 40)])  # beyond its position
    with (
        pytest.raises(RecordsMissed, match=f"made anew.*the hash headwater:sink:{topic}.redis"),
        following(connection, sink_of(redis, topic)) as worker,
    ):
        until(lambda: worker.status().state == "failed")
    for name in (f"headwater:sink:{topic}.redis", *(f"{topic}:{number}" for number in range(10))):
        redis.ask("DEL", name)
    follow(connection, redis, topic, [])
    assert set(rows(redis, topic)) == {str(number) for number in range(20, 40)}


def test_a_template_that_leaves_out_a_column_of_the_key_is_refused(
    connection: Connection, redis: Redis, topic: str
) -> None:
    produce(connection, topic, [(b'{"order":1,"line":2}', b'{"order":1,"line":2}')])
    sink = sink_of(redis, topic, key="order:{order}")
    with pytest.raises(SinkImpossible, match="order, line"), following(connection, sink) as worker:
        until(lambda: worker.status().state == "failed")


def test_passwords_and_databases(connection: Connection, topic: str) -> None:
    produce(connection, topic, [upsert({"id": 1})])
    with Redis() as server:
        server.ask("CONFIG", "SET", "requirepass", "a right: one")
        right = server.url.replace("redis://", "redis://:a%20right%3A%20one@") + "/2"
        wrong = server.url.replace("redis://", "redis://:secret@")
        with (
            pytest.raises(SinkImpossible, match="WRONGPASS") as raised,
            following(connection, declare(wrong, topic=topic).make(Path())) as worker,
        ):
            until(lambda: worker.status().state == "failed")
        assert "secret" not in str(raised.value)
        with following(connection, declare(right, topic=topic).make(Path())) as worker:
            until(caught_up(worker, 1))
        look = RedisConnection(RedisAddress(right))
        assert look.ask([command(b"GET", f"{topic}:1".encode())]) == [b'{"id":1}']
        look.close()


def test_a_name_that_no_server_can_have_stops_it(connection: Connection, topic: str) -> None:
    produce(connection, topic, [upsert({"id": 1})])
    sink = declare(f"redis://{'a' * 70}", topic=topic).make(Path())
    with pytest.raises(SinkImpossible, match="no name of a server"), following(connection, sink) as worker:
        until(lambda: worker.status().state == "failed")


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://x"},
        {"url": "redis://h:port"},
        {"key": "user"},
        {"key": "user:{id"},
        {"key": "user:{id!r}"},
        {"form": "xml"},
        {"ttl": -1},
        {"ttl": float("inf")},
        {"format": "avro"},
        {"on_gap": "hope"},
        {"topic": "a b"},
    ],
)
def test_wrong_declarations_are_refused_at_once(wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"url": "redis://h", "topic": "t", **wrong}
    with pytest.raises(ApplicationInvalid):
        declare(str(arguments.pop("url")), **arguments)  # type: ignore[arg-type]


def test_one_who_was_away_for_longer_than_deletes_are_kept_says_so(
    connection: Connection, redis: Redis, topic: str
) -> None:
    configs = {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
    Admin(connection).create_topic(topic, 1, configs=configs)
    follow(connection, redis, topic, [upsert({"id": 1})])
    for away, said in ((30.0, 0), (90.0, 1)):
        worker = SinkWorker(connection, sink_of(redis, topic), time.time() - away)
        stopping = threading.Event()
        threading.Thread(target=worker.run, args=(stopping,)).start()
        until(lambda worker=worker: worker.status().state == "running")  # type: ignore[misc]
        stopping.set()
        assert len(worker.status().notes) == said
