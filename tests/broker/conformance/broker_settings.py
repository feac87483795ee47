"""Settings of the broker that change while it runs, for it alone and for all brokers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.broker.conformance.script import Run, batch, script
from tests.broker.conformance.settings import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, alter, explained
from tests.broker.wire_client import Answer

ALL_BROKERS = ""


@contextmanager
def undone(run: Run, *names: str) -> Iterator[str]:
    """The broker's name; in the end, nothing of these is set."""
    node = str(run.node())
    try:
        yield node
    finally:
        for name in (node, ALL_BROKERS):
            configs = [{"name": each, "config_operation": DELETE, "value": None} for each in names]
            resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
            run.ask("incremental_alter_configs", 1, resources=[resource])
        run.pause()


@script
def settings_set_for_one_broker(run: Run) -> None:
    plain, own = run.topic("plain"), run.topic("own", retention_ms="5000")
    names = ("log.retention.ms", "log.segment.bytes", "compression.type")
    with undone(run, *names) as node:

        def all_described(step: str) -> None:
            explained(run, f"all brokers {step}", BROKER, ALL_BROKERS)
            explained(run, f"one of all brokers {step}", BROKER, ALL_BROKERS, "log.segment.bytes")
            explained(run, f"the broker {step}", BROKER, node, "log.segment.bytes", "compression.type")
            for topic in (plain, own):
                about = ("retention.ms", "segment.bytes", "compression.type")
                explained(run, f"{run.same(topic)} {step}", TOPIC, topic, *about)

        all_described("at first")
        changes = [(name, SET, value) for name, value in zip(names, ("8000", "2000000", "lz4"), strict=True)]
        alter(run, "for one", node, *changes, kind=BROKER)
        all_described("after setting it for one")
        made = run.ask(
            "create_topics",
            7,
            timeout=10_000,
            topics=[{"name": run.name("new"), "num_partitions": 1, "replication_factor": 1, "configs": []}],
        )
        told = {each["name"]: [each["value"], each["config_source"]] for each in made["topics"][0]["configs"]}
        run.note(
            "a new topic", [told[name] for name in ("retention.ms", "segment.bytes", "compression.type")]
        )
        alter(run, "deleted for one", node, *((name, DELETE, None) for name in names[:2]), kind=BROKER)
        all_described("after deleting it for one")
        alter(run, "deleted for all", ALL_BROKERS, *((name, DELETE, None) for name in names), kind=BROKER)
        alter(run, "deleted for one as well", node, (names[2], DELETE, None), kind=BROKER)
        all_described("in the end")


@script
def settings_of_the_broker_take_effect(run: Run) -> None:
    plain, own = run.topic("plain"), run.topic("own", max_message_bytes="100000")
    names = ("message.max.bytes", "log.message.timestamp.type")
    with undone(run, *names) as node:
        large = batch("x" * 5000)
        alter(run, "smaller", node, ("message.max.bytes", SET, "2000"), kind=BROKER)
        run.pause()
        run.produce("too large", 9, plain, large)
        run.produce("not too large for a topic with its own", 9, own, large)
        alter(
            run,
            "larger for all, which does not matter",
            ALL_BROKERS,
            ("message.max.bytes", SET, "9000"),
            kind=BROKER,
        )
        run.pause()
        run.produce("still too large", 9, plain, large)
        alter(run, "no longer smaller", node, ("message.max.bytes", DELETE, None), kind=BROKER)
        run.pause()
        run.produce("not too large", 9, plain, large)
        alter(run, "stamped", ALL_BROKERS, ("log.message.timestamp.type", SET, "LogAppendTime"), kind=BROKER)
        run.pause()
        run.produce("with the broker's time", 9, plain, batch("x"))


@script
def settings_of_the_broker_refused(run: Run) -> None:
    names = ("log.cleanup.policy", "log.retention.ms", "nonsense", "log.retention.bytes")
    with undone(run, *names) as node:

        def change(step: str, *changes: tuple[str, int, str | None], **more: Any) -> None:
            for whose, name in (("one", node), ("all", ALL_BROKERS)):
                alter(run, f"{whose}: {step}", name, *changes, kind=BROKER, **more)

        for name in (
            "node.id", "log.dirs", "num.partitions", "auto.create.topics.enable", "delete.topic.enable",
            "default.replication.factor", "log.retention.hours", "log.retention.minutes", "log.roll.hours",
            "log.cleaner.enable", "log.retention.check.interval.ms", "offsets.retention.minutes",
            "group.max.session.timeout.ms", "transaction.max.timeout.ms", "socket.request.max.bytes",
            "connections.max.idle.ms", "fetch.max.bytes", "process.roles",
        ):  # fmt: skip
            change(name, (name, SET, "1"))
        change("one good, one read-only", ("log.retention.ms", SET, "1"), ("node.id", SET, "1"))
        change("delete what is read-only", ("num.partitions", DELETE, None))
        change("delete what is not set", ("log.retention.ms", DELETE, None))
        change("delete an unknown one", ("nonsense", DELETE, None))
        change("a bad value", ("log.retention.ms", SET, "soon"))
        change("a value out of range", ("log.segment.bytes", SET, "1"))
        change("a choice nobody has", ("log.cleanup.policy", SET, "burn"))
        change("one good, one bad", ("log.retention.bytes", SET, "5"), ("log.retention.ms", SET, "soon"))
        change("no value", ("log.retention.ms", SET, None))
        change("an empty value", ("log.retention.ms", SET, ""))
        change("append to what is no list", ("log.retention.ms", APPEND, "5"))
        change("the same twice", ("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "2"))
        change("by the name that topics have for it", ("retention.ms", SET, "1"), validate_only=True)
        change("nothing")
        for kind, name in (("one", node), ("all", ALL_BROKERS)):
            explained(run, f"{kind}: nothing was taken", BROKER, name, "log.retention.bytes", "nonsense")
        change("append", ("log.cleanup.policy", APPEND, "compact"))
        explained(run, "after appending", BROKER, node, "log.cleanup.policy")
        change("subtract", ("log.cleanup.policy", SUBTRACT, "delete"))
        explained(run, "after subtracting", BROKER, node, "log.cleanup.policy")
        change("an unknown one", ("nonsense", SET, "5"))
        explained(run, "one: an unknown one described", BROKER, node, "nonsense")
        explained(run, "all: an unknown one described", BROKER, ALL_BROKERS, "nonsense")
        run.pause()


@script
def settings_of_the_broker_replaced_as_a_whole(run: Run) -> None:
    names = ("log.retention.ms", "log.retention.bytes")
    with undone(run, *names) as node:

        def replace(step: str, name: str, *configs: tuple[str, str | None], **more: Any) -> None:
            listed: Sequence[Answer] = [{"name": key, "value": value} for key, value in configs]
            resource = {"resource_type": BROKER, "resource_name": name, "configs": listed}
            run.call(step, "alter_configs", 2, resources=[resource], **more)

        replace("one", node, ("log.retention.ms", "7000"))
        replace("validated only", node, ("log.retention.ms", "1"), validate_only=True)
        replace("read-only", node, ("num.partitions", "1"))
        replace("a bad value", node, ("log.retention.ms", "soon"))
        replace("no value", node, ("log.retention.ms", None))
        explained(run, "after one", BROKER, node, *names[1:])
        replace("another", node, ("log.retention.bytes", "9000"))
        explained(run, "after another", BROKER, node, *names[1:])
        replace("none", node)
        explained(run, "after none", BROKER, node, *names[1:])
        replace("a broker nobody knows", "4711", ("log.retention.ms", "1"))
