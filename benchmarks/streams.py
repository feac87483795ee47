"""Headwater's streams beside Flink, Quix Streams, Bytewax and Pathway, in one run. ``make bench-streams``.

Two pipelines, the same for all: counts of words, and minimum, maximum, average and count of a price by symbol
and 10-second window of event time; and a third that passes rows on, for latency alone. All read the same topics
of the embedded broker, and every change of a row is a new result. Each result is compared with a recompute in
DuckDB; a wrong one counts for nothing.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from benchmarks import machine
from benchmarks.page import keep_section
from benchmarks.peers.environments import CannotInstall
from benchmarks.peers.systems import PEERS, System
from benchmarks.streams_cells import Delay, Laboratory, Speed
from benchmarks.streams_check import WrongResult
from benchmarks.streams_events import LIVE_LINGER_MS, WORKLOADS, Workload
from benchmarks.streams_headwater import OURS
from benchmarks.streams_processes import SystemFailed, end_on_sigterm
from benchmarks.table import markdown
from tests.support.servers import Headwater

SECTION = "Streams (`make bench-streams`)"
TITLES: dict[Workload, str] = {
    "words": "word count",
    "ticks": "statistics by window",
    "rows": "rows passed on one by one",
}
RATE = 1000
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    events: int  # that are there when a system starts
    more: int  # that appear when it has counted those
    rounds: int
    warm_up_seconds: float
    seconds: float
    patience: float  # for one run at full speed


FULL = Plan(1_000_000, 2_000_000, 2, 90, 30, 600)
QUICK = Plan(200_000, 400_000, 1, 8, 10, 240)


@dataclass
class Measured:
    """What was found out about one system."""

    system: System
    speeds: dict[Workload, list[Speed]] = field(default_factory=lambda: {one: [] for one in WORKLOADS})
    delays: dict[Workload, list[Delay]] = field(default_factory=lambda: {one: [] for one in WORKLOADS})
    trouble: list[str] = field(default_factory=list)


def measure(
    plan: Plan, systems: Sequence[System], workloads: Sequence[Workload], laboratory: Laboratory
) -> list[Measured]:
    """All runs, the systems taking turns."""
    all_measured = []
    for system in systems:
        measured = Measured(system)
        all_measured.append(measured)
        try:
            _say(f"installing {system.name}")
            system.prepare()
        except CannotInstall as error:
            measured.trouble.append(f"does not install here: {error}")
    usable = [one for one in all_measured if not one.trouble]
    for number in range(plan.rounds):
        for workload in workloads:
            for one in usable if number % 2 == 0 else reversed(usable):
                if workload in one.system.measures_throughput:
                    _speed(plan, one, workload, laboratory)
            for one in usable:
                if workload in one.system.measures_latency:
                    _delay(plan, one, workload, laboratory)
    return all_measured


def _speed(plan: Plan, measured: Measured, workload: Workload, laboratory: Laboratory) -> None:
    system = measured.system
    share = system.shares[workload]
    events, more = round(plan.events * share), round(plan.more * share)
    _say(f"{system.name}: {TITLES[workload]}, {events:,} and {more:,} events")
    try:
        speed = laboratory.speed(system, workload, events, more, plan.patience)
    except (SystemFailed, WrongResult) as error:
        _trouble(measured, f"{TITLES[workload]}, full speed: {error}")
        return
    measured.speeds[workload].append(speed)
    _say(f"  {speed.rate:,.0f} events/s, warm {speed.warm_rate:,.0f}, {speed.peak_bytes >> 20} MB")


def _delay(plan: Plan, measured: Measured, workload: Workload, laboratory: Laboratory) -> None:
    system = measured.system
    _say(f"{system.name}: {TITLES[workload]}, {RATE:,} events/s")
    try:
        delay = laboratory.delay(system, workload, RATE, plan.warm_up_seconds, plan.seconds)
    except (SystemFailed, WrongResult) as error:
        _trouble(measured, f"{TITLES[workload]}, {RATE:,} events/s: {error}")
        return
    measured.delays[workload].append(delay)
    _say(
        f"  p50 {delay.percentile(0.5):,.0f} ms, p99 {delay.percentile(0.99):,.0f} ms at {delay.rate:,.0f}/s"
    )


def _trouble(measured: Measured, what: str) -> None:
    measured.trouble.append(what.splitlines()[0][:300])
    _say(f"  {what}")


def report(
    plan: Plan, all_measured: Sequence[Measured], workloads: Sequence[Workload], lines: Iterable[str]
) -> str:
    """The tables, as they are printed and kept."""
    parts = [
        *(f"- {line}" for line in lines),
        "",
        NOTES.format(seconds=plan.seconds, warm_up=plan.warm_up_seconds, rate=RATE, linger=LIVE_LINGER_MS),
    ]
    for workload in workloads:
        if not any(one.speeds[workload] or one.delays[workload] for one in all_measured):
            continue
        parts += [f"### {TITLES[workload].capitalize()}", "", markdown(_rows(workload, all_measured)), ""]
    parts.append("Settings that are not the defaults:\n")
    parts += [
        f"- {one.system.name} ({one.system.guarantee}): {one.system.settings}"
        + "".join(f". {what}" for what in one.trouble)
        for one in all_measured
    ]
    return "\n".join(parts)


NOTES = """\
Cold events/s: from the start of the processes, over events that are in the topic, to the complete result.
Warm: over twice as many that appear in one moment (a transaction is committed) when those are counted.
p50 and p99: from produce to the moment in which a reader sees a row that counts the event, at {rate:,}
events/s for {seconds:.0f} s after {warm_up:.0f} s of warm-up. A view is read as the server reads it for those
who follow it; the producer has librdkafka's default linger of {linger} ms. Memory is the highest sum of the
proportional set sizes of all processes of the system, without the broker. "Ours is" says how many times as
fast the first line is, by warm events/s and by p99.
"""


def _rows(workload: Workload, all_measured: Sequence[Measured]) -> list[list[str]]:
    headings = [
        "",
        "events",
        "cold, events/s",
        "warm, events/s",
        "ours is",
        "CPU s per M",
        "p50, ms",
        "p99, ms",
        "ours is",
    ]
    rows = [[*headings, "cores at rate", "peak MB, full speed", "peak MB, at rate"]]
    shown = [
        one
        for one in all_measured
        if workload in (*one.system.measures_throughput, *one.system.measures_latency)
    ]
    ours = shown[0]
    for one in shown:
        speeds, delays = one.speeds[workload], one.delays[workload]
        warm, p99 = _warm(speeds), _p99(delays)
        rows.append(
            [
                one.system.name,
                f"{speeds[0].events + speeds[0].warm_events:,}" if speeds else "",
                _cell(_middle(speeds, lambda speed: speed.rate), "{:,.0f}"),
                _cell(warm, "{:,.0f}"),
                _ratio(_warm(ours.speeds[workload]), warm),
                _cell(_middle(speeds, lambda speed: speed.cpu_per_million), "{:.1f}"),
                _cell(_middle(delays, lambda delay: delay.percentile(0.5)), "{:,.0f}"),
                _cell(p99, "{:,.0f}"),
                _ratio(p99, _p99(ours.delays[workload])),
                _cell(_middle(delays, lambda delay: delay.cpu_cores), "{:.2f}"),
                _cell(_middle(speeds, lambda speed: speed.peak_bytes / 2**20), "{:,.0f}"),
                _cell(_middle(delays, lambda delay: delay.peak_bytes / 2**20), "{:,.0f}"),
            ]
        )
    return rows


def _warm(speeds: Sequence[Speed]) -> float | None:
    return _middle(speeds, lambda speed: speed.warm_rate)


def _p99(delays: Sequence[Delay]) -> float | None:
    return _middle(delays, lambda delay: delay.percentile(0.99))


def _middle(values: Sequence[T], of: Callable[[T], float]) -> float | None:
    return statistics.median(map(of, values)) if values else None


def _cell(value: float | None, shape: str) -> str:
    return "" if value is None else shape.format(value)


def _ratio(better: float | None, worse: float | None) -> str:
    return "" if better is None or worse is None else f"{better / worse:.2f}"


def _say(what: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {what}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the events, one round")
    parser.add_argument("--only", default="", help="systems whose names hold one of these words, by commas")
    parser.add_argument("--workload", choices=WORKLOADS, help="one of them")
    parser.add_argument("--rounds", type=int, help="how often everything is measured; the median counts")
    parser.add_argument("--write", type=Path, help="keep the tables in this file")
    parser.add_argument("--directory", type=Path, help="where the data lies while it runs, up to 10 GB")
    options = parser.parse_args()
    end_on_sigterm()
    plan = QUICK if options.quick else FULL
    plan = replace(plan, rounds=options.rounds or plan.rounds)
    chosen = [word.lower() for word in options.only.split(",")]
    systems = [one for one in (*OURS, *PEERS) if any(word in one.name.lower() for word in chosen)]
    workloads = [options.workload] if options.workload else WORKLOADS
    with tempfile.TemporaryDirectory(prefix="bench-streams-", dir=options.directory) as name:
        directory = Path(name)
        lines = machine.description(directory)
        lines.append(
            f"load of the machine before the run: {machine.load_average():.1f}; rounds: {plan.rounds}"
        )
        with Headwater(data=directory / "log") as broker:
            all_measured = measure(plan, systems, workloads, Laboratory(broker.bootstrap, directory))
    text = report(plan, all_measured, workloads, lines)
    print(text)
    if options.write:
        keep_section(options.write, SECTION, text)


if __name__ == "__main__":
    main()
