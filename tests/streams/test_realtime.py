"""The quick path: rows in milliseconds, through Spark's real-time mode, and what it refuses."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.errors import ApplicationInvalid, EngineMissing
from headwater.streams.declarations import Topic
from headwater.streams.engine.engine import Engine
from headwater.streams.inputs import events
from headwater.streams.planning import plan
from headwater.streams.settings import load_stream_settings
from tests.support import jars
from tests.support.servers import Headwater

APPLICATION = """
import headwater as hw
app = hw.App("quick")
app.stream("numbers", "n long, at timestamp", time="at")

@app.topic("doubled", key="n", realtime=True)
def doubled(numbers):
    return numbers.selectExpr("n", "n * 2 as twice")
"""


def refusing(spark: SparkSession, tmp_path: Path, build: str) -> str:
    app = hw.App("quick")
    app.stream("numbers", "n long, at timestamp", time="at")
    app.stream("others", "n long, at timestamp", time="at")

    @F.udf("long")  # type: ignore[untyped-decorator]
    def twice(n: int) -> int:
        return n * 2

    builds = {
        "python": lambda numbers, others: numbers.select(twice("n").alias("n")),
        "join": lambda numbers, others: hw.join(numbers, others, on="n", within="1 minute").select("n"),
        "session": lambda numbers, others: (
            numbers.groupBy(hw.session("at", "1 minute"), "n").count().select("n")
        ),
    }

    @app.topic("out", key="n", realtime=True)
    def quick(numbers: DataFrame, others: DataFrame) -> DataFrame:
        return builds[build](numbers, others)

    settings = load_stream_settings(data=tmp_path, bootstrap="127.0.0.1:1", environ={}, directory=tmp_path)
    with pytest.raises(ApplicationInvalid) as refused:
        plan(
            spark,
            app.graph(),
            lambda stream, _: events(spark, stream, settings, connector=True, realtime=True),
        )
    return str(refused.value)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        ("python", "it uses a Python function"),
        ("join", "it uses the operator Join"),
        ("session", "it uses a session window"),
    ],
)
def test_what_it_cannot_run_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, build: str, reason: str
) -> None:
    message = refusing(spark, tmp_path, build)
    assert "cannot run in real time the function quick" in message and reason in message


def test_without_the_connector_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    app = hw.App("quick")
    app.stream("numbers", "n long")

    @app.topic("out", realtime=True)
    def quick(numbers: DataFrame) -> DataFrame:
        return numbers

    settings = load_stream_settings(data=tmp_path, environ={}, directory=tmp_path)
    with pytest.raises(EngineMissing, match="headwater jars"):
        Engine(app, settings).start()


def test_every_partition_of_a_topic_that_is_there_has_a_slot(tmp_path: Path) -> None:
    app = hw.App("quick")
    app.stream("numbers", "n long")

    @app.topic("out", realtime=True)
    def quick(numbers: DataFrame) -> DataFrame:
        return numbers

    with Headwater(tmp_path / "log") as server:
        settings = load_stream_settings(
            data=tmp_path, bootstrap=server.bootstrap, environ={}, directory=tmp_path
        )
        engine = Engine(app, settings)
        outputs = [output for output in engine.graph.outputs() if isinstance(output, Topic)]
        declared = engine._slots(outputs)
        Admin(engine.connection).create_topic("numbers", 8)
        assert declared is not None and engine._slots(outputs) == declared + 7


def test_rows_pass_while_a_batch_would_still_be_planned(tmp_path: Path) -> None:
    (tmp_path / "quick.py").write_text(APPLICATION)
    with Headwater(tmp_path / "log") as server:
        folder = tmp_path / "jars"
        folder.mkdir()
        for jar in jars.spark_connector():
            (folder / jar.name).symlink_to(jar)
        environment = {**os.environ, "HEADWATER_JARS": str(folder), "HEADWATER_DATA": str(tmp_path / "data")}
        command = [
            sys.executable,
            "-m",
            "headwater.cli.main",
            "run",
            "quick.py",
            "--bootstrap",
            server.bootstrap,
        ]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None and "ready" in process.stdout.readline()
            producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0, "linger.ms": 0})
            with Reader(Connection(server.bootstrap, {"log_level": "0"}), ["doubled"]) as reader:
                batches = reader.batches(idle=0.5)
                # The first may come twice or late: the query is still starting.
                seen: dict[int, int] = {}
                end = time.monotonic() + 90
                while 0 not in seen and time.monotonic() < end:
                    producer.produce("numbers", json.dumps({"n": 0, "at": "2026-01-01T00:00:00Z"}))
                    producer.flush()
                    for message in next(batches):
                        seen[0] = json.loads(message.value())["twice"]
                for number in range(1, 20):
                    producer.produce("numbers", json.dumps({"n": number, "at": "2026-01-01T00:00:00Z"}))
                producer.produce("numbers", b"no number")
                producer.flush()
                while len(seen) < 20 and time.monotonic() < end:
                    for message in next(batches):
                        value = json.loads(message.value())
                        seen[value["n"]] = value["twice"]
            assert seen == {number: 2 * number for number in range(20)}
            status = subprocess.run(
                [sys.executable, "-m", "headwater.cli.main", "status", "quick.py", "--json"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            assert json.loads(status.stdout)["guarantee"] == "at least once"
            with Reader(Connection(server.bootstrap, {"log_level": "0"}), ["numbers.dead"]) as reader:
                dead: list[bytes] = []
                for messages in reader.batches(idle=0.5):
                    dead += [message.value() for message in messages]
                    if dead or time.monotonic() > end:
                        break
            assert dead == [b"no number"]
        finally:
            process.terminate()
            assert process.wait(60) == 0
