"""What clients may ask of a group coordinator. Each scenario is played to Apache Kafka and to ours."""

import asyncio
import uuid
from typing import Any

from headwater.broker.messages import duration
from tests.broker.groups.script import Script, assignment, committed


async def life_of_a_classic_group(k: Script) -> None:
    first = await k.join("life")
    await k.heartbeat("life", first)
    await k.commit("life", 9, first.generation_id, first.member_id)  # before the sync: not yet
    await k.describe("life")
    await k.sync("life", first, {first.member_id: b"one"})
    await k.describe("life")
    await k.sync("life", first, {})  # again: the same answer
    await k.commit("life", 9, first.generation_id, first.member_id)
    await k.commit("life", 9, first.generation_id + 1, first.member_id)
    await k.commit("life", 9, -1, "")
    await k.heartbeat("life", first, generation_id=7)
    await k.heartbeat("life", first, member_id="nobody")

    # A second member: the first must join again, and is the leader.
    asked = await k("JoinGroup", 9, **k.join_fields("life"))
    second_join = k.begin("JoinGroup", 9, **k.join_fields("life", member_id=asked.member_id))
    await k.sleep(0.2)
    await k.describe("life")
    await k.heartbeat("life", first)
    await k.sync("life", first, {})
    await k.commit("life", 9, first.generation_id, first.member_id)
    again = await k("JoinGroup", 9, **k.join_fields("life", member_id=first.member_id))
    second = await second_join
    sync = asyncio.create_task(k.sync("life", second, {}))
    await k.sleep(0.2)
    await k.heartbeat("life", second)
    await k.sync("life", again, {first.member_id: b"one"})  # nothing for the second: it gets nothing
    await sync
    await k.describe("life")

    # A follower that joins again with the same metadata is told what it knows already; a leader rebalances.
    await k("JoinGroup", 9, **k.join_fields("life", member_id=second.member_id))
    await k("LeaveGroup", 5, group_id=k.group("life"), members=[{"member_id": second.member_id}])
    await k.heartbeat("life", again)
    last = await k("JoinGroup", 9, **k.join_fields("life", member_id=first.member_id))
    await k.sync("life", last, {first.member_id: b"all"})
    await k("LeaveGroup", 2, group_id=k.group("life"), member_id=first.member_id)
    await k.describe("life")
    await k("LeaveGroup", 2, group_id=k.group("life"), member_id=first.member_id)


async def classic_refusals(k: Script) -> None:
    await k("JoinGroup", 9, **k.join_fields("no", group_id=""))
    await k("JoinGroup", 9, **k.join_fields("no", session_timeout=duration(10)))
    await k("JoinGroup", 9, **k.join_fields("no", session_timeout=duration(2_000_000)))
    await k("JoinGroup", 9, **k.join_fields("no", protocols=[]))
    await k("JoinGroup", 9, **k.join_fields("no", protocol_type=""))
    await k("JoinGroup", 9, **k.join_fields("no", member_id="made-up"))
    await k("JoinGroup", 3, **k.join_fields("no", member_id="made-up"))
    await k("SyncGroup", 5, group_id=k.group("no"), generation_id=1, member_id="made-up")
    await k("SyncGroup", 4, group_id=k.group("no"), generation_id=1, member_id="made-up")
    await k("SyncGroup", 4, group_id="", generation_id=1, member_id="made-up")
    await k("Heartbeat", 4, group_id=k.group("no"), generation_id=1, member_id="made-up")
    await k("Heartbeat", 4, group_id="", generation_id=1, member_id="made-up")
    await k("LeaveGroup", 5, group_id="", members=[{"member_id": "made-up"}])
    await k("LeaveGroup", 5, group_id=k.group("no"), members=[{"member_id": "a"}, {"member_id": "b"}])
    await k("LeaveGroup", 1, group_id=k.group("no"), member_id="a")
    joined = await k.join("no", protocol_type="connect", protocols=[{"name": "eager", "metadata": b"x"}])
    await k.sync("no", joined, {joined.member_id: b""}, protocol_name="other")
    await k.sync("no", joined, {joined.member_id: b""}, protocol_type="consumer")
    await k.sync("no", joined, {joined.member_id: b""}, generation_id=9)
    await k.sync("no", joined, {joined.member_id: b""}, member_id="made-up")
    await k.sync("no", joined, {joined.member_id: b""}, group_instance_id="made-up")
    await k.sync("no", joined, {})
    await k("JoinGroup", 9, **k.join_fields("no"))  # another protocol type
    await k("JoinGroup", 9, **k.join_fields("no", protocol_type="connect"))  # no protocol in common
    await k("OffsetDelete", 0, group_id=k.group("no"), topics=[_partition("alpha", 0)])
    await k("DeleteGroups", 2, groups_names=(k.group("no"),))
    await k.beat("no", "new", 0)
    await k.beat("no", "new", 3)
    await k.beat("no", "new", -1)
    await k.describe("no", "nothing")
    await k("ConsumerGroupDescribe", 1, group_ids=("",))
    await k("DescribeGroups", 6, groups=("",))
    await k("DescribeGroups", 5, groups=(k.group("nothing"),))


