"""The cluster, its coordinators, and what an administrator asks of a broker without security."""

from typing import Any

from tests.broker.conformance.script import Run, script
from tests.broker.wire_client import Answer


@script
def coordinators(run: Run) -> None:
    for version in range(7):
        for kind in (0, 1, 2, 7):
            if version == 0 and kind:
                continue
            more: dict[str, Any] = {"key_type": kind} if version >= 1 else {}
            if version >= 4:
                keys = [run.name("one"), run.name("two")]
                run.call(
                    f"v{version} kind {kind}", "find_coordinator", version, coordinator_keys=keys, **more
                )
            elif kind < 2:
                run.call(f"v{version} kind {kind}", "find_coordinator", version, key=run.name("one"), **more)
    run.call("an empty key", "find_coordinator", 4, coordinator_keys=[""], key_type=0)
    run.call("no keys", "find_coordinator", 4, coordinator_keys=[], key_type=0)
    run.call("an empty transactional id", "find_coordinator", 2, key="", key_type=1)


@script
def the_cluster(run: Run) -> None:
    for version in range(3):
        for operations in (False, True):
            more: dict[str, Any] = {"endpoint_type": 1} if version >= 1 else {}
            run.call(
                f"v{version} operations {operations}",
                "describe_cluster",
                version,
                include_cluster_authorized_operations=operations,
                **more,
            )
    for endpoint in (0, 2, 3):
        run.call(f"endpoint {endpoint}", "describe_cluster", 1, endpoint_type=endpoint)
    run.call("with fenced brokers", "describe_cluster", 2, endpoint_type=1, include_fenced_brokers=True)


@script
def features_and_versions(run: Run) -> None:
    for version in range(5):
        named = {"client_software_name": "script", "client_software_version": "1.0"} if version >= 3 else {}
        answer = run.ask("api_versions", version, **named)
        shown = {"error_code": answer["error_code"]}
        if version >= 3:
            finalized = {f["name"]: f["max_version_level"] for f in answer["finalized_features"]}
            supported = {f["name"]: f["max_version"] for f in answer["supported_features"]}
            names = ("group.version", "transaction.version", "metadata.version")
            shown["features"] = [(name, finalized.get(name), supported.get(name)) for name in names]
            shown["zk_migration_ready"] = answer["zk_migration_ready"]
        offered = {api["api_key"]: (api["min_version"], api["max_version"]) for api in answer["api_keys"]}
        shown["some"] = {str(key): offered.get(key) for key in (0, 1, 3, 18, 22, 26, 28)}
        run.note(f"v{version}", shown)
    for name, software in (
        ("", "1"),
        ("a", ""),
        ("white space", "1"),
        ("-a", "1"),
        ("a-", "1"),
        ("ok", "1.0-b"),
    ):
        run.call(
            f"software {name!r} {software!r}",
            "api_versions",
            3,
            client_software_name=name,
            client_software_version=software,
            show=lambda answer: answer["error_code"],
        )


def sizes_left_out(answer: Answer) -> Any:
    """DescribeLogDirs without sizes, which differ by what the logs keep beside the records."""
    return [
        {**result, "total_bytes": "(number)", "usable_bytes": "(number)"}
        if "total_bytes" in result
        else result
        for result in answer["results"]
    ]


