"""A data directory with gigabytes of log, quickly: one partition is written by a client, then copied.

Copies are real files, not links, and are what the server itself wrote; only the marks that both servers keep
beside the partitions are written again, as a clean shutdown would have left them.
"""

import json
import shutil
from pathlib import Path

from tests.support.servers import ApacheKafka, Server


def multiply(server: Server, topic: str, partitions: int) -> None:
    """Fill partitions 1, 2, ... of the stopped server's topic with what partition 0 holds."""
    first = server.data / f"{topic}-0"
    for number in range(1, partitions):
        target = server.data / f"{topic}-{number}"
        shutil.rmtree(target)
        shutil.copytree(first, target)
    if isinstance(server, ApacheKafka):
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            _repeat_kafka_checkpoint(server.data / name, topic, partitions)
    else:
        _repeat_our_checkpoint(server.data / "checkpoint.json", topic, partitions)


def size_of(directory: Path) -> int:
    """Bytes in the log files below."""
    return sum(path.stat().st_size for path in directory.glob("*/*.log"))


def _repeat_kafka_checkpoint(path: Path, topic: str, partitions: int) -> None:
    """Lines: version, number of entries, then ``topic partition offset``."""
    version, _, *lines = path.read_text().splitlines()
    entries = {tuple(line.split()[:2]): line.split()[2] for line in lines}
    offset = entries[topic, "0"]
    for number in range(partitions):
        entries[topic, str(number)] = offset
    body = "".join(f"{name} {number} {offset}\n" for (name, number), offset in entries.items())
    path.write_text(f"{version}\n{len(entries)}\n{body}")


def _repeat_our_checkpoint(path: Path, topic: str, partitions: int) -> None:
    marks = json.loads(path.read_text())
    for number in range(1, partitions):
        marks[f"{topic}-{number}"] = marks[f"{topic}-0"]
    path.write_text(json.dumps(marks))