async def versions_of_join(k: Script) -> None:
    """Before version 4 a member gets its id with the first join."""
    for version in range(10):
        name = f"join-{version}"
        joined = await k.join(name, version)
        await k.sync(name, joined, {joined.member_id: b"x"}, protocol_type="consumer", protocol_name="range")
        await k.quietly("LeaveGroup", 2, group_id=k.group(name), member_id=joined.member_id)


async def votes_for_a_protocol(k: Script) -> None:
    def protocols(*names: str) -> list[dict[str, Any]]:
        return [{"name": name, "metadata": name.encode()} for name in names]

    async def join(*names: str) -> Any:
        return await k("JoinGroup", 3, **k.join_fields("vote", protocols=protocols(*names)))

    first = await join("a", "b", "c")
    assert first.protocol_name == "a"
    others = [asyncio.create_task(join(*names)) for names in (("c", "b"), ("c", "b", "a"), ("b", "c", "d"))]
    await k.sleep(0.5)  # they are held until the first joins again
    fields = k.join_fields("vote", member_id=first.member_id, protocols=protocols("a", "c", "b"))
    again = await k("JoinGroup", 3, **fields)
    chosen = {again.protocol_name} | {(await other).protocol_name for other in others}
    assert chosen == {"c"}, "three of four prefer c among what all support"


async def members_that_die(k: Script) -> None:
    """A member that never syncs, one that never joins again, and one that sends nothing."""
    joined = await k.join("die", session_timeout=duration(1_000), rebalance_timeout=duration(1_000))
    await k.sync("die", joined, {joined.member_id: b"x"})
    await k.sleep(0.6)
    await k.heartbeat("die", joined)
    await k.sleep(0.6)
    await k.heartbeat("die", joined)
    asked = await k("JoinGroup", 9, **k.join_fields("die", rebalance_timeout=duration(1_000)))
    fields = k.join_fields("die", rebalance_timeout=duration(1_000), member_id=asked.member_id)
    second = await k("JoinGroup", 9, **fields)  # the first does not join again
    await k.heartbeat("die", joined)
    await k.sleep(1.5)  # nor does the second sync
    await k.heartbeat("die", second)
    await k.describe("die")


async def static_classic_members(k: Script) -> None:
    one = {"group_instance_id": "one"}
    first = await k.join("static", **one)
    await k.sync("static", first, {first.member_id: b"x"}, **one)
    # Back as another process: the same assignment, no rebalance.
    second = await k("JoinGroup", 8, **k.join_fields("static", **one))
    await k.heartbeat("static", first, **one)
    await k.heartbeat("static", first)
    await k.heartbeat("static", second, **one)
    await k.sync("static", second, {}, **one)
    third = await k("JoinGroup", 9, **k.join_fields("static", **one))
    await k.sync("static", third, {}, **one)
    await k.describe("static")
    await k.commit("static", 9, third.generation_id, second.member_id, group_instance_id="one")
    await k.commit("static", 9, third.generation_id, third.member_id, group_instance_id="two")
    await k.commit("static", 9, third.generation_id, third.member_id, group_instance_id="one")
    # With another protocol it needs a rebalance.
    other = [{"name": "other", "metadata": b"y"}]
    await k("JoinGroup", 9, **k.join_fields("static", protocols=other, **one))
    await k("LeaveGroup", 5, group_id=k.group("static"), members=[{"member_id": "x", **one}])
    await k(
        "LeaveGroup", 5, group_id=k.group("static"), members=[{"member_id": "", "group_instance_id": "z"}]
    )
    await k("LeaveGroup", 5, group_id=k.group("static"), members=[{"member_id": "", **one}])
    await k.describe("static")


