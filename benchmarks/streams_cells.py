"""What the stream benchmark measures: one run at full speed, and one at a rate."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.peers.systems import Job, System
from benchmarks.streams_check import compare, recompute
from benchmarks.streams_events import PARTITIONS, Workload
from benchmarks.streams_processes import Group
from benchmarks.streams_results import Mark, Result, Row

_POLL_SECONDS = 0.05
_SETTLED_SECONDS = 2.0  # the result has not moved for so long: worth reading all of it
_FIRST_RESULT_SECONDS = 120.0
_LAST_RESULT_SECONDS = 30.0


@dataclass(frozen=True)
class Speed:
    """A run at full speed: over events that were there before, then over more that appear in one moment."""

    events: int
    seconds: float  # from the start of the processes to the complete result
    warm_events: int
    warm_seconds: float  # from the commit of the further events to the complete result
    cpu_seconds: float  # for all of them
    peak_bytes: int

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def warm_rate(self) -> float:
        return self.warm_events / self.warm_seconds

    @property
    def cpu_per_million(self) -> float:
        return self.cpu_seconds / (self.events + self.warm_events) * 1e6


@dataclass(frozen=True)
class Delay:
    """A run at a rate: milliseconds from produce to visible result, in order."""

    milliseconds: list[float]
    rate: float  # what the producer reached
    cpu_cores: float
    peak_bytes: int

    def percentile(self, share: float) -> float:
        """
        >>> Delay([1.0, 2.0, 3.0, 4.0], 1000.0, 0.1, 0).percentile(0.5)
        3.0
        """
        return self.milliseconds[min(len(self.milliseconds) - 1, int(len(self.milliseconds) * share))]


class Filled:
    """A topic, and the process that holds a transaction on it."""

    def __init__(self, name: str, filler: "subprocess.Popen[str]") -> None:
        self.name = name
        self._filler = filler

    def wait(self) -> None:
        """Until all is written."""
        self._say_line()

    def commit(self) -> float:
        """The moment in which it was begun, on the monotonic clock."""
        assert self._filler.stdin is not None
        self._filler.stdin.write("commit\n")
        self._filler.stdin.flush()
        return float(self._say_line())

    def _say_line(self) -> str:
        assert self._filler.stdout is not None
        line = self._filler.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} could not be filled")
        return line


class Laboratory:
    """A broker, the topics that are filled once for all systems, and the directory for all of it."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._recomputed: dict[tuple[Workload, int, int], dict[str, Row]] = {}
        self._runs = 0
        self._topics = 0

    def speed(
        self,
        system: System,
        workload: Workload,
        events: int,
        more: int,
        patience: float,
        look: Callable[[Group], None] | None = None,
    ) -> Speed:
        """Start the system on a topic that holds the events, wait for its result, and give it more.

        ``look`` is called before the further events and after them.
        """
        with self._filled(workload, events, more) as topic:
            wanted = self._wanted(workload, events, 0, topic.name, system)
            wanted_after = self._wanted(workload, events, more, topic.name, system)
            job = self._job(workload, topic.name)
            result = system.result(job)
            try:
                with Group(system.commands(job), self._log(job)) as group:
                    end = _watch(group, result, wanted, group.started + patience)
                    if look is not None:
                        look(group)
                    committed = topic.commit()
                    warm_end = _watch(group, result, wanted_after, committed + patience)
                    cpu = group.cpu_seconds()
                    if look is not None:
                        look(group)
            finally:
                result.close()
                self._clear(job)
        seconds, warm_seconds = end - group.started, warm_end - committed
        return Speed(events, seconds, more, warm_seconds, cpu, group.peak_bytes)

    def delay(self, system: System, workload: Workload, rate: int, warm_up: float, seconds: float) -> Delay:
        """Start the system, warm it up at the rate, and measure from then on."""
        job = self._job(workload, self._topic(f"live-{workload}"))
        result = system.result(job)
        seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
        ending = threading.Event()
        follower = threading.Thread(target=_follow, args=(result, ending, seen, workload), daemon=True)
        try:
            with Group(system.commands(job), self._log(job)) as group:
                follower.start()
                # One second of events tells when the system is up; it belongs to the warm-up.
                first = self._load(job, rate, 1.0, 0)
                _await_rows(group, seen, [name for name, _ in first["sent"]], _FIRST_RESULT_SECONDS)
                system.verify(job)
                before, at = group.cpu_seconds(), time.monotonic()
                warm = threading.Timer(warm_up, group.rest)
                warm.start()
                load = self._load(job, rate, warm_up + seconds, len(first["sent"]))
                cores = (group.cpu_seconds() - before) / (time.monotonic() - at)
                sent = [*first["sent"], *load["sent"]]
                _await_rows(group, seen, [name for name, _ in sent], _LAST_RESULT_SECONDS)
                peak = max(group.peak_bytes, group.proportional_bytes())
        finally:
            ending.set()
            if follower.ident is not None:
                follower.join(10)
            result.close()
            self._clear(job)
            self._delete(job.source)
        delays = _delays(sent, seen)[-round(rate * seconds) :]
        return Delay(sorted(delays), load["rate"], cores, peak)

    @contextmanager
    def _filled(self, workload: Workload, events: int, more: int) -> Iterator[Filled]:
        """A topic with so many events, and more that are not committed yet."""
        self._topics += 1
        name = self._topic(f"{workload}-{self._topics}")
        sizes = ["--count", str(events), "--held", str(more)]
        with subprocess.Popen(
            _events_command("fill", workload, self.bootstrap, name, *sizes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as filler:
            try:
                filled = Filled(name, filler)
                filled.wait()
                os.sync()  # so that the disk does not take it while a system works
                yield filled
            finally:
                filler.kill()
        self._delete(name)

    def _wanted(
        self, workload: Workload, events: int, more: int, topic: str, system: System
    ) -> dict[str, Row]:
        """The result with or without what is not committed yet; the events are the same in every run."""
        if (workload, events, more) not in self._recomputed:
            isolation = "read_uncommitted" if more else "read_committed"
            self._recomputed[workload, events, more] = recompute(
                workload, self.bootstrap, topic, isolation, self.directory
            )
        rows = self._recomputed[workload, events, more]
        if workload == "ticks" and not system.shows_open_windows:
            last = max(rows, key=lambda name: int(name.partition("@")[2])).partition("@")[2]
            return {name: row for name, row in rows.items() if not name.endswith(last)}
        return rows

    def _load(self, job: Job, rate: int, seconds: float, first: int) -> dict[str, Any]:
        options = ["--rate", str(rate), "--seconds", str(seconds), "--first", str(first)]
        said = _events("load", job.workload, job.bootstrap, job.source, *options)
        loaded: dict[str, Any] = json.loads(said)
        return loaded

    def _job(self, workload: Workload, source: str) -> Job:
        self._runs += 1
        directory = self.directory / f"run-{self._runs}"
        directory.mkdir()
        return Job(workload, self.bootstrap, source, self._topic(f"out-{self._runs}"), directory)

    def _log(self, job: Job) -> Path:
        return self.directory / f"{job.directory.name}.log"

    def _topic(self, name: str) -> str:
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
        return name

    def _delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(60)

    def _clear(self, job: Job) -> None:
        self._delete(job.target)
        shutil.rmtree(job.directory, ignore_errors=True)


def _watch(group: Group, result: Result, wanted: dict[str, Row], deadline: float) -> float:
    """Wait for the complete result; the moment in which it was."""
    total = sum(row.count for row in wanted.values())
    marks: list[tuple[float, Mark]] = []
    read = False  # what the last mark says
    counted = 0
    while time.monotonic() < deadline:
        group.finished()
        now, mark = time.monotonic(), result.mark()
        if not marks or mark != marks[-1][1]:
            marks.append((now, mark))
            read = False
        elif not read and now - marks[-1][0] > _SETTLED_SECONDS:
            rows, read = result.rows(), True
            counted = sum(row.count for row in rows.values())
            if counted >= total:
                compare(rows, wanted)
                visible = result.visible([mark for _, mark in marks])
                return next(at for (at, _), seen in zip(marks, visible, strict=True) if seen >= total)
        time.sleep(_POLL_SECONDS)
    raise group.failure(f"counted {counted:,} of {total:,} and then no more")


def _follow(
    result: Result, until: threading.Event, seen: dict[str, list[tuple[int, int]]], workload: Workload
) -> None:
    """Note the moment of each change. Of words only those that mark an event: a letter and a number."""
    for at, row in result.follow(until):
        if workload != "words" or row.name[1:].isdigit():
            seen[row.name].append((row.count, at))


def _await_rows(
    group: Group, seen: dict[str, list[tuple[int, int]]], names: Sequence[str], patience: float
) -> None:
    """Wait until every event shows."""
    wanted: dict[str, int] = defaultdict(int)
    for name in names:
        wanted[name] += 1
    deadline = time.monotonic() + patience
    while left := {name for name, count in wanted.items() if not seen[name] or seen[name][-1][0] < count}:
        group.finished()
        if time.monotonic() > deadline:
            raise group.failure(f"{len(left)} of {len(wanted)} rows did not show within {patience:.0f} s")
        wanted = {name: wanted[name] for name in left}
        time.sleep(0.02)


def _delays(sent: Sequence[tuple[str, int]], seen: dict[str, list[tuple[int, int]]]) -> list[float]:
    """For each event the milliseconds until a row was seen that counts it.

    An event is the n-th of its row in the order of its partition, so it shows with the first count of n.

    >>> _delays([("a", 0), ("a", 5_000_000)], {"a": [(1, 1_000_000), (2, 8_000_000)]})
    [1.0, 3.0]
    """
    ranks: dict[str, int] = defaultdict(int)
    at: dict[str, int] = defaultdict(int)
    delays = []
    for name, when in sent:
        ranks[name] += 1
        looks = seen[name]
        while looks[at[name]][0] < ranks[name]:
            at[name] += 1
        delays.append((looks[at[name]][1] - when) / 1e6)
    return delays


def _events(what: str, workload: Workload, bootstrap: str, topic: str, *options: str) -> str:
    command = _events_command(what, workload, bootstrap, topic, *options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{what} {topic} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def _events_command(what: str, workload: Workload, bootstrap: str, topic: str, *options: str) -> list[str]:
    program = [sys.executable, "-m", "benchmarks.streams_events", what, workload]
    return [*program, "--bootstrap", bootstrap, "--topic", topic, *options]
