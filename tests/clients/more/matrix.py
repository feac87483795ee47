"""The clients in other languages, and what each of them can do."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.clients.matrix import Client
from tests.support import jars
from tests.support.packages import require

GO = Path(__file__).with_name("go")
BUILT = jars.REPOSITORY / ".cache" / "clients"


def _go(program: str) -> Callable[[], Sequence[str]]:
    def command() -> Sequence[str]:
        target = BUILT / program
        # Go knows by itself whether there is anything to do.
        build = [require("go"), "build", "-o", str(target), f"./{program}"]
        environment = {**os.environ, "GOFLAGS": "-buildvcs=false"}
        result = subprocess.run(
            build, cwd=GO, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert result.returncode == 0, f"cannot build {program}: {result.stderr[-4000:]}"
        return [str(target)]

    return command


FRANZ = Client(
    "franz-go",
    _go("franz"),
    groups=[
        ("classic", "range"),
        ("classic", "roundrobin"),
        ("classic", "sticky"),
        ("classic", "cooperative-sticky"),
        ("consumer", "range"),
        ("consumer", "uniform"),
    ],
    fenced=["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"],
    lacks=frozenset({"txn_offsets"}),
)

SARAMA = Client(
    "sarama",
    _go("sarama"),
    groups=[("classic", "range"), ("classic", "roundrobin"), ("classic", "sticky")],
    fenced=[
        "kafka server: There is a newer producer with the same transactionalId which fences the current one",
        "kafka server: Producer attempted an operation with an old epoch",
    ],
)

KAFKA_GO = Client(
    "kafka-go",
    _go("kafkago"),
    idempotent=False,
    empties=False,
    transactions=False,
    groups=[("classic", "range"), ("classic", "roundrobin")],
    static=False,
    # It cannot read the members' metadata of the version that other clients write today.
    lacks=frozenset({"delete_records", "group"}),
)

MORE: list[Client] = [FRANZ, SARAMA, KAFKA_GO]