async def rebalance_of_static_members(k: Script) -> None:
    """One of two static members restarts while the group rebalances, or before it has synced."""
    one, two = {"group_instance_id": "one"}, {"group_instance_id": "two"}
    first_join = k.begin("JoinGroup", 9, **k.join_fields("statics", **one))
    await k.sleep(0.01)
    second_join = k.begin("JoinGroup", 9, **k.join_fields("statics", **two))
    first, second = await first_join, await second_join
    held = asyncio.create_task(k.sync("statics", second, {}, **two))
    await k.sleep(0.05)
    new_join = k.begin("JoinGroup", 9, **k.join_fields("statics", **two))  # while the sync is held
    await held
    await k.sleep(0.05)
    await k.heartbeat("statics", first, **one)
    newer_join = k.begin("JoinGroup", 9, **k.join_fields("statics", **two))  # while the join is held
    await new_join
    again = await k("JoinGroup", 9, **k.join_fields("statics", member_id=first.member_id, **one))
    newer = await newer_join
    assert again.leader == first.member_id and len(again.members) == 2
    await k.sync("statics", again, {first.member_id: b"1", newer.member_id: b"2"}, **one)
    await k.sync("statics", newer, {}, **two)


async def offsets_of_simple_consumers(k: Script) -> None:
    await k.commit("simple", 8, -1, "")
    await k.commit("simple", 9, 3, "x")
    await k.commit("simple", 8, 3, "")
    await k.commit("nothing", 9, 3, "x")
    await k.commit("nothing", 8, 3, "x")
    alpha, beta, missing = committed("alpha", 1, 6, None), committed("beta", 7, 9), committed("missing", 0, 9)
    alpha["partitions"] += committed("alpha", 2, 7, "x" * 4096)["partitions"]
    beta["partitions"] += committed("beta", 0, 8, "x" * 4097)["partitions"]
    topics = [alpha, beta, missing]
    simple = {"group_id": k.group("simple")}
    outside = {"generation_id_or_member_epoch": -1, "member_id": "", **simple}
    await k("OffsetCommit", 8, topics=topics, **outside)
    await k("OffsetCommit", 4, topics=[committed("gamma", 0, 1)], retention_time=duration(60_000), **outside)
    asked = [
        {"name": "alpha", "partition_indexes": (0, 1, 5)},
        {"name": "missing", "partition_indexes": (0,)},
    ]
    for version in range(1, 8):
        await k("OffsetFetch", version, topics=asked, **simple)
    await k("OffsetFetch", 7, topics=None, **simple)
    await k("OffsetFetch", 7, topics=None, group_id=k.group("nothing"))
    many = [{**simple, "topics": asked}, {**simple, "topics": None}, {"group_id": "", "topics": None}]
    await k("OffsetFetch", 8, groups=many)
    await k("OffsetFetch", 9, groups=[{**simple, "topics": asked, "member_id": "x", "member_epoch": 4}])
    await k("OffsetDelete", 0, topics=[_partition("alpha", 0), _partition("missing", 0)], **simple)
    await k("OffsetDelete", 0, topics=[_partition("alpha", 0)], group_id=k.group("nothing"))
    await k("OffsetDelete", 0, topics=[_partition("alpha", 0)], group_id="")
    await k("OffsetDelete", 0, topics=[_partition("missing", 0)], group_id=k.group("nothing"))
    await k("OffsetFetch", 7, topics=None, **simple)
    await k.describe("simple")
    await k("DeleteGroups", 2, groups_names=(k.group("simple"), k.group("nothing")))
    await k("OffsetFetch", 7, topics=None, **simple)


async def offsets_by_topic_id(k: Script) -> None:
    outside = {"generation_id_or_member_epoch": -1, "member_id": "", "group_id": k.group("ids")}
    unknown = uuid.UUID(int=77)
    topics = [
        {"topic_id": k.ids["alpha"], "partitions": committed("", 0, 5)["partitions"]},
        {"topic_id": k.ids["beta"], "partitions": committed("", 9, 5)["partitions"]},
        {"topic_id": unknown, "partitions": committed("", 0, 5)["partitions"]},
    ]
    await k("OffsetCommit", 10, topics=topics, **outside)
    asked = [{"topic_id": topic["topic_id"], "partition_indexes": (0, 1)} for topic in topics]
    group = {"group_id": k.group("ids"), "member_id": None, "member_epoch": -1}
    await k("OffsetFetch", 10, groups=[{**group, "topics": asked}, {**group, "topics": None}])


