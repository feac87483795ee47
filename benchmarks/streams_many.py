"""What many views cost on a small machine, and where the time of a million events goes.

``make bench-many`` runs an application of ten views over four streams by ``headwater up``: how long until it
is ready, processor and memory of all its processes (broker, Java, Python) when idle and at 1,000 events/s; then
the windowed statistics of a million events into a view, by part and phase.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks import machine
from benchmarks.page import keep_section
from benchmarks.streams_cells import Laboratory
from benchmarks.streams_headwater import HeadwaterView
from benchmarks.streams_parts import cpu_by_part
from benchmarks.streams_processes import Command, Group, SystemFailed, end_on_sigterm
from benchmarks.table import markdown
from headwater.views import open_store
from tests.support.servers import Headwater, free_port

SECTION = "Many views, and a million events (`make bench-many`)"
STREAMS = ("clicks", "orders", "sensors", "searches")
# A view that counts every event of its stream once, for the check at the end.
COUNTING = {
    "clicks": "clicks_by_page",
    "orders": "revenue_by_item",
    "sensors": "sensor_last",
    "searches": "searches_by_minute",
}
VIEWS = 10
READY_SECONDS = 180.0
_APPLICATION = Path(__file__).with_name("streams_many_app.py")
_MEGABYTE = 1 << 20
_SETTLE_SECONDS = 20.0  # sources of queries that run already may still be starting


def many(directory: Path, seconds: float, rate: int) -> list[list[str]]:
    """The application of ten views."""
    data = directory / "many"
    port = free_port()
    program = Path(sys.executable).with_name("headwater")
    command: list[str | Path] = [
        program,
        "up",
        _APPLICATION,
        "--data",
        data,
        "--port",
        str(port),
        "--no-serve",
    ]
    rows = [["ten views over four streams", "value"]]
    with Group([Command(command, {})], directory / "many.log") as group:
        ready = _wait(group, data, lambda outputs: all(one["state"] == "running" for one in outputs))
        rows.append(["ready after, s", f"{ready - group.started:.1f}"])
        time.sleep(_SETTLE_SECONDS)
        rows += _cost(group, "idle", seconds)
        sent: dict[str, int] = defaultdict(int)
        writer = threading.Thread(
            target=_write, args=(f"127.0.0.1:{port}", rate, seconds + 10, sent), daemon=True
        )
        writer.start()
        time.sleep(10)  # code is compiled, workers start
        rows += _cost(group, f"at {rate:,} events/s", seconds)
        writer.join()
        _wait(group, data, lambda outputs: all(one["lag"] == 0 for one in outputs))
        _check(data, sent)
    return rows


def _cost(group: Group, when: str, seconds: float) -> list[list[str]]:
    """Processor and memory over a time, sampled each second."""
    before, parts_before, at = group.cpu_seconds(), cpu_by_part(group.pids()), time.monotonic()
    memory = []
    while time.monotonic() - at < seconds:
        group.finished()
        memory.append(group.proportional_bytes())
        time.sleep(1)
    took = time.monotonic() - at
    parts = _less(cpu_by_part(group.pids()), parts_before)
    # A worker that ended meanwhile takes all its time out of the sum, and out of its part.
    used = max(group.cpu_seconds() - before, sum(seconds for _, seconds in parts if seconds > 0))
    rows = [
        [f"{when}: cores", f"{used / took:.2f}"],
        [f"{when}: memory, MB", f"{max(memory) / _MEGABYTE:,.0f}"],
        [f"{when}: processes", str(len(group.pids()))],
    ]
    rows += [
        [f"{when}: cores of {part}", f"{seconds / took:.2f}"]
        for part, seconds in parts
        if seconds / took >= 0.005
    ]
    return rows


def _less(after: dict[str, float], before: dict[str, float]) -> list[tuple[str, float]]:
    """Largest first."""
    return sorted(
        ((part, used - before.get(part, 0.0)) for part, used in after.items()), key=lambda pair: -pair[1]
    )


def _wait(group: Group, data: Path, enough: Any) -> float:
    """Until the status of all outputs is as wanted; the moment in which it was."""
    file = data / "status" / "many.json"
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        group.finished()
        outputs = json.loads(file.read_text())["outputs"] if file.exists() else []
        if len(outputs) == VIEWS and enough(outputs):
            return time.monotonic()
        time.sleep(0.05)
    raise group.failure(f"not ready after {READY_SECONDS:.0f} s")


def _write(bootstrap: str, rate: int, seconds: float, sent: dict[str, int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    chance = random.Random(5)
    started = time.perf_counter()
    for number in range(int(rate * seconds)):
        stream = STREAMS[number % len(STREAMS)]
        producer.produce(stream, json.dumps(_event(stream, number, chance)))
        sent[stream] += 1
        producer.poll(0)
        ahead = started + (number + 1) / rate - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
    producer.flush(30)


def _event(stream: str, number: int, chance: random.Random) -> dict[str, Any]:
    event: dict[str, Any] = {"id": number, "at": datetime.now(UTC).isoformat(timespec="milliseconds")}
    if stream != "sensors":
        event["user"] = f"user-{chance.randrange(1000):04}"
    if stream == "clicks":
        event["page"] = f"/page/{chance.randrange(50)}"
    elif stream == "orders":
        event |= {"item": f"item-{chance.randrange(200)}", "amount": chance.randrange(100, 10_000) / 100}
    elif stream == "sensors":
        event |= {"device": f"device-{chance.randrange(20):02}", "value": round(chance.gauss(20, 5), 2)}
    else:
        event["words"] = " ".join(f"word{chance.randrange(300)}" for _ in range(3))
    return event


def _check(data: Path, sent: dict[str, int]) -> None:
    """Every event is counted once."""
    with open_store(f"sqlite:///{(data / 'views.db').absolute()}") as store:
        for stream, view in COUNTING.items():
            counted = sum(row["n"] for row in store.rows(view))
            if counted != sent[stream]:
                raise SystemFailed(f"the view {view} counts {counted} of {sent[stream]} {stream}")


class Phases:
    """Collects the phases of batches from the status file while an application runs."""

    def __init__(self) -> None:
        self.batches: dict[int, dict[str, int]] = {}
        self._first = 0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, directory: Path) -> None:
        self._thread = threading.Thread(target=self._collect, args=(directory,), daemon=True)
        self._thread.start()

    def forget(self) -> None:
        """From now on only later batches count."""
        self._first = max(self.batches, default=-1) + 1
        self.batches = {}

    def end(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _collect(self, directory: Path) -> None:
        while not self._ending.wait(0.2):
            for file in directory.glob("run-*/data/status/bench.json"):
                for output in json.loads(file.read_text())["outputs"]:
                    if output["batch"] >= self._first:
                        self.batches[output["batch"]] = output["phases"]

    def rows(self) -> list[list[str]]:
        """Milliseconds of the batches seen, in sum, the longest phase first."""
        sums: dict[str, int] = defaultdict(int)
        for phases in self.batches.values():
            for phase, milliseconds in phases.items():
                sums[phase] += milliseconds
        ordered = sorted(sums.items(), key=lambda pair: -pair[1])
        return [
            [f"warm: phase {name}, ms in {len(self.batches)} batches seen", f"{took:,}"]
            for name, took in ordered
        ]


def million(directory: Path, events: int) -> list[list[str]]:
    """The windowed statistics into a view: cold, then twice as many warm, and who was busy with those."""
    phases = Phases()
    looks: list[dict[str, float]] = []

    with Headwater(data=directory / "log") as broker:
        laboratory = Laboratory(broker.bootstrap, directory)

        def look(group: Group) -> None:
            looks.append(cpu_by_part([*group.pids(), broker.pid]))
            if len(looks) == 1:
                phases.forget()

        phases.begin(directory)
        try:
            speed = laboratory.speed(HeadwaterView(), "ticks", events, 2 * events, 600, look)
        finally:
            phases.end()
    used = _less(looks[1], looks[0])
    return [
        [f"{events:,} events into a view by window", "value"],
        ["cold, with the start of the processes, events/s", f"{speed.rate:,.0f}"],
        [f"warm, {2 * events:,} events, events/s", f"{speed.warm_rate:,.0f}"],
        ["warm, s", f"{speed.warm_seconds:.2f}"],
        ["peak memory, MB", f"{speed.peak_bytes / _MEGABYTE:,.0f}"],
        *([f"warm: CPU s of {part}", f"{seconds:.2f}"] for part, seconds in used if seconds >= 0.05),
        *phases.rows(),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="15 seconds instead of 60, fewer events")
    parser.add_argument("--only", choices=["many", "million"], help="one of the two")
    parser.add_argument("--write", type=Path, help="keep the tables in this file")
    options = parser.parse_args()
    end_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="bench-many-") as name:
        directory = Path(name)
        parts = [f"- {line}" for line in machine.description(directory)]
        parts += [f"- load of the machine before the run: {machine.load_average():.1f}", ""]
        if options.only != "million":
            parts += [markdown(many(directory, 15 if options.quick else 60, 1000)), ""]
        if options.only != "many":
            parts += [markdown(million(directory, 200_000 if options.quick else 1_000_000)), ""]
    text = "\n".join(parts)
    print(text)
    if options.write:
        keep_section(options.write, SECTION, text)


if __name__ == "__main__":
    main()
