"""Capture beside Debezium: same server, same broker, in one run. ``make bench-cdc``.

One table is read whole, then both connectors are stopped, transactions of one row are written, and each connector is
started again and follows them: what is measured is reading, not writing. Both write to an embedded broker; ours in
transactions, each row once, Debezium as it does by default, at least once. What the server's own clients do alone is
measured as well.
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine
from benchmarks.cdc_measure import filled, lags, peak_bytes
from benchmarks.cdc_servers import Server, server
from benchmarks.cdc_sides import Ours, Side, Theirs
from benchmarks.page import keep_section
from benchmarks.table import Table, markdown
from tests.support.debezium import VERSION
from tests.support.jars import KAFKA_VERSION
from tests.support.servers import Headwater

NOTES = """\
A factor above 1 says that Headwater is better. Rates count from the first record in the topic to the last, so that
neither pays for its start; processor time is that of the connector's process alone. Lag is from the commit of a single
row to a reader of the topic, at a steady 500 rows a second. Memory is the most that the process had resident.

What the server sends to its own clients (the binlog: to a loop that takes packets and looks into none), and the share
of it that a connector brings to the log:
"""


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rows: int
    transactions: int
    lag_seconds: float


FULL = Plan(1_000_000, 500_000, 20)
QUICK = Plan(100_000, 50_000, 5)


class Bench:
    """All measurements."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.table = Table()
        self.ceilings: list[list[str]] = [["", "alone, rows/s", "Headwater", "Debezium"]]

    def run(self, kind: str) -> None:
        """Both connectors on one server."""
        with ExitStack() as stack:
            database = stack.enter_context(server(kind))
            _say(f"{database.name}: {self.plan.rows:,} rows are written")
            database.fill(self.plan.rows)
            brokers = {name: stack.enter_context(Headwater()).bootstrap for name in ("ours", "theirs")}
            sides: list[Side] = [
                stack.enter_context(Ours(database, brokers["ours"])),
                stack.enter_context(Theirs(database, brokers["theirs"])),
            ]
            read = self._rates(database, sides, brokers, "snapshot", "bought", self.plan.rows)
            alone = self.plan.rows / database.read_alone()
            self._ceiling(f"{database.name}, plain read", alone, read)
            _say(f"{database.name}: {self.plan.transactions:,} transactions are written")
            database.transactions(1, self.plan.transactions)
            streamed = self._rates(database, sides, brokers, "streaming", "streamed", self.plan.transactions)
            alone = self.plan.transactions / database.stream_alone()
            own = "pg_recvlogical" if kind == "postgres" else "packets of the binlog"
            self._ceiling(f"{database.name}, {own}", alone, streamed)
            for number, side in enumerate(sides):
                _say(f"{database.name} lag: {side.name}")
                self._lag(database, side, brokers[side.name], 10_000_000 * (number + 1))

    def _rates(
        self, database: Server, sides: list[Side], brokers: dict[str, str], what: str, table: str, rows: int
    ) -> dict[str, float]:
        rates = {}
        group = f"{database.name} {what}"
        for side in sides:
            _say(f"{group}: {side.name}")
            side.start()
            rate = filled(side, brokers[side.name], table, rows)
            rates[side.name] = rate.per_second
            add = self.table.add
            add(side.name, group, f"{rows:,} rows", "rows/s", rate.per_second, True)
            add(side.name, group, "processor", "rows per CPU second", rate.per_cpu_second, True)
            add(side.name, group, "peak memory", "MB", peak_bytes(side.pid) / 2**20)
            side.stop()
        return rates

    def _lag(self, database: Server, side: Side, broker: str, first: int) -> None:
        side.start()
        with database.open() as connection:
            median, high = lags(side, broker, connection, first, self.plan.lag_seconds)
        group = f"{database.name} lag"
        self.table.add(side.name, group, "at 500 rows/s, p50", "ms", median)
        self.table.add(side.name, group, "at 500 rows/s, p99", "ms", high)
        side.stop()

    def _ceiling(self, what: str, alone: float, rates: dict[str, float]) -> None:
        shares = [f"{rates[name] / alone:.0%}" for name in ("ours", "theirs")]
        self.ceilings.append([what, f"{alone:,.0f}", *shares])


def report(bench: Bench, lines: list[str]) -> str:
    """The tables, as they are printed and kept."""
    rows = bench.table.rows(["", "", "Headwater", "Debezium", "better by"])
    return "\n".join(
        [*(f"- {line}" for line in lines), "", markdown(rows), "", NOTES, markdown(bench.ceilings)]
    )


def _say(what: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {what}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, about three minutes")
    parser.add_argument("--only", choices=["postgres", "mariadb"], help="one of the two databases")
    parser.add_argument("--write", type=Path, help="keep the table in this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-cdc-") as directory:
        lines = machine.description(Path(directory))
        lines.append(f"Debezium {VERSION} on Kafka Connect {KAFKA_VERSION}, JSON without schemas, -Xmx2G")
        lines.append(f"load of the machine before the run: {machine.load_average():.1f}")
        bench = Bench(QUICK if options.quick else FULL)
        for kind in [options.only] if options.only else ["postgres", "mariadb"]:
            bench.run(kind)
    text = report(bench, lines)
    print(text)
    if options.write:
        keep_section(options.write, "Capture (`make bench-cdc`)", text)


if __name__ == "__main__":
    main()