async def offsets_and_subscriptions(k: Script) -> None:
    joined = await k.join("reads")
    await k.sync("reads", joined, {joined.member_id: assignment("alpha", 0, 1, 2)})
    topics = [committed("alpha", 0, 5), committed("beta", 0, 6)]
    member = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    await k("OffsetCommit", 9, group_id=k.group("reads"), topics=topics, **member)
    both = [_partition("alpha", 0), _partition("beta", 0)]
    await k("OffsetDelete", 0, group_id=k.group("reads"), topics=both)
    await k("OffsetFetch", 7, group_id=k.group("reads"), topics=None)
    await k("LeaveGroup", 5, group_id=k.group("reads"), members=[{"member_id": joined.member_id}])
    await k("OffsetDelete", 0, group_id=k.group("reads"), topics=both)
    await k("OffsetFetch", 7, group_id=k.group("reads"), topics=None)


async def life_of_a_consumer_group(k: Script) -> None:
    await k.beat("new", "a", 0)
    await k.beat("new", "a", 1)
    await k.beat("new", "a", 0)  # its answer was lost
    await k.beat("new", "b", 0)
    await k.describe("new")
    await k.beat("new", "a", 1, topic_partitions=k.owned(alpha=(0, 1, 2)))
    await k.describe("new")
    await k.beat("new", "b", 2, topic_partitions=())
    await k.beat("new", "a", 1, topic_partitions=k.owned(alpha=(0, 1)))  # revoked
    await k.beat("new", "a", 1, topic_partitions=k.owned(alpha=(0, 1)))  # its answer was lost
    await k.beat("new", "a", 1, topic_partitions=k.owned(alpha=(0, 1, 2)))  # owns what it may not
    await k.beat("new", "b", 2, topic_partitions=())
    await k.beat("new", "b", 0)
    await k.beat("new", "b", 7)
    await k.beat("new", "c", 7)
    await k.beat("nothing", "c", 7)
    await k.beat("nothing", "c", -1)
    await k.commit("new", 9, 2, "a")
    await k.commit("new", 8, 2, "a")
    await k.commit("new", 9, 1, "a")
    await k.commit("new", 9, -1, "a")
    await k.commit("new", 9, -1, "")
    await k.commit("new", 9, 2, "c")
    group = {"group_id": k.group("new"), "topics": [{"name": "alpha", "partition_indexes": (0,)}]}
    for member_id, epoch in ((None, -1), ("a", 2), ("a", 1), ("c", 2), ("", -1)):
        await k("OffsetFetch", 9, groups=[{**group, "member_id": member_id, "member_epoch": epoch}])
    await k(
        "OffsetDelete", 0, group_id=k.group("new"), topics=[_partition("alpha", 0), _partition("beta", 0)]
    )
    await k("DeleteGroups", 2, groups_names=(k.group("new"),))
    await k.beat("new", "b", -1)
    await k.beat("new", "b", -1)
    await k.describe("new")
    await k.beat("new", "a", 2)
    await k("LeaveGroup", 5, group_id=k.group("new"), members=[{"member_id": "a"}, {"member_id": "z"}])
    await k.describe("new")
    await k("DeleteGroups", 2, groups_names=(k.group("new"),))
    await k.describe("new")


async def heartbeats_that_make_no_sense(k: Script) -> None:
    await k.beat("odd", "m", 0, group_id="")
    await k.beat("odd", "", 0)
    await k.beat("odd", "", -1, version=0)
    await k.beat("odd", "", 4, version=0)
    await k.beat("odd", "m", 0, rebalance_timeout=duration(-1))
    await k.beat("odd", "m", 0, topic_partitions=None)
    await k.beat("odd", "m", 0, topic_partitions=k.owned(alpha=(0,)))
    await k.beat("odd", "m", 0, subscribed_topic_names=None)
    await k.beat("odd", "m", 0, subscribed_topic_names=None, subscribed_topic_regex="a(")
    await k.beat("odd", "m", 0, subscribed_topic_names=None, subscribed_topic_regex="*a")
    await k.beat("odd", "m", 0, server_assignor="best")
    await k.beat("odd", "m", 0, instance_id="")
    await k.beat("odd", "m", 0, rack_id="")
    await k.beat("odd", "m", -2)
    await k.beat("odd", "m", -3)
    await k.beat("odd", "", 0, version=0)  # the coordinator chooses the id
    await k.describe("odd")


