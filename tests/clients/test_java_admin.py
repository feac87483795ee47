"""Java's Admin interface step by step, and the answers of Apache Kafka 4.1, one node, no authorizer."""

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients import jvm

# By step, as java/AdminProbe.java goes through them.
EXPECTED: dict[str, Any] = {
    "create topics": "done",
    "created partitions": 2,
    "created replication": 1,
    "created config": "5000000",
    "created config default": "DEFAULT_CONFIG",
    "assign to an unknown broker": {"error": "InvalidReplicaAssignmentException"},
    "assign partitions with a gap": {"error": "InvalidReplicaAssignmentException"},
    "describe by id": True,
    "describe an unknown id": {"error": "UnknownTopicIdException"},
    "describe an unknown topic": {"error": "UnknownTopicOrPartitionException"},
    "describe": [
        "ALTER",
        "ALTER_CONFIGS",
        "CREATE",
        "DELETE",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "READ",
        "WRITE",
    ],
    "list by pages": [1, 2, 2],
    "add partitions with an assignment": "done",
    "add partitions with a wrong assignment": {"error": "InvalidReplicaAssignmentException"},
    "delete by id": "done",
    "delete an unknown id": {"error": "UnknownTopicIdException"},
    "config types": {
        "cleanup.policy": "LIST",
        "compression.type": "STRING",
        "min.cleanable.dirty.ratio": "DOUBLE",
        "preallocate": "BOOLEAN",
        "retention.ms": "LONG",
        "segment.bytes": "INT",
    },
    "config documentation": True,
    "config synonyms": ["DEFAULT_CONFIG message.max.bytes 1048588"],
    "null config": {"error": "InvalidRequestException"},
    "a config twice": {"error": "InvalidRequestException"},
    "group configs": ["consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"],
    "offset earliest": 0,
    "offset latest": 10,
    "offset max timestamp": 9,
    "offset earliest local": 0,
    "offset latest tiered": -1,
    "offset far future": -1,
    "offset committed": 10,
    "leader epoch": 0,
    "delete records": 3,
    "offset after deletion": 3,
    "delete too many records": {"error": "OffsetOutOfRangeException"},
    "log directories": [True],
    "replica directories": ["0 true"],
    "alter offsets": "done",
    "offsets": "OffsetAndMetadata{offset=4, leaderEpoch=0, metadata='x'}",
    "offsets of several groups": [0, 1],
    "delete offsets": "done",
    "delete offsets of an unknown group": {"error": "GroupIdNotFoundException"},
    "describe an unknown group": {"error": "GroupIdNotFoundException"},
    "describe an unknown classic group": {"error": "GroupIdNotFoundException"},
    "describe a group": ["STABLE", "CLASSIC", "range", "a-client", "an-instance", "/127.0.0.1", 2],
    "describe a classic group": ["consumer", "range", 1, "STABLE"],
    "list groups": ["Optional[Classic] consumer STABLE"],
    "delete offsets in use": {"error": "GroupSubscribedToTopicException"},
    "delete a group in use": {"error": "GroupNotEmptyException"},
    "alter offsets in use": {"error": "UnknownMemberIdException"},
    "remove an unknown member": {"error": "UnknownMemberIdException"},
    "remove members": "done",
    "a group without members": "EMPTY",
    "delete a group": "done",
    "delete a group again": {"error": "GroupIdNotFoundException"},
    "list transactions": ["ONGOING"],
    "list transactions by state": 0,
    "list transactions by pattern": 1,
    "describe a transaction": ["ONGOING", 30000, 1, True, True],
    "describe an unknown transaction": {"error": "TransactionalIdNotFoundException"},
    "describe producers": [0, 0],
    "fence": "done",
    "fenced": {"error": "ProducerFencedException"},
    "after the fence": "EMPTY",
    "cluster": [1, True, 7],
    "list internal": ["__consumer_offsets", "__transaction_state"],
    "features": {"group.version": 1, "transaction.version": 2},
    "elect": "ElectionNotNeededException",
    "reassignments": 0,
    "cancel a reassignment": {"error": "NoReassignmentInProgressException"},
    "reassign to an unknown broker": {"error": "InvalidReplicaAssignmentException"},
    "reassign to where it is": "done",
    "acls": {"error": "SecurityDisabledException"},
    "delegation token": {"error": "UnsupportedByAuthenticationException"},
    "delegation tokens": {"error": "UnsupportedByAuthenticationException"},
    "quotas of nobody": False,
    "scram of nobody": {"error": "ResourceNotFoundException"},
    "config resources": True,
    "client metrics": 0,
    "delete topics": "done",
}


@pytest.fixture(scope="module")
def seen(bootstrap: str) -> Callable[[], dict[str, Any]]:
    """What the probe saw, run when first asked for."""
    found: dict[str, Any] = {}

    def run() -> dict[str, Any]:
        if not found:
            command = [*jvm.program("AdminProbe"), bootstrap, f"admin-probe-{int(time.time())}"]
            result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert result.returncode == 0, result.stderr[-4000:]
            found.update(json.loads(result.stdout))
            print(result.stderr)
        return found

    return run


@pytest.mark.parametrize("step", EXPECTED)
def test_step(seen: Callable[[], dict[str, Any]], step: str) -> None:
    assert seen()[step] == EXPECTED[step]


def test_no_step_is_left_out(seen: Callable[[], dict[str, Any]]) -> None:
    assert list(seen()) == list(EXPECTED)
