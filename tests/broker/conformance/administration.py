"""Topics and partitions: created, deleted, more of them, described."""

import uuid
from typing import Any

from tests.broker.conformance.script import Run, batch, script
from tests.broker.wire_client import Answer

NO_ID = uuid.UUID(int=0)


def without_configs(answer: Answer) -> Answer:
    """CreateTopics answers without the settings: they have a script of their own."""
    for topic in answer["topics"]:
        if topic.get("configs") is not None and topic["error_code"] == "none":
            topic["configs"] = "(settings)"
    return answer


def create(run: Run, step: str, version: int, *topics: dict[str, Any], **more: Any) -> Answer:
    """CreateTopics; what a topic leaves out takes the default."""
    listed = [{"num_partitions": -1, "replication_factor": -1, **topic} for topic in topics]
    return run.call(
        step, "create_topics", version, timeout=10_000, topics=listed, show=without_configs, **more
    )


@script
def topics_created_in_every_version(run: Run) -> None:
    for version in range(2, 8):
        name = run.name(f"v{version}")
        create(run, f"v{version}", version, {"name": name, "num_partitions": 2, "replication_factor": 1})
        create(
            run, f"v{version} again", version, {"name": name, "num_partitions": 2, "replication_factor": 1}
        )
        other = run.name(f"only-{version}")
        named = {"name": other, "num_partitions": 1, "replication_factor": 1}
        create(run, f"v{version} validated only", version, named, validate_only=True)
        create(run, f"v{version} defaults", version, {"name": run.name(f"defaults-{version}")})


@script
def topics_that_cannot_be(run: Run) -> None:
    def one(step: str, name: str, **fields: Any) -> None:
        create(run, step, 7, {"name": name, **fields})

    one("empty name", "")
    one("dot", ".")
    one("two dots", "..")
    one("slash", "a/b")
    one("space", "a b")
    one("umlaut", "jürgen")
    one("250 characters", "x" * 250)
    one("internal name", "__consumer_offsets")
    one("other internal name", "__transaction_state")
    one("zero partitions", run.name("zero"), num_partitions=0)
    one("-2 partitions", run.name("minus"), num_partitions=-2)
    one("a billion partitions", run.name("billion"), num_partitions=10**9)
    one("10,001 partitions", run.name("many"), num_partitions=10_001)
    create(
        run,
        "6000 and 6000 partitions",
        7,
        {"name": run.name("many-1"), "num_partitions": 6000},
        {"name": run.name("many-2"), "num_partitions": 6000},
        validate_only=True,
    )
    one("no replicas", run.name("none"), num_partitions=1, replication_factor=0)
    one("-2 replicas", run.name("minus-replicas"), num_partitions=1, replication_factor=-2)
    one("three replicas", run.name("three"), num_partitions=1, replication_factor=3)
    one("an unknown setting", run.name("setting"), configs=[{"name": "nonsense", "value": "1"}])
    one("a bad value", run.name("value"), configs=[{"name": "retention.ms", "value": "soon"}])
    one("a value out of range", run.name("range"), configs=[{"name": "segment.bytes", "value": "-5"}])
    one("a null value", run.name("null"), configs=[{"name": "retention.ms", "value": None}])
    one("a bad policy", run.name("policy"), configs=[{"name": "cleanup.policy", "value": "burn"}])
    one(
        "the same setting twice",
        run.name("twice"),
        configs=[{"name": "retention.ms", "value": "1000"}, {"name": "retention.ms", "value": "2000"}],
    )
    create(run, "one name twice", 7, {"name": run.name("same")}, {"name": run.name("same")})
    create(run, "one good, one bad", 7, {"name": run.name("good")}, {"name": "b/d"})
    create(run, "none", 7)
    create(run, "dots", 7, {"name": run.name("a.b")})
    create(run, "underscores that collide", 7, {"name": run.name("a_b")})
    run.call(
        "no time for it",
        "create_topics",
        7,
        timeout=0,
        topics=[{"name": run.name("quick"), "num_partitions": 1, "replication_factor": 1}],
        show=lambda answer: answer["topics"][0]["error_code"] in ("none", "request_timed_out"),
    )


