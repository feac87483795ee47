"""Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

import time
import uuid
from typing import Any

from headwater.log.records import build_batch
from tests.broker.conformance.script import Run, batch, script
from tests.broker.conformance.transactional import end, init, settled

HOUR = 3_600_000


def fetch(
    run: Run,
    step: str,
    version: int,
    topics: list[dict[str, Any]],
    *,
    wait: int = 0,
    least: int = 0,
    most: int = 50 << 20,
    session: tuple[int, int] = (0, -1),
    isolation: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """A Fetch request; the topics' fields are filled up."""
    if version >= 7:
        more |= {"session_id": session[0], "session_epoch": session[1]}
    if version < 15:
        more.setdefault("replica_id", -1)
    listed = [
        topic | {"partitions": [_target(version, **item) for item in topic["partitions"]]} for topic in topics
    ]
    return run.call(
        step,
        "fetch",
        version,
        max_wait=wait,
        min_bytes=least,
        max_bytes=most,
        isolation_level=isolation,
        topics=listed,
        **more,
    )


def _target(
    version: int, partition: int = 0, offset: int = 0, most: int = 1 << 20, epoch: int = -1
) -> dict[str, Any]:
    target = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": most}
    if version >= 5:
        target["log_start_offset"] = -1
    if version >= 9:
        target["current_leader_epoch"] = epoch
    if version >= 12:
        target["last_fetched_epoch"] = -1
    return target


@script
def fetches_of_every_version(run: Run) -> None:
    topic = run.topic()
    topic_id = run.topic_id("topic")
    run.produce("three", 9, topic, batch("a", "b", "c"))
    run.produce("two", 9, topic, batch("d", "e"))
    for version in range(4, 19):
        named: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
        fetch(run, f"v{version}", version, [{**named, "partitions": [{}]}])
        fetch(run, f"v{version} in mid-batch", version, [{**named, "partitions": [{"offset": 1}]}])
        fetch(run, f"v{version} at the end", version, [{**named, "partitions": [{"offset": 5}]}])
        fetch(run, f"v{version} past the end", version, [{**named, "partitions": [{"offset": 6}]}])
        fetch(run, f"v{version} unknown partition", version, [{**named, "partitions": [{"partition": 4}]}])
        unknown: dict[str, Any] = (
            {"topic_id": uuid.UUID(int=5)} if version >= 13 else {"topic": run.name("missing")}
        )
        fetch(run, f"v{version} unknown topic", version, [{**unknown, "partitions": [{}]}])


@script
def fetches_with_odd_numbers(run: Run) -> None:
    topic = run.topic()
    run.produce("one", 9, topic, batch("a" * 100))
    run.produce("two", 9, topic, batch("b" * 100))
    named = {"topic": topic}
    fetch(run, "negative offset", 11, [{**named, "partitions": [{"offset": -1}]}])
    fetch(run, "huge offset", 11, [{**named, "partitions": [{"offset": 2**62}]}])
    fetch(run, "partition bytes 0", 11, [{**named, "partitions": [{"most": 0}]}])
    fetch(run, "partition bytes -1", 11, [{**named, "partitions": [{"most": -1}]}])
    fetch(run, "partition bytes 10", 11, [{**named, "partitions": [{"most": 10}]}])
    fetch(run, "partition bytes for one", 11, [{**named, "partitions": [{"most": 200}]}])
    fetch(run, "bytes 0", 11, [{**named, "partitions": [{}]}], most=0)
    fetch(run, "bytes -1", 11, [{**named, "partitions": [{}]}], most=-1)
    fetch(run, "bytes 10", 11, [{**named, "partitions": [{}]}], most=10)
    fetch(run, "old leader epoch", 11, [{**named, "partitions": [{"epoch": -5}]}])
    fetch(run, "this leader epoch", 11, [{**named, "partitions": [{"epoch": 0}]}])
    fetch(run, "a later leader epoch", 11, [{**named, "partitions": [{"epoch": 3}]}])
    fetch(run, "negative wait", 11, [{**named, "partitions": [{"offset": 2}]}], wait=-5, least=1)
    fetch(run, "wait 10 ms", 11, [{**named, "partitions": [{"offset": 2}]}], wait=10, least=1)
    fetch(run, "isolation 7", 11, [{**named, "partitions": [{}]}], isolation=7)
    fetch(run, "nothing", 11, [])
    fetch(run, "a topic without partitions", 11, [{**named, "partitions": []}])
    fetch(run, "the same twice", 11, [{**named, "partitions": [{}, {"offset": 1}]}])
    fetch(run, "as a follower that is not one", 11, [{**named, "partitions": [{}]}], replica_id=77)