async def static_consumer_members(k: Script) -> None:
    one = {"instance_id": "one"}
    await k.beat("still", "a1", 0, **one)
    await k.beat("still", "a2", 0, **one)
    await k.beat("still", "a2", 1, **one)
    await k.beat("still", "a2", -2, **one)
    await k.beat("still", "a1", 1, instance_id="other")
    await k.beat("still", "a1", -2, **one)
    await k.beat("still", "a1", -2, **one)
    await k.describe("still")
    await k.beat("still", "a1", 1, **one)
    await k.beat("still", "b", 0)
    await k.beat("still", "a2", 0, **one)
    await k.beat("still", "a1", 1, **one)
    await k.describe("still")
    await k.beat("still", "a2", -1, **one)
    await k.beat("still", "b", 2)
    await k.describe("still")


async def consumer_members_that_die(k: Script) -> None:
    await k.beat("lost", "a", 0)
    await k.beat("lost", "b", 0, rebalance_timeout=duration(60_000))
    await k.sleep(3)
    await k.beat("lost", "b", 2)
    await k.sleep(3)  # the session of a is over
    await k.describe("lost")
    await k.beat("lost", "b", 2)
    await k.beat("lost", "a", 1)
    # Now b does not give up its partitions in time.
    await k.beat("lost", "c", 0)
    await k.beat("lost", "b", 3, rebalance_timeout=duration(1_000))
    await k.sleep(2)
    await k.beat("lost", "b", 3)
    await k.beat("lost", "c", 4)


async def changes_of_subscription(k: Script) -> None:
    await k.beat("mind", "a", 0)
    await k.beat("mind", "a", 1, subscribed_topic_names=("alpha", "beta"))
    await k.beat("mind", "a", 2, subscribed_topic_names=("beta", "unknown"))
    await k.describe("mind")
    await k.beat("mind", "a", 2, topic_partitions=k.owned(beta=(0, 1)))
    await k.beat("mind", "a", 3, subscribed_topic_names=())
    await k.beat("mind", "a", 3, topic_partitions=())
    await k.beat("mind", "a", 4, server_assignor="range", rack_id="r")
    await k.describe("mind")


async def from_one_protocol_to_the_other(k: Script) -> None:
    """A group that is empty takes members of either protocol; its offsets stay."""
    joined = await k.join("turn")
    await k.sync("turn", joined, {joined.member_id: b""})
    await k.commit("turn", 9, joined.generation_id, joined.member_id)
    await k("LeaveGroup", 5, group_id=k.group("turn"), members=[{"member_id": joined.member_id}])
    await k.beat("turn", "a", 0)
    await k.describe("turn")
    await k("Heartbeat", 4, group_id=k.group("turn"), generation_id=1, member_id="a")
    await k("SyncGroup", 4, group_id=k.group("turn"), generation_id=1, member_id="a")
    await k("JoinGroup", 9, **k.join_fields("turn", protocol_type="connect"))
    await k.beat("turn", "a", -1)
    await k("OffsetFetch", 7, group_id=k.group("turn"), topics=None)
    back = await k.join("turn")
    await k.sync("turn", back, {back.member_id: b""})
    await k.describe("turn")
    await k("OffsetFetch", 7, group_id=k.group("turn"), topics=None)


