"""Kafka Connect, standalone: lines of a file to a topic and on to another file."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.clients import jvm
from tests.clients.peer import Peer
from tests.clients.waiting import until
from tests.support.jars import KAFKA_VERSION
from tests.support.servers import free_port

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