@script
def fetch_sessions(run: Run) -> None:
    topic = run.topic(partitions=3)
    named = {"topic": topic}
    fetch(run, "a session nobody has", 11, [], session=(4711, 3))
    fetch(run, "an epoch without a session", 11, [], session=(0, 3))
    opened = fetch(
        run, "open", 11, [{**named, "partitions": [{"partition": n} for n in range(3)]}], session=(0, 0)
    )
    session = opened["session_id"]
    fetch(run, "nothing new", 11, [], session=(session, 1))
    run.produce("one", 9, topic, batch("a"), partition=1)
    fetch(run, "news", 11, [], session=(session, 2))
    fetch(
        run, "moved on", 11, [{**named, "partitions": [{"partition": 1, "offset": 1}]}], session=(session, 3)
    )
    fetch(
        run,
        "forget one",
        11,
        [],
        session=(session, 4),
        forgotten_topics_data=[{"topic": topic, "partitions": [0]}],
    )
    run.produce("two", 9, topic, batch("a"), partition=0)
    fetch(run, "the forgotten one has news", 11, [], session=(session, 5))
    fetch(run, "the same epoch again", 11, [], session=(session, 5))
    fetch(run, "an epoch skipped", 11, [], session=(session, 9))
    fetch(run, "go on", 11, [], session=(session, 6))
    fetch(
        run,
        "an unknown partition joins",
        11,
        [{**named, "partitions": [{"partition": 9}]}],
        session=(session, 7),
    )
    fetch(run, "it is told again", 11, [], session=(session, 8))
    fetch(run, "close", 11, [], session=(session, -1))
    fetch(run, "after it", 11, [], session=(session, 9))
    fetch(run, "a session of nothing", 11, [], session=(0, 0))


@script
def offsets_by_name_and_time(run: Run) -> None:
    topic = run.topic(partitions=2)
    start = int(time.time() * 1000) - HOUR
    run.produce(
        "past",
        9,
        topic,
        build_batch([(b"k", b"a", (), start), (b"k", b"b", (), start + 20), (b"k", b"c", (), start + 10)]),
    )
    run.produce("later", 9, topic, build_batch([(b"k", b"d", (), start + 30)]))
    run.produce(
        "back in time", 9, topic, build_batch([(b"k", b"e", (), start + 5), (b"k", b"f", (), start + 30)])
    )

    def ask(
        step: str,
        version: int,
        timestamp: int,
        partition: int = 0,
        epoch: int = -1,
        name: str = topic,
        isolation: int = 0,
    ) -> None:
        target: dict[str, Any] = {"partition_index": partition, "timestamp": timestamp}
        if version >= 4:
            target["current_leader_epoch"] = epoch
        more = {"isolation_level": isolation} if version >= 2 else {}
        answer = run.ask(
            "list_offsets", version, replica_id=-1, topics=[{"name": name, "partitions": [target]}], **more
        )
        found = answer["topics"][0]["partitions"][0]
        if found["timestamp"] >= 0:
            found["timestamp"] = f"{found['timestamp'] - start} after the start"
        run.note(step, found)

    for version in range(1, 11):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7):
            ask(f"v{version} {timestamp}", version, timestamp)
    for delta in (-1, 0, 1, 5, 10, 15, 20, 21, 30, 31, HOUR):
        ask(f"at {delta}", 7, start + delta)
    for timestamp in (-1, -2, -3, 0):
        ask(f"{timestamp} of an empty partition", 7, timestamp, partition=1)
        ask(f"{timestamp} of an empty partition, committed", 7, timestamp, partition=1, isolation=1)
    ask("largest timestamp", 7, 2**63 - 1)
    ask("smallest timestamp", 7, -(2**63))
    ask("unknown partition", 7, -1, partition=5)
    ask("unknown topic", 7, -1, name=run.name("missing"))
    ask("this epoch", 7, -1, epoch=0)
    ask("a later epoch", 7, -1, epoch=4)
    run.call(
        "the same partition twice",
        "list_offsets",
        7,
        replica_id=-1,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1},
                    {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2},
                ],
            }
        ],
    )
    run.call("no topics", "list_offsets", 7, replica_id=-1, topics=[])
    run.call(
        "as another broker",
        "list_offsets",
        7,
        replica_id=5,
        topics=[
            {
                "name": topic,
                "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}],
            }
        ],
    )
    run.call(
        "as a debugger",
        "list_offsets",
        7,
        replica_id=-2,
        topics=[
            {
                "name": topic,
                "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}],
            }
        ],
    )