@script
def topics_with_assignments(run: Run) -> None:
    node = run.node()

    def one(step: str, base: str, *assignments: tuple[int, list[int]], **more: Any) -> None:
        listed = [{"partition_index": number, "broker_ids": nodes} for number, nodes in assignments]
        create(run, step, 7, {"name": run.name(base), "assignments": listed, **more})

    one("two partitions", "two", (0, [node]), (1, [node]))
    one("and a number of partitions", "numbered", (0, [node]), num_partitions=1)
    one("and a replication factor", "factored", (0, [node]), replication_factor=1)
    one("not from 0", "from-one", (1, [node]))
    one("a gap", "gap", (0, [node]), (2, [node]))
    one("the same twice", "same", (0, [node]), (0, [node]))
    one("negative", "negative", (-1, [node]))
    one("an unknown broker", "unknown", (0, [4711]))
    one("one broker twice", "doubled", (0, [node, node]))
    one("no broker", "nobody", (0, []))


@script
def topics_deleted(run: Run) -> None:
    for version in range(1, 6):
        name = run.topic(f"v{version}")
        run.call(f"v{version}", "delete_topics", version, topic_names=[name], timeout=10_000)
        run.call(f"v{version} again", "delete_topics", version, topic_names=[name], timeout=10_000)

    def delete(step: str, *topics: dict[str, Any]) -> None:
        run.call(step, "delete_topics", 6, topics=list(topics), timeout=10_000)

    name = run.topic("by-name")
    run.topic_id("by-name")
    delete("by name", {"name": name, "topic_id": None})
    run.topic("by-id")
    topic_id = run.topic_id("by-id")
    delete("by id", {"name": None, "topic_id": topic_id})
    delete("by id again", {"name": None, "topic_id": topic_id})
    both = run.topic("both")
    both_id = run.topic_id("both")
    delete("by name and id", {"name": both, "topic_id": both_id})
    delete("by neither", {"name": None, "topic_id": None})
    delete("the same twice", {"name": both, "topic_id": None}, {"name": both, "topic_id": None})
    delete("name and id of one topic", {"name": both, "topic_id": None}, {"name": None, "topic_id": both_id})
    delete("it is still there", {"name": both, "topic_id": None})
    delete("an unknown name", {"name": run.name("missing"), "topic_id": None})
    delete("an invalid name", {"name": "a/b", "topic_id": None})
    delete("an empty name", {"name": "", "topic_id": None})
    delete("none")