async def from_classic_to_new_while_working(k: Script) -> None:
    """A member of the new protocol joins a classic group, another classic one joins that; and back again."""
    old = await k.join("move")
    await k.sync("move", old, {old.member_id: assignment("alpha", 0, 1, 2)})
    await k.beat("move", "new", 0)
    await k.describe("move")
    await k.commit("move", 8, 1, old.member_id)
    await k.commit("move", 8, 2, old.member_id)
    await k.sync("move", old, {})
    await k.heartbeat("move", old)
    await k.heartbeat("move", old, generation_id=7)
    await k.heartbeat("move", old, member_id="new", generation_id=2)
    await k.heartbeat("move", old, group_instance_id="x")
    older = await k("JoinGroup", 9, **k.join_fields("move", member_id=old.member_id))
    await k.sync("move", older, {}, protocol_name="other")
    await k.sync("move", older, {}, generation_id=1)
    await k.sync("move", older, {})
    await k.heartbeat("move", older)
    await k.beat("move", "new", 2, topic_partitions=())
    await k("JoinGroup", 9, **k.join_fields("move", protocols=[{"name": "strange", "metadata": b"x"}]))
    await k("JoinGroup", 9, **k.join_fields("move", protocol_type="connect"))
    second = await k.join("move")
    await k.sync("move", second, {})
    await k.heartbeat("move", second)
    await k.describe("move")
    await k.heartbeat("move", older)
    given = await k("JoinGroup", 9, **k.join_fields("move", member_id=old.member_id))
    await k.sync("move", given, {})
    await k.heartbeat("move", second)  # its partition is free now
    got = await k("JoinGroup", 9, **k.join_fields("move", member_id=second.member_id))
    await k.sync("move", got, {})
    await k.beat("move", "new", 2)
    await k.describe("move")
    await k.beat("move", "new", -1)
    await k.describe("move")
    await k.heartbeat("move", got)
    await k("LeaveGroup", 5, group_id=k.group("move"), members=[{"member_id": old.member_id}])
    last = await k("JoinGroup", 9, **k.join_fields("move", member_id=second.member_id))
    await k.sync("move", last, {second.member_id: b"all"})
    await k.describe("move")


async def classic_members_that_die_in_a_new_group(k: Script) -> None:
    short = {"session_timeout": duration(1_000), "rebalance_timeout": duration(1_000)}
    await k.beat("fade", "new", 0)
    late = await k.join("fade", **short)  # and never syncs
    await k.sleep(0.6)
    await k.heartbeat("fade", late)
    await k.sleep(0.6)
    await k.heartbeat("fade", late)
    silent = await k.join("fade", **short)
    await k.sync("fade", silent, {})
    await k.sleep(1.5)
    await k.heartbeat("fade", silent)
    await k.beat("fade", "new", 1)
    await k.describe("fade")


async def static_members_change_protocol(k: Script) -> None:
    one, two = {"group_instance_id": "one"}, {"group_instance_id": "two"}
    first_join = k.begin("JoinGroup", 9, **k.join_fields("swap", **one))
    await k.sleep(0.02)
    second_join = k.begin("JoinGroup", 9, **k.join_fields("swap", **two))
    first, second = await first_join, await second_join
    given = {first.member_id: assignment("alpha", 0, 1), second.member_id: assignment("alpha", 2)}
    await k.sync("swap", first, given, **one)
    await k.sync("swap", second, {}, **two)
    await k.beat("swap", "new-one", 0, instance_id="one")
    await k.heartbeat("swap", first, **one)
    await k.heartbeat("swap", second, **two)
    await k.describe("swap")
    # And back: the last member of the new protocol returns as a classic one.
    back = k.begin("JoinGroup", 9, **k.join_fields("swap", **one))
    await k.sleep(0.2)
    await k("ListGroups", 5, states_filter=("nothing",))
    await k.beat("swap", "new-one", 1, instance_id="one")
    await k("JoinGroup", 9, **k.join_fields("swap", member_id=second.member_id, **two))
    await back
    await k("DescribeGroups", 6, groups=(k.group("swap"),))


async def transactional_offsets(k: Script) -> None:
    transaction = await _begin_transaction(k, "txn")
    simple = {"group_id": k.group("txn")}
    await k.commit("txn", 9, -1, "")

    async def commit(**changes: Any) -> Any:
        fields = {**transaction, **simple, "generation_id": -1, "member_id": "", "group_instance_id": None}
        topics = [committed("alpha", 0, 55), committed("missing", 0, 55)]
        return await k("TxnOffsetCommit", 3, topics=topics, **{**fields, **changes})

    await commit(generation_id=4)
    await commit(group_id="")
    await commit(group_id=k.group("nothing"), generation_id=4, member_id="x")
    await commit()
    asked = [{"name": "alpha", "partition_indexes": (0, 1)}]
    await k("OffsetFetch", 7, topics=None, require_stable=True, **simple)
    await k("OffsetFetch", 7, topics=asked, require_stable=True, **simple)
    await k("OffsetFetch", 7, topics=asked, require_stable=False, **simple)
    await k.quietly("EndTxn", 3, committed=True, **transaction)
    await k.sleep(0.5)
    await k("OffsetFetch", 7, topics=asked, require_stable=True, **simple)