@script
def directories(run: Run) -> None:
    name = run.topic(partitions=2)
    for version in range(1, 5):
        run.call(
            f"v{version}",
            "describe_log_dirs",
            version,
            topics=[{"topic": name, "partitions": [0, 1]}],
            show=sizes_left_out,
        )
    run.call(
        "one of two", "describe_log_dirs", 4, topics=[{"topic": name, "partitions": [1]}], show=sizes_left_out
    )
    run.call(
        "unknown",
        "describe_log_dirs",
        4,
        topics=[{"topic": run.name("missing"), "partitions": [0]}],
        show=sizes_left_out,
    )
    run.call("nothing", "describe_log_dirs", 4, topics=[], show=sizes_left_out)
    for path in ("/nowhere", ""):
        for version in (1, 2):
            run.call(
                f"move to {path!r}, v{version}",
                "alter_replica_log_dirs",
                version,
                dirs=[{"path": path, "topics": [{"name": name, "partitions": [0]}]}],
            )
    here = run.ask("describe_log_dirs", 4, topics=[])["results"][0]["log_dir"]
    for topic, partition in ((name, 0), (name, 9), (run.name("missing"), 0)):
        run.call(
            f"move {topic == name} {partition} where it is",
            "alter_replica_log_dirs",
            2,
            dirs=[{"path": here, "topics": [{"name": topic, "partitions": [partition]}]}],
        )


