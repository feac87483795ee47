"""Kafka Connect: lines of a file to a topic and on to another file, standalone and as a cluster of one."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.clients import jvm
from tests.clients.peer import Peer
from tests.clients.waiting import until
from tests.support.jars import KAFKA_VERSION
from tests.support.servers import free_port

pytestmark = pytest.mark.wide

CONNECT = tuple(f"org.apache.kafka:connect-{part}:{KAFKA_VERSION}" for part in ("runtime", "json", "file"))


def properties(file: Path, settings: dict[str, object]) -> str:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(file)


def test_a_file_to_a_topic_to_a_file(
    bootstrap: str,
    reference: Peer,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic, name = make_topic(), unique("sink")
    text = "org.apache.kafka.connect.storage.StringConverter"
    worker = {
        "bootstrap.servers": bootstrap,
        "key.converter": text,
        "value.converter": text,
        "offset.storage.file.filename": tmp_path / "offsets",
        "offset.flush.interval.ms": 500,
        "listeners": f"http://127.0.0.1:{free_port()}",
        "plugin.discovery": "service_load",
    }
    source = {
        "name": unique("source"),
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": 1,
        "file": tmp_path / "in.txt",
        "topic": topic,
    }
    sink = {
        "name": name,
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": 1,
        "file": tmp_path / "out.txt",
        "topics": topic,
    }
    given, received = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_text("".join(f"line {i} ✓\n" for i in range(100)))
    command = jvm.tool(
        "org.apache.kafka.connect.cli.ConnectStandalone",
        properties(tmp_path / "worker.properties", worker),
        properties(tmp_path / "source.properties", source),
        properties(tmp_path / "sink.properties", sink),
        extra=CONNECT,
    )

    def lines() -> list[str]:
        return received.read_text().splitlines() if received.exists() else []

    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            expected = [f"line {i} ✓" for i in range(100)]
            until(lines, lambda seen: seen == expected, "the first lines are through", timeout=60)
            with given.open("a") as more:
                more.write("one more\n")
            until(lines, lambda seen: seen == [*expected, "one more"], "the added line is through")
            until(
                lambda: reference.committed(f"connect-{name}", topic, [0]),
                lambda seen: seen == {0: 101},
                "the sink has committed its offset",
            )
        except AssertionError:
            print((tmp_path / "log").read_text()[-4000:])
            raise
        finally:
            process.terminate()
    values = [one.value for one in reference.read(topic, last={0: 100})]
    assert values == [line.encode() for line in [*expected, "one more"]]


def test_a_worker_of_a_cluster_exactly_once(
    bootstrap: str,
    reference: Peer,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """It keeps its state in compacted topics, joins a group of type "connect", and writes transactions."""
    topic, cluster, port = make_topic(), unique("cluster"), free_port()
    text = "org.apache.kafka.connect.storage.StringConverter"
    worker: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": cluster,
        "key.converter": text,
        "value.converter": text,
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": 500,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
    }
    for kind in ("config", "offset", "status"):
        worker[f"{kind}.storage.topic"] = f"{cluster}-{kind}"
        worker[f"{kind}.storage.replication.factor"] = 1
    source = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(tmp_path / "in.txt"),
        "topic": topic,
        "exactly.once.support": "required",
    }
    given = tmp_path / "in.txt"
    given.write_text("".join(f"line {i}\n" for i in range(50)))
    command = jvm.tool(
        "org.apache.kafka.connect.cli.ConnectDistributed",
        properties(tmp_path / "worker.properties", worker),
        extra=CONNECT,
    )

    def ask(method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(
            f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def is_up() -> bool:
        try:
            return isinstance(ask("GET", "/connectors"), list)
        except OSError:
            return False

    def state() -> Any:
        try:
            found = ask("GET", "/connectors/lines/status")
        except OSError:
            return None
        return [found["connector"]["state"], *(task["state"] for task in found["tasks"])]

    def end() -> int:
        found: int = reference.ask("offset_at", topic=topic, partition=0, timestamp=-1)
        return found

    def lines() -> list[bytes | None]:
        read = (
            reference.read(topic, last={0: end()}, isolation="read_committed", quiet_ms=500) if end() else []
        )
        return [one.value for one in read]

    log = (tmp_path / "log").open("wb")
    try:
        for count in (50, 80):  # the second time it goes on from the offsets in its topic
            given.write_text("".join(f"line {i}\n" for i in range(count)))
            with subprocess.Popen(command, stdout=log, stderr=log) as process:
                try:
                    until(is_up, lambda up: up, "the worker answers", timeout=60)
                    until(
                        lambda: ask("PUT", "/connectors/lines/config", source), bool, "it takes the connector"
                    )
                    until(
                        state, lambda seen: seen == ["RUNNING", "RUNNING"], "the connector runs", timeout=60
                    )
                    expected = [f"line {i}".encode() for i in range(count)]
                    until(lines, expected.__eq__, f"{count} lines are there once", timeout=60)
                finally:
                    process.terminate()
                    process.wait(60)
    except BaseException:
        print((tmp_path / "log").read_text()[-6000:])
        raise
    finally:
        log.close()
    for kind in ("config", "offset", "status"):
        assert reference.ask("config", topic=f"{cluster}-{kind}")["cleanup.policy"] == "compact"
