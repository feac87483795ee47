"""The clients in other languages, and what each of them can do."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.clients.matrix import Client
from tests.support import jars
from tests.support.packages import require

GO = Path(__file__).with_name("go")
NODE = Path(__file__).with_name("node")
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


def _node(program: str) -> Callable[[], Sequence[str]]:
    def command() -> Sequence[str]:
        folder = BUILT / "node"
        wanted = (NODE / "package.json").read_text()
        installed = folder / "installed.json"
        if not installed.exists() or installed.read_text() != wanted:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text(wanted)
            install = [require("npm"), "install", "--no-audit", "--no-fund", "--no-package-lock"]
            result = subprocess.run(
                install, cwd=folder, capture_output=True, text=True, timeout=600, check=False
            )
            assert result.returncode == 0, f"cannot install {program}: {result.stderr[-4000:]}"
            installed.write_text(wanted)
        for source in NODE.glob("*.js"):  # beside the modules, where node looks for them
            shutil.copyfile(source, folder / source.name)
        return [require("node"), str(folder / f"{program}.js")]

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
    static=("classic",),  # in the other its member leaves without saying which instance it is
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
    static=(),
    # It cannot read the members' metadata of the version that other clients write today.
    lacks=frozenset({"delete_records", "group"}),
)

KAFKAJS = Client(
    "kafkajs",
    _node("kafkajs"),
    codecs=["none", "gzip"],  # the others are packages of other authors
    null_headers=False,
    header_order=False,
    groups=[("classic", "roundrobin")],
    static=(),
    fenced=["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"],
    # It commits offsets as a member only, and its alterConfigs replaces all settings.
    lacks=frozenset({"set_offsets", "set_config"}),
)

PLATFORMATIC = Client(
    "platformatic",
    _node("platformatic"),
    codecs=["none", "gzip", "snappy", "lz4"],  # zstd needs a later version of node
    # Its readers show aborted records, and a second producer of an id is fenced from the start, on Apache
    # Kafka as well.
    transactions=False,
    groups=[("classic", "roundrobin"), ("consumer", "uniform"), ("consumer", "range")],
    lacks=frozenset({"set_offsets"}),  # it commits offsets without their text
)

MORE: list[Client] = [FRANZ, SARAMA, KAFKA_GO, KAFKAJS, PLATFORMATIC]