async def transactional_offsets_of_members(k: Script) -> None:
    transaction = await _begin_transaction(k, "member-txn")
    joined = await k.join("member-txn")

    async def commit(**changes: Any) -> Any:
        fields = {
            **transaction,
            "group_id": k.group("member-txn"),
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": None,
            "topics": [committed("alpha", 0, 55)],
        }
        return await k("TxnOffsetCommit", 3, **{**fields, **changes})

    await commit()  # while the group completes its rebalance
    await k.sync("member-txn", joined, {joined.member_id: b""})
    await commit()
    await commit(generation_id=joined.generation_id + 1)
    await commit(member_id="x")
    await commit(generation_id=-1, member_id="")
    await commit(group_instance_id="x")
    await k.quietly("EndTxn", 3, committed=False, **transaction)
    await k.sleep(0.5)
    await k("OffsetFetch", 7, topics=None, require_stable=True, group_id=k.group("member-txn"))


async def _begin_transaction(k: Script, group: str) -> dict[str, Any]:
    """A producer whose transaction includes the group."""
    name = k.group("producer-" + group)
    while True:
        await k.quietly("FindCoordinator", 4, key_type=1, coordinator_keys=(name,))
        timeout = duration(30_000)
        fields = {"transaction_timeout": timeout, "producer_id": -1, "producer_epoch": -1}
        producer = await k.quietly("InitProducerId", 4, transactional_id=name, **fields)
        if producer.error_code.name == "none":
            break
        await k.sleep(0.5)
    who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    transaction = {"transactional_id": name, **who}
    await k.quietly("AddOffsetsToTxn", 3, group_id=k.group(group), **transaction)
    return transaction


async def what_one_may_do_to_groups(k: Script) -> None:
    await k.commit("mine-classic", 9, -1, "")
    await k.beat("mine-consumer", "a", 0)
    names = tuple(k.group(name) for name in ("mine-classic", "mine-consumer", "nothing"))
    for version in (3, 5, 6):
        await k("DescribeGroups", version, groups=names, include_authorized_operations=True)
    for version in (0, 1):
        await k("ConsumerGroupDescribe", version, group_ids=names, include_authorized_operations=True)


async def lists_of_groups(k: Script) -> None:
    joined = await k.join("listed-classic")
    await k.beat("listed-consumer", "a", 0)
    await k.commit("listed-simple", 9, -1, "")
    for filters in (
        {},
        {"states_filter": ("Stable", "empty")},
        {"states_filter": ("COMPLETINGREBALANCE",)},
        {"types_filter": ("Classic",)},
        {"types_filter": ("consumer",), "states_filter": ("stable",)},
        {"types_filter": ("unheard of",)},
    ):
        response = await k.quietly("ListGroups", 5, **filters)
        k.note("ListGroups", filters, response, only=k.group("listed-"))
    await k.quietly("LeaveGroup", 2, group_id=k.group("listed-classic"), member_id=joined.member_id)


def _partition(topic: str, partition: int) -> dict[str, Any]:
    return {"name": topic, "partitions": [{"partition_index": partition}]}


SCENARIOS = [
    life_of_a_classic_group,
    classic_refusals,
    versions_of_join,
    votes_for_a_protocol,
    members_that_die,
    static_classic_members,
    rebalance_of_static_members,
    offsets_of_simple_consumers,
    offsets_by_topic_id,
    offsets_and_subscriptions,
    life_of_a_consumer_group,
    heartbeats_that_make_no_sense,
    static_consumer_members,
    consumer_members_that_die,
    changes_of_subscription,
    from_one_protocol_to_the_other,
    from_classic_to_new_while_working,
    classic_members_that_die_in_a_new_group,
    static_members_change_protocol,
    transactional_offsets,
    transactional_offsets_of_members,
    what_one_may_do_to_groups,
    lists_of_groups,
]