@script
def leaders_and_replicas(run: Run) -> None:
    name, node = run.topic(partitions=2), run.node()
    for version in range(3):
        for kind in (0, 1) if version else (0,):
            more: dict[str, Any] = {"election_type": kind} if version else {}
            run.call(
                f"elect v{version} {kind}",
                "elect_leaders",
                version,
                timeout=5000,
                topic_partitions=[
                    {"topic": name, "partitions": [0, 9]},
                    {"topic": run.name("missing"), "partitions": [0]},
                ],
                **more,
            )
    run.call(
        "elect, a kind nobody knows",
        "elect_leaders",
        2,
        election_type=7,
        timeout=5000,
        topic_partitions=[{"topic": name, "partitions": [0]}],
    )
    run.call(
        "elect all", "elect_leaders", 2, timeout=5000, topic_partitions=None, show=lambda a: a["error_code"]
    )
    run.call("elect none", "elect_leaders", 2, timeout=5000, topic_partitions=[])
    run.call("moving, all", "list_partition_reassignments", 0, timeout=5000, topics=None)
    run.call(
        "moving, one",
        "list_partition_reassignments",
        0,
        timeout=5000,
        topics=[{"name": name, "partition_indexes": [0]}],
    )

    def move(step: str, replicas: list[int] | None, topic: str = name, partition: int = 0) -> None:
        run.call(
            step,
            "alter_partition_reassignments",
            0,
            timeout=5000,
            topics=[{"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}],
        )

    move("to where it is", [node])
    move("to a broker nobody knows", [4711])
    move("to a second one", [node, 4711])
    move("to one twice", [node, node])
    move("to none", [])
    move("cancel", None)
    move("unknown partition", [node], partition=9)
    move("unknown topic", [node], topic=run.name("missing"))
    move("cancel for an unknown topic", None, topic=run.name("missing"))
    run.call("move nothing", "alter_partition_reassignments", 0, timeout=5000, topics=[])
    run.call(
        "move with a new replication factor",
        "alter_partition_reassignments",
        1,
        timeout=5000,
        allow_replication_factor_change=False,
        topics=[{"name": name, "partitions": [{"partition_index": 0, "replicas": [node]}]}],
    )


ANY: dict[str, Any] = {
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@script
def access_control_without_an_authorizer(run: Run) -> None:
    for version in range(1, 4):
        run.call(
            f"describe v{version}",
            "describe_acls",
            version,
            resource_type_filter=1,
            resource_name_filter=None,
            **ANY,
        )
        creation = {
            "resource_type": 2,
            "resource_name": "x",
            "resource_pattern_type": 3,
            "principal": "User:a",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
        run.call(f"create v{version}", "create_acls", version, creations=[creation, creation])
        run.call(
            f"delete v{version}",
            "delete_acls",
            version,
            filters=[{"resource_type_filter": 1, "resource_name_filter": None, **ANY}],
        )


@script
def quotas_of_nobody(run: Run) -> None:
    name = run.name("somebody")

    def describe(
        step: str, *components: tuple[str, int, str | None], strict: bool = True, version: int = 1
    ) -> None:
        asked = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
        run.call(step, "describe_client_quotas", version, components=asked, strict=strict)

    describe("nobody's", ("user", 0, name))
    describe("not strictly, version 0", ("user", 0, name), strict=False, version=0)
    describe("of both kinds", ("user", 0, name), ("client-id", 0, name))
    describe("of the default client", ("user", 0, name), ("client-id", 1, None))
    describe("an unknown kind", ("moon", 0, "x"))
    describe("an unknown way to match", ("user", 9, None))
    describe("no name", ("user", 0, None))
    describe("a name too many", ("user", 1, name))
    describe("a kind twice", ("user", 0, name), ("user", 0, name))


@script
def credentials_of_nobody(run: Run) -> None:
    name, other = run.name("somebody"), run.name("somebody-else")

    def describe(step: str, *users: str) -> None:
        run.call(step, "describe_user_scram_credentials", 0, users=[{"name": user} for user in users])

    describe("nobody's", name)
    describe("twice", name, name)
    describe("of no name", "")
    describe("of both", name, other)


@script
def security_that_is_not_on(run: Run) -> None:
    for version in (0, 1):
        run.call(f"handshake v{version}", "sasl_handshake", version, mechanism="PLAIN")
        run.drop()
    for version in range(3):
        run.call(f"authenticate v{version}", "sasl_authenticate", version, auth_bytes=b"\0user\0secret")
        run.drop()
    for version in range(1, 4):
        more: dict[str, Any] = (
            {"owner_principal_type": None, "owner_principal_name": None} if version >= 3 else {}
        )
        run.call(
            f"create token v{version}",
            "create_delegation_token",
            version,
            renewers=[],
            max_lifetime=1000,
            **more,
        )
        run.call(f"describe tokens v{version}", "describe_delegation_token", version, owners=None)
    for version in (1, 2):
        run.call(f"renew token v{version}", "renew_delegation_token", version, hmac=b"abc", renew_period=1000)
        run.call(
            f"expire token v{version}",
            "expire_delegation_token",
            version,
            hmac=b"abc",
            expiry_time_period=1000,
        )


@script
def the_quorum_and_its_features(run: Run) -> None:
    node = run.node()
    for version in range(3):
        answer = run.ask(
            "describe_quorum",
            version,
            topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
        )
        partition = answer["topics"][0]["partitions"][0]
        run.note(
            f"v{version}",
            {
                "error_code": answer["error_code"],
                "leads": partition["leader_id"] == node,
                "voters": [voter["replica_id"] == node for voter in partition["current_voters"]],
                "observers": partition["observers"],
                "has_end": partition["high_watermark"] >= 0,
                "nodes": [n["node_id"] == node for n in answer.get("nodes", [])],
            },
        )
    run.call(
        "another topic",
        "describe_quorum",
        1,
        topics=[{"topic_name": "nonsense", "partitions": [{"partition_index": 0}]}],
    )
    run.call("no topic", "describe_quorum", 1, topics=[])

    def update(step: str, version: int, *updates: dict[str, Any], **more: Any) -> None:
        run.call(step, "update_features", version, timeout=5000, feature_updates=list(updates), **more)

    for version in range(3):
        update(f"unknown feature v{version}", version, {"feature": "nonsense", "max_version_level": 1})
    update(
        "the level it has",
        1,
        {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1},
        validate_only=True,
    )
    update(
        "too high a level",
        1,
        {"feature": "group.version", "max_version_level": 99, "upgrade_type": 1},
        validate_only=True,
    )
    update(
        "a downgrade that is not allowed",
        1,
        {"feature": "group.version", "max_version_level": 0, "upgrade_type": 1},
        validate_only=True,
    )
    update(
        "an unknown kind of upgrade",
        1,
        {"feature": "group.version", "max_version_level": 1, "upgrade_type": 9},
        validate_only=True,
    )
    update("nothing", 1)
    run.call("unregister a broker nobody knows", "unregister_broker", 0, broker_id=4711)
