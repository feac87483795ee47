"""The embedded broker beside Apache Kafka: same machine, same clients, in one run. ``make bench-log``.

Both servers run all the time, one is used at a time, and they take turns, so that whatever the machine does
besides meets both. Ours answers ``acks=all`` after fdatasync; Kafka answers from the page cache, as it does
by default. Before each measurement everything is written back to disk, so that nobody pays for the other.
"""

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import machine
from benchmarks.log_cells import SIDES, SIZES, Bench, Plan, run_client
from benchmarks.page import keep_section
from benchmarks.table import markdown
from tests.support.jars import KAFKA_VERSION

FULL = Plan(5, {"100 B": 3_000_000, "1 KB": 600_000}, 5000, 10, 1000, 3)
QUICK = Plan(1, {"100 B": 500_000, "1 KB": 100_000}, 2000, 0, 200, 0)

NOTES = """\
A factor above 1 says that Headwater is better. Headwater answers `acks=all` after fdatasync, Apache Kafka
from the page cache, its default, except where the table says otherwise. An idempotent librdkafka has one request a
partition on its way at a time, so that each waits for the disk alone; where Kafka waits for it as well, see the row
"both durable". Headwater looks at the sum of every batch before it sends it, so that a flipped byte is never
served, where Kafka hands the file to the socket unseen: of large records, a reader waits for that.

Who was busy: cores used by the server / by its busiest thread / by the client / by the client's busiest
thread. A busiest thread near 1.00 on the client's side means that the client set the pace.
"""


def run(plan: Plan, directory: Path) -> Bench:
    """All measurements."""
    with ExitStack() as stack:
        bench = Bench(plan, directory, stack)
        for number in range(plan.rounds):
            _say(f"start-up, round {number + 1}")
            bench.start_up(number)
        if plan.log_gigabytes:
            _say(f"start-up with {plan.log_gigabytes} GB of log")
            bench.start_up_with_log()
        bench.start_servers()
        _say("warm-up")
        warm_up(bench)
        for number in range(plan.rounds):
            _say(f"throughput and latency, round {number + 1}")
            for size in SIZES:
                bench.throughput(size, 1, number)
                bench.throughput(size, 6, number)
                bench.throughput(size, 1, number, idempotent=True)
                bench.latency(size, number)
            bench.durable_kafka(number)
        bench.memory("after the load")
        for number in range(plan.java_rounds):
            _say(f"Java clients, round {number + 1}")
            bench.java_clients(number)
        return bench


def warm_up(bench: Bench) -> None:
    """Kafka's code is compiled while it runs: what is measured is the compiled code."""
    for side in SIDES:
        with bench.topic(side, 6) as topic:
            options = ["--records", str(bench.plan.records["100 B"]), "--size", "100"]
            address = ["--bootstrap", bench.servers[side].bootstrap, "--topic", topic]
            for _ in range(2):
                run_client("produce", *address, *options)
            run_client("consume", *address, *options)


def report(bench: Bench, lines: list[str]) -> str:
    """The tables, as they are printed and kept."""
    headings = ["", "median (range)", "Headwater", "Apache Kafka", "better by"]
    shares = [["", "Headwater", "Apache Kafka"]]
    for what, sides in bench.bottlenecks.items():
        shares.append([what, *(_middle(sides.get(side, [])) for side in SIDES)])
    return "\n".join(
        [
            *(f"- {line}" for line in lines),
            "",
            markdown(bench.table.rows(headings)),
            "",
            NOTES,
            markdown(shares),
        ]
    )


def _middle(texts: list[str]) -> str:
    if not texts:
        return ""
    columns = zip(*(map(float, text.split(" / ")) for text in texts), strict=True)
    return " / ".join(f"{statistics.median(column):.2f}" for column in columns)


def _say(what: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {what}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="under two minutes, one round, no 10 GB of log")
    parser.add_argument("--write", type=Path, help="keep the table in this file")
    parser.add_argument("--directory", type=Path, help="where the data lies while it runs, up to 25 GB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-log-", dir=options.directory) as directory:
        lines = machine.description(Path(directory), KAFKA_VERSION)
        busy = machine.load_average()
        bench = run(QUICK if options.quick else FULL, Path(directory))
        lines.append(f"load of the machine before the run: {busy:.1f}; rounds: {bench.plan.rounds}")
    text = report(bench, lines)
    print(text)
    if options.write:
        keep_section(options.write, "The log (`make bench-log`)", text)


if __name__ == "__main__":
    main()
