"""Settings of topics and of the broker: described, altered."""

from typing import Any

from tests.broker.conformance.script import Run, script
from tests.broker.wire_client import Answer

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

# Settings that one of the two does not have, or not from the same source: our own archive, and what Kafka's
# controller sets by itself.
ONLY_ONE_HAS = ("headwater.", "min.insync.replicas")


def common(answer: Answer) -> Answer:
    """A DescribeConfigs answer without the texts, the settings that only one broker has, and the order."""
    for result in answer["results"]:
        kept = [c for c in result["configs"] if not c["name"].startswith(ONLY_ONE_HAS)]
        for config in kept:
            config["documentation"] = config.get("documentation") is not None
            config["synonyms"] = config.get("synonyms") or []
        result["configs"] = sorted(kept, key=lambda config: str(config["name"]))
    return answer


@script
def settings_of_a_topic(run: Run) -> None:
    name = run.topic(retention_ms="5000", cleanup_policy="compact")

    def ask(
        step: str, version: int, keys: list[str] | None, kind: int = TOPIC, topic: str = name, **more: Any
    ) -> None:
        wanted = {"resource_type": kind, "resource_name": topic, "configuration_keys": keys}
        run.call(step, "describe_configs", version, resources=[wanted], show=common, **more)

    for version in range(1, 5):
        ask(f"all, v{version}", version, None)
        ask(f"one, v{version}", version, ["retention.ms"])
        ask(
            f"with synonyms, v{version}",
            version,
            ["retention.ms", "segment.bytes", "max.message.bytes"],
            include_synonyms=True,
        )
    ask("all with synonyms", 4, None, include_synonyms=True)
    ask("with documentation", 4, ["retention.ms"], include_documentation=True)
    ask("without documentation", 4, ["retention.ms"])
    ask("none of them", 4, [])
    ask("an unknown one", 4, ["nonsense"])
    ask("a known and an unknown one", 4, ["nonsense", "retention.ms"])
    ask("an unknown topic", 4, None, topic=run.name("missing"))
    ask("an invalid name", 4, None, topic="a/b")
    ask("an empty name", 4, None, topic="")
    ask("an unknown kind", 4, None, kind=77)
    ask("no kind", 4, None, kind=0)
    ask("a broker nobody knows", 4, ["num.partitions"], kind=BROKER, topic="4711")
    ask("a broker that is no number", 4, ["num.partitions"], kind=BROKER, topic="abc")
    ask("all brokers", 4, None, kind=BROKER, topic="")
    ask("loggers of a broker nobody knows", 4, ["x"], kind=LOGGER, topic="4711")
    ask("client metrics", 4, None, kind=CLIENT_METRICS, topic="nobody")
    ask("a group", 4, ["consumer.session.timeout.ms"], kind=GROUP, topic="nobody")
    run.call("nothing", "describe_configs", 4, resources=[])
    run.call(
        "the same twice",
        "describe_configs",
        4,
        show=common,
        resources=[{"resource_type": TOPIC, "resource_name": name, "configuration_keys": ["retention.ms"]}]
        * 2,
    )


@script
def settings_of_the_broker(run: Run) -> None:
    node = str(run.node())
    wanted = ["num.partitions", "auto.create.topics.enable", "message.max.bytes", "compression.type"]
    answer = run.ask(
        "describe_configs",
        4,
        include_synonyms=True,
        resources=[{"resource_type": BROKER, "resource_name": node, "configuration_keys": wanted}],
    )
    run.note("some", common(answer)["results"][0]["configs"])
    run.call(
        "an unknown one",
        "describe_configs",
        4,
        show=lambda a: a["results"][0]["configs"],
        resources=[{"resource_type": BROKER, "resource_name": node, "configuration_keys": ["nonsense"]}],
    )