@script
def a_topic_made_again_is_another(run: Run) -> None:
    name = run.topic("again")
    old = run.topic_id("again")
    run.produce("to the first", 9, name, batch("a"))
    run.ask("delete_topics", 5, topic_names=[name], timeout=10_000)

    def is_gone() -> bool:
        answer = run.ask("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
        return bool(answer["topics"][0]["error_code"] != "none")

    run.wait_for(is_gone, "the topic is gone")
    run.topic("again")
    run.produce("to the old id", 13, old, batch("b"))
    run.call("metadata by the old id", "metadata", 12, topics=[{"name": None, "topic_id": old}], show=_topics)
    run.read("the new one is empty", name)
    run.note("its id is new", run.topic_id("again") != old)


def _topics(answer: Answer) -> Any:
    return answer["topics"]


@script
def more_partitions(run: Run) -> None:
    name, node = run.topic(partitions=2), run.node()

    def grow(step: str, count: int, version: int = 3, topic: str = name, **more: Any) -> None:
        assignments = more.pop("assignments", None)
        wanted = {"name": topic, "count": count, "assignments": assignments}
        run.call(step, "create_partitions", version, topics=[wanted], timeout=10_000, **more)

    for version in range(4):
        grow(f"v{version}", 3 + version, version)
    grow("validated only", 9, validate_only=True)
    grow("as many as there are", 6)
    grow("as many as there are, validated only", 6, validate_only=True)
    grow("fewer", 2)
    grow("fewer, validated only", 2, validate_only=True)
    grow("none", 0)
    grow("negative", -1)
    grow("an unknown topic", 4, topic=run.name("missing"))
    grow("an invalid name", 4, topic="a/b")
    grow("assigned", 7, assignments=[{"broker_ids": [node]}])
    grow("too few assignments", 9, assignments=[{"broker_ids": [node]}])
    grow("too many assignments", 8, assignments=[{"broker_ids": [node]}, {"broker_ids": [node]}])
    grow("an unknown broker", 8, assignments=[{"broker_ids": [4711]}])
    grow("a broker twice", 8, assignments=[{"broker_ids": [node, node]}])
    grow("no broker", 8, assignments=[{"broker_ids": []}])
    grow("no assignments", 8, assignments=[])
    run.call(
        "the same topic twice",
        "create_partitions",
        3,
        topics=[
            {"name": name, "count": 8, "assignments": None},
            {"name": name, "count": 9, "assignments": None},
        ],
        timeout=10_000,
    )
    run.call("no topics", "create_partitions", 3, topics=[], timeout=10_000)
    run.wait_for(
        lambda: len(run.ask("metadata", 12, topics=[{"name": name}])["topics"][0]["partitions"]) == 7,
        "there are 7 partitions",
    )
    run.wait_for(lambda: run.is_writable(name, 7), "they take writes")
    run.produce("to a new partition", 9, name, batch("x"), partition=6)


@script
def metadata_of_every_version(run: Run) -> None:
    name = run.topic(partitions=2)
    topic_id = run.topic_id("topic")

    def ask(step: str, version: int, topics: list[dict[str, Any]] | None, **more: Any) -> None:
        if version >= 4:
            more.setdefault("allow_auto_topic_creation", False)
        run.call(step, "metadata", version, topics=topics, **more)

    for version in range(14):
        ask(f"v{version}", version, [{"name": name}])
        if version >= 1:
            ask(f"v{version} no topics", version, [])
        if version >= 4:
            ask(f"v{version} unknown", version, [{"name": run.name("missing")}])
            ask(f"v{version} invalid", version, [{"name": "a/b"}])
        if version >= 8:
            ask(
                f"v{version} operations",
                version,
                [{"name": name}],
                include_topic_authorized_operations=True,
                **({"include_cluster_authorized_operations": True} if version <= 10 else {}),
            )
        if version >= 12:
            ask(f"v{version} by id", version, [{"name": None, "topic_id": topic_id}])
            ask(f"v{version} by an unknown id", version, [{"name": None, "topic_id": uuid.UUID(int=7)}])
            ask(f"v{version} by neither", version, [{"name": None, "topic_id": NO_ID}])
            ask(f"v{version} by both", version, [{"name": name, "topic_id": topic_id}])
    ask("v10 with an id", 10, [{"name": name, "topic_id": topic_id}])
    ask("the same twice", 12, [{"name": name}, {"name": name}])
    ask("empty name", 9, [{"name": ""}])


@script
def topics_made_by_asking(run: Run) -> None:
    """Auto-creation: the answer may come before the topic."""
    name = run.name("asked-for")

    def is_there() -> bool:
        answer = run.ask("metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=True)
        return bool(answer["topics"][0]["error_code"] == "none")

    run.wait_for(is_there, "the topic is there")
    run.call("it is there", "metadata", 9, topics=[{"name": name}], show=_topics)
    for odd in ("a/b", "", "x" * 250):
        run.call(
            f"not {odd[:5]!r}",
            "metadata",
            9,
            topics=[{"name": odd}],
            allow_auto_topic_creation=True,
            show=_topics,
        )


@script
def topics_page_by_page(run: Run) -> None:
    """DescribeTopicPartitions (KIP-966)."""
    one, two = run.topic("one", partitions=3), run.topic("two", partitions=2)
    run.topic_id("one")
    run.topic_id("two")

    def ask(step: str, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
        run.call(
            step,
            "describe_topic_partitions",
            0,
            topics=[{"name": name} for name in names],
            response_partition_limit=limit,
            cursor=at,
        )

    ask("both", [one, two])
    ask("in another order", [two, one])
    ask("one twice", [one, one])
    ask("an unknown one", [one, run.name("missing")])
    ask("an invalid one", ["a/b"])
    ask("the first two", [one, two], 2)
    ask("the next", [one, two], 2, (one, 2))
    ask("the rest", [one, two], 2, (two, 1))
    ask("exactly all", [one, two], 5)
    ask("limit 0", [one], 0)
    ask("limit -1", [one], -1)
    ask("from the second topic", [one, two], 2000, (two, 0))
    ask("past the end of a topic", [one, two], 2000, (one, 9))
    ask("from a negative partition", [one, two], 2000, (one, -1))
    ask("from a topic that was not asked for", [one, two], 2000, (run.name("oo"), 0))