@script
def times_within_transactions(run: Run) -> None:
    topic, txn = run.topic(), run.name("txn")
    start = int(time.time() * 1000) - HOUR
    identity = init(run, "init", 5, txn)

    def ask(step: str, timestamp: int, isolation: int) -> None:
        answer = run.ask(
            "list_offsets",
            7,
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
                    ],
                }
            ],
        )
        found = answer["topics"][0]["partitions"][0]
        if found["timestamp"] >= 0:
            found["timestamp"] = f"{found['timestamp'] - start} after the start"
        run.note(step, found)

    run.produce("plain", 9, topic, build_batch([(b"k", b"a", (), start)]))
    run.produce(
        "in it",
        12,
        topic,
        batch("b", producer=identity, sequence=0, transactional=True, timestamp=start + 10),
        transactional_id=txn,
    )
    run.produce("plain after it", 9, topic, build_batch([(b"k", b"c", (), start + 20)]))
    for isolation in (0, 1):
        for timestamp in (-1, -2, -3, start, start + 5, start + 15, start + 25):
            ask(
                f"open, isolation {isolation}, {timestamp if timestamp < 0 else timestamp - start}",
                timestamp,
                isolation,
            )
    end(run, "commit", 5, txn, identity, True)
    settled(run, txn)
    for isolation in (0, 1):
        for timestamp in (-1, -2, start, start + 5, start + 15):
            ask(
                f"committed, isolation {isolation}, {timestamp if timestamp < 0 else timestamp - start}",
                timestamp,
                isolation,
            )


@script
def ends_of_leader_epochs(run: Run) -> None:
    topic = run.topic(partitions=2)
    run.produce("three", 9, topic, batch("a", "b", "c"))

    def ask(step: str, version: int, partition: int, current: int, wanted: int, name: str = topic) -> None:
        target = {"partition": partition, "leader_epoch": wanted, "current_leader_epoch": current}
        more: dict[str, Any] = {"replica_id": -2} if version >= 3 else {}
        run.call(
            step, "offset_for_leader_epoch", version, topics=[{"topic": name, "partitions": [target]}], **more
        )

    for version in (2, 3, 4):
        for current, wanted in ((-1, 0), (0, 0), (1, 0), (-1, 1), (-1, 5), (-1, -1), (-1, -2), (-5, 0)):
            ask(f"v{version} current {current} wanted {wanted}", version, 0, current, wanted)
        ask(f"v{version} empty partition", version, 1, -1, 0)
        ask(f"v{version} unknown partition", version, 9, -1, 0)
        ask(f"v{version} unknown topic", version, 0, -1, 0, run.name("missing"))


@script
def records_deleted_by_request(run: Run) -> None:
    topic = run.topic(partitions=2)
    compacted, both = (
        run.topic("compacted", cleanup_policy="compact"),
        run.topic("both", cleanup_policy="compact,delete"),
    )
    for number in range(5):
        run.produce(f"batch {number}", 9, topic, batch("a", "b"))

    def delete(step: str, offset: int, partition: int = 0, name: str = topic, version: int = 2) -> None:
        run.call(
            step,
            "delete_records",
            version,
            timeout=5000,
            topics=[{"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}],
        )

    delete("before the start", 0)
    delete("in mid-batch", 3)
    run.read("after it", topic)
    run.read("from the start offset", topic, offset=3)
    delete("backwards", 1)
    delete("again", 3, version=0)
    delete("past the end", 11)
    delete("negative", -5)
    delete("to the end by number", 10, version=1)
    run.read("at the end", topic, offset=10)
    delete("to the end", -1)
    delete("an empty partition", -1, partition=1)
    delete("an empty partition, offset 0", 0, partition=1)
    delete("an empty partition, offset 1", 1, partition=1)
    delete("unknown partition", 0, partition=7)
    delete("unknown topic", 0, name=run.name("missing"))
    delete("invalid name", 0, name="a/b")
    delete("compacted", 0, name=compacted)
    delete("compacted and deleted", 0, name=both)
    delete("the offsets topic", 0, name="__consumer_offsets")
    run.produce("after all", 9, topic, batch("z"))
    run.read("in the end", topic, offset=10)
    run.call("no topics", "delete_records", 2, timeout=5000, topics=[])
