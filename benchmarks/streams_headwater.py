"""Headwater in the stream benchmark: results as a view, as a topic, and on the quick path."""

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from benchmarks.peers.environments import CACHE, CannotInstall
from benchmarks.peers.systems import Job, System
from benchmarks.streams_check import WrongResult
from benchmarks.streams_events import WORDS_IN_EVENT, Workload, row_name
from benchmarks.streams_processes import Command
from benchmarks.streams_results import Decode, Mark, Result, Row, TopicResult
from headwater.errors import HeadwaterError
from headwater.views import Progress, ViewStore, open_store
from tests.support.jars import spark_connector
from tests.support.packages import ComponentMissing

_APPLICATION = Path(__file__).with_name("streams_app.py")
_JARS = CACHE / "spark-connector"
_VIEW = "result"
_LOOK_SECONDS = 0.05


class HeadwaterView(System):
    """A view in SQLite, read from the store."""

    name = "Headwater, view"
    guarantee = "exactly once"
    settings = "none; Python data source, view in SQLite"
    output = "view"

    def commands(self, job: Job) -> list[Command]:
        program = Path(sys.executable).with_name("headwater")
        where: list[str | Path] = ["--bootstrap", job.bootstrap, "--data", job.directory / "data"]
        environment = {
            "BENCH_WORKLOAD": job.workload,
            "BENCH_OUTPUT": self.output,
            "BENCH_SOURCE": job.source,
            "BENCH_TARGET": job.target,
        }
        return [Command([program, "run", _APPLICATION, *where], environment | self.environment())]

    def environment(self) -> dict[str, str]:
        """What this configuration adds to the environment."""
        return {}

    def result(self, job: Job) -> Result:
        return ViewResult(job)


class HeadwaterTopic(HeadwaterView):
    """A topic, read by a consumer of committed records."""

    name = "Headwater, topic"
    settings = "none; Python data source, topic by transactions"
    output = "topic"
    measures_latency: tuple[Workload, ...] = ("words", "ticks", "rows")

    def result(self, job: Job) -> Result:
        return TopicResult(job.bootstrap, job.target, _decoder(job.workload))


class HeadwaterRealtime(HeadwaterTopic):
    """The quick path: Spark's real-time mode, which needs Spark's Kafka connector."""

    name = "Headwater, realtime topic"
    guarantee = "at least once"
    settings = "realtime=True, Spark's Kafka connector"
    output = "realtime"
    measures_throughput = ()
    measures_latency = ("ticks", "rows")

    def prepare(self) -> None:
        """The connector's jars, in a folder of their own."""
        try:
            jars = spark_connector()
        except ComponentMissing as missing:
            raise CannotInstall(str(missing)) from missing
        _JARS.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            link = _JARS / jar.name
            if not link.exists():
                link.symlink_to(jar)

    def environment(self) -> dict[str, str]:
        return {"HEADWATER_JARS": str(_JARS)}

    def verify(self, job: Job) -> None:
        """The status names the weaker guarantee that real-time mode gives."""
        document = json.loads((job.directory / "data" / "status" / "bench.json").read_text())
        said = {output["guarantee"] for output in document["outputs"]}
        if said != {self.guarantee}:
            raise WrongResult(f"it runs {' and '.join(said)}, so not in real-time mode")


class ViewResult(Result):
    """The view in its store. How far it is, it says itself: the input offsets that its rows cover."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._address = f"sqlite:///{(job.directory / 'data' / 'views.db').absolute()}"
        self._store: ViewStore | None = None

    def mark(self) -> Mark:
        progress = self._progress()
        if progress is None:
            return 0
        return sum(int(offset) for offset in progress.offsets.get(self.job.source, {}).values())

    def rows(self) -> dict[str, Row]:
        if self._progress() is None:
            return {}
        assert self._store is not None
        rows = (_row(self.job.workload, row) for row in self._store.rows(_VIEW))
        return {row.name: row for row in rows}

    def visible(self, marks: Sequence[Mark]) -> list[int]:
        return [mark * (WORDS_IN_EVENT if self.job.workload == "words" else 1) for mark in marks]

    def follow(self, until: threading.Event) -> Iterator[tuple[int, Row]]:
        """As the server follows a view for those who subscribe to it: by what each batch has changed."""
        while self._progress() is None:
            if until.wait(_LOOK_SECONDS):
                return
        assert self._store is not None
        watch, last = self._store.watch(), 0
        try:
            while not until.is_set():
                if not watch.changed():
                    until.wait(watch.pause)
                    continue
                while changes := self._store.changes(_VIEW, last):
                    if changes[0].number != last + 1:
                        raise WrongResult(f"changes {last + 1} to {changes[0].number - 1} went unseen")
                    seen, last = time.monotonic_ns(), changes[-1].number
                    for row in (change.row for change in changes):
                        assert row is not None, "nothing is deleted"
                        yield seen, _row(self.job.workload, row)
        finally:
            watch.close()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _progress(self) -> Progress | None:
        """None until the view is there, which takes as long as Spark takes to start."""
        if self._store is None:
            if not Path(self._address.removeprefix("sqlite:///")).exists():
                return None
            self._store = open_store(self._address)
        try:
            return self._store.progress(_VIEW)
        except HeadwaterError:
            return None


def _decoder(workload: Workload) -> Decode:
    return lambda _, value: _row(workload, orjson.loads(value))


def _row(workload: Workload, row: dict[str, Any]) -> Row:
    if workload == "rows":
        return Row(str(row["id"]), 1)
    if workload == "words":
        return Row(row["word"], row["n"])
    start = row["window"]["start"]
    moment = datetime.fromisoformat(start) if isinstance(start, str) else start
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    name = row_name(row["symbol"], round(moment.timestamp() * 1000))
    return Row(name, row["n"], (row["low"], row["high"], row["average"]))


OURS: tuple[System, ...] = (HeadwaterView(), HeadwaterTopic(), HeadwaterRealtime())