def described(run: Run, step: str, topic: str, *names: str) -> None:
    """The values of some settings of a topic, a little later: Kafka's broker hears of a change by and by."""
    run.pause()
    run.call(
        step,
        "describe_configs",
        4,
        show=lambda a: {c["name"]: (c["value"], c["config_source"]) for c in a["results"][0]["configs"]},
        resources=[{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": list(names)}],
    )


def _explanation(answer: Answer) -> Any:
    """Each setting's value, source, whether it is fixed and whether secret, and what it would be otherwise."""
    (result,) = answer["results"]
    return [
        result["error_code"],
        {
            config["name"]: [
                config["value"],
                config["config_source"],
                config["read_only"],
                config["is_sensitive"],
                [[each["name"], each["value"], each["source"]] for each in config["synonyms"]],
            ]
            for config in sorted(result["configs"], key=lambda config: str(config["name"]))
            if config["name"] != "min.insync.replicas"  # which Kafka's controller sets by itself
        },
    ]


def explained(run: Run, step: str, kind: int, name: str, *names: str) -> None:
    """Settings of a resource, with all that is to know of each."""
    wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": list(names) or None}
    run.pause()
    run.call(step, "describe_configs", 4, show=_explanation, include_synonyms=True, resources=[wanted])


def alter(
    run: Run, step: str, topic: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, **more: Any
) -> None:
    """IncrementalAlterConfigs of one resource."""
    configs = [
        {"name": name, "config_operation": operation, "value": value} for name, operation, value in changes
    ]
    run.call(
        step,
        "incremental_alter_configs",
        1,
        resources=[{"resource_type": kind, "resource_name": topic, "configs": configs}],
        **more,
    )


@script
def settings_changed_one_by_one(run: Run) -> None:
    name = run.topic()
    alter(run, "set", name, ("retention.ms", SET, "1234"), ("segment.ms", SET, "99999"))
    described(run, "after it", name, "retention.ms", "segment.ms")
    alter(run, "validated only", name, ("retention.ms", SET, "1"), validate_only=True)
    alter(run, "delete", name, ("retention.ms", DELETE, None))
    described(run, "after the deletion", name, "retention.ms", "segment.ms")
    alter(run, "delete what is not set", name, ("retention.ms", DELETE, None))
    alter(run, "delete with a value", name, ("segment.ms", DELETE, "5"))
    alter(run, "append", name, ("cleanup.policy", APPEND, "compact"))
    described(run, "after appending", name, "cleanup.policy")
    alter(run, "append again", name, ("cleanup.policy", APPEND, "compact"))
    described(run, "after appending again", name, "cleanup.policy")
    alter(run, "subtract", name, ("cleanup.policy", SUBTRACT, "delete"))
    described(run, "after subtracting", name, "cleanup.policy")
    alter(run, "subtract what is not there", name, ("cleanup.policy", SUBTRACT, "delete"))
    alter(run, "append two", name, ("leader.replication.throttled.replicas", APPEND, "0:1,1:1"))
    described(run, "after appending two", name, "leader.replication.throttled.replicas")
    alter(run, "append to what is no list", name, ("retention.ms", APPEND, "5"))
    alter(run, "an unknown operation", name, ("retention.ms", 7, "5"))
    alter(run, "an unknown setting", name, ("nonsense", SET, "5"))
    alter(run, "delete an unknown setting", name, ("nonsense", DELETE, None))
    alter(run, "a bad value", name, ("retention.ms", SET, "soon"))
    alter(run, "a value out of range", name, ("min.cleanable.dirty.ratio", SET, "7"))
    alter(run, "no value", name, ("retention.ms", SET, None))
    alter(run, "an empty value", name, ("retention.ms", SET, ""))
    alter(run, "an empty list", name, ("cleanup.policy", SET, ""))
    alter(run, "append something bad", name, ("cleanup.policy", APPEND, "burn"))
    alter(run, "one good, one bad", name, ("retention.ms", SET, "777"), ("segment.ms", SET, "soon"))
    described(run, "neither was taken", name, "retention.ms", "segment.ms")
    alter(run, "the same twice", name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    alter(run, "spaces", name, ("retention.ms", SET, " 55 "))
    alter(run, "nothing", name)
    alter(run, "an unknown topic", run.name("missing"), ("retention.ms", SET, "1"))
    alter(
        run,
        "an unknown topic, validated only",
        run.name("missing"),
        ("retention.ms", SET, "1"),
        validate_only=True,
    )
    alter(run, "an invalid name", "a/b", ("retention.ms", SET, "1"))
    alter(run, "an empty name", "", ("retention.ms", SET, "1"))
    alter(run, "an unknown kind", name, ("retention.ms", SET, "1"), kind=77)
    alter(run, "a broker nobody knows", "4711", ("log.retention.ms", SET, "1"), kind=BROKER)
    alter(run, "a broker that is no number", "abc", ("log.retention.ms", SET, "1"), kind=BROKER)
    alter(
        run,
        "a read-only setting of the broker",
        str(run.node()),
        ("num.io.threads.nonsense", SET, "1"),
        ("node.id", SET, "1"),
        kind=BROKER,
    )
    resource = {
        "resource_type": TOPIC,
        "resource_name": name,
        "configs": [{"name": "retention.ms", "config_operation": SET, "value": "5"}],
    }
    run.call("a topic twice", "incremental_alter_configs", 1, resources=[resource, resource])
    described(run, "in the end", name, "retention.ms", "segment.ms", "cleanup.policy")


@script
def settings_replaced_as_a_whole(run: Run) -> None:
    name = run.topic(retention_ms="1", segment_ms="77777")

    def replace(
        step: str,
        *configs: tuple[str, str | None],
        topic: str = name,
        kind: int = TOPIC,
        version: int = 2,
        **more: Any,
    ) -> None:
        listed = [{"name": key, "value": value} for key, value in configs]
        run.call(
            step,
            "alter_configs",
            version,
            resources=[{"resource_type": kind, "resource_name": topic, "configs": listed}],
            **more,
        )

    for version in range(3):
        replace(f"v{version}", ("retention.ms", str(100 + version)), version=version)
        described(run, f"after v{version}", name, "retention.ms", "segment.ms")
    replace("validated only", ("retention.ms", "5"), validate_only=True)
    replace("an unknown setting", ("nonsense", "5"))
    replace("a bad value", ("retention.ms", "soon"))
    replace("no value", ("retention.ms", None))
    replace("the same twice", ("retention.ms", "1"), ("retention.ms", "2"))
    described(run, "still as before", name, "retention.ms", "segment.ms")
    replace("nothing: all defaults")
    described(run, "all defaults", name, "retention.ms", "segment.ms")
    replace("an unknown topic", ("retention.ms", "1"), topic=run.name("missing"))
    replace("an unknown kind", ("retention.ms", "1"), kind=77)


@script
def resources_with_settings(run: Run) -> None:
    name = run.topic()
    for version, kinds in (
        (0, None),
        (1, []),
        (1, [TOPIC]),
        (1, [BROKER]),
        (1, [TOPIC, BROKER]),
        (1, [CLIENT_METRICS]),
        (1, [GROUP]),
        (1, [77]),
        (1, [TOPIC, 77]),
    ):
        more = {} if kinds is None else {"resource_types": kinds}
        answer = run.ask("list_config_resources", version, **more)
        found = [
            r
            for r in answer["config_resources"]
            if r.get("resource_type") != TOPIC or r["resource_name"] == name
        ]
        for resource in found:
            if resource.get("resource_type") in (BROKER, LOGGER):
                resource["resource_name"] = "(node)"
        run.note(f"v{version} {kinds}", {"error_code": answer["error_code"], "found": found})


@script
def settings_that_a_new_topic_is_told(run: Run) -> None:
    """CreateTopics answers with the settings from version 5 on."""
    for version in (5, 7):
        answer = run.ask(
            "create_topics",
            version,
            timeout=10_000,
            topics=[
                {
                    "name": run.name(f"told-{version}"),
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "configs": [{"name": "retention.ms", "value": "77"}],
                }
            ],
        )
        configs = [c for c in answer["topics"][0]["configs"] if not c["name"].startswith(ONLY_ONE_HAS)]
        run.note(f"v{version}", sorted(configs, key=lambda config: str(config["name"])))


@script
def tiered_storage_that_is_off(run: Run) -> None:
    def create(step: str, validate_only: bool = False, **configs: str) -> None:
        name = run.name(step.replace(" ", "-"))
        named = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": named}
        run.call(
            step,
            "create_topics",
            7,
            timeout=10_000,
            topics=[topic],
            validate_only=validate_only,
            show=lambda a: [a["topics"][0]["error_code"], a["topics"][0]["num_partitions"]],
        )

    named = (
        "remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable",
        "local.retention.ms", "local.retention.bytes",
    )  # fmt: skip
    off: dict[str, Any] = dict(zip(named, ("false", "false", "false", "-2", "-2"), strict=True))
    topic = run.topic()
    explained(run, "at first", TOPIC, topic, *named)
    create("all as they are", **{key.replace(".", "_"): value for key, value in off.items()})
    create("tiered", remote_storage_enable="true")
    create("tiered and validated only", validate_only=True, remote_storage_enable="true")
    create("tiered and compacted", remote_storage_enable="true", cleanup_policy="compact")
    create("no copies", remote_log_copy_disable="true")
    create("deleted on disabling", remote_log_delete_on_disable="true")
    create("half a yes", remote_storage_enable="perhaps")
    create("local retention", local_retention_ms="1000", local_retention_bytes="1000")
    create("local retention longer than all", retention_ms="500", local_retention_ms="1000")
    create("local retention larger than all", retention_bytes="500", local_retention_bytes="1000")
    create("no local retention", local_retention_ms="-1")
    create("less than none", local_retention_ms="-3")
    alter(run, "set all", topic, *((name, SET, value) for name, value in off.items()))
    explained(run, "after setting all", TOPIC, topic, *named)
    alter(run, "set tiered", topic, ("remote.storage.enable", SET, "true"))
    alter(run, "set no copies", topic, ("remote.log.copy.disable", SET, "true"))
    alter(run, "set local retention", topic, ("local.retention.ms", SET, "1000"))
    alter(run, "set local retention longer than all", topic, ("local.retention.ms", SET, "604800001"))
    alter(run, "set deleted on disabling", topic, ("remote.log.delete.on.disable", SET, "true"))
    explained(run, "after these", TOPIC, topic, *named)
    alter(run, "deleted", topic, *((name, DELETE, None) for name in named))
    explained(run, "after deleting", TOPIC, topic, *named)
