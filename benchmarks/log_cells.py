"""What the log benchmark measures, one method a measure, on both servers in turn."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import fill, java_clients
from benchmarks.processes import resident, usage
from benchmarks.table import Table
from tests.support.servers import ApacheKafka, Headwater, Server

SIDES = ("ours", "theirs")
SIZES = {"100 B": 100, "1 KB": 1000}
_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    records: dict[str, int]  # a round's records, by size
    latency_records: int
    log_gigabytes: int
    many_partitions: int
    java_rounds: int  # of Kafka's own clients, which are slow to start


class Bench:
    """Both servers, the table, and what is to be measured."""

    def __init__(self, plan: Plan, directory: Path, stack: ExitStack) -> None:
        self.plan = plan
        self.directory = directory
        self.table = Table()
        self.bottlenecks: dict[str, dict[str, list[str]]] = {}
        self._stack = stack
        self._topics = 0
        self.servers: dict[str, Server] = {}

    def start_servers(self) -> None:
        for side in SIDES:
            server = self.make(side, "main")
            self.servers[side] = server
            server.start()
            self._stack.callback(server.stop)

    def make(self, side: str, name: str) -> Server:
        data = self.directory / f"{side}-{name}"
        return Headwater(data=data) if side == "ours" else ApacheKafka(data=data, heap="1g")

    def throughput(self, size: str, partitions: int, number: int, *, idempotent: bool = False) -> None:
        """Produce into a new topic, and consume what is there."""
        records = self.plan.records[size]
        shape = f"{size}, {partitions} partition{'s' if partitions > 1 else ''}"
        for side in _turns(number):
            with self.topic(side, partitions) as topic:
                label = f"{shape}, idempotent" if idempotent else shape
                options = ["--records", str(records), "--size", str(SIZES[size])]
                extra = ["--idempotent"] if idempotent else []
                self._measure(side, "produce, acks=all", label, "produce", topic, records, [*options, *extra])
                if not idempotent:
                    self._measure(side, "consume", label, "consume", topic, records, options)

    def durable_kafka(self, number: int) -> None:
        """What Kafka does when it, too, syncs before it answers."""
        records = self.plan.records["1 KB"] // 2  # a quarter is over before the disk has found its pace
        options = ["--records", str(records), "--size", "1000"]
        for shape, partitions, extra in (
            ("1 KB, 6 partitions", 6, []),
            ("1 KB, 1 partition, idempotent", 1, ["--idempotent"]),
        ):
            label = f"{shape}, both durable (Kafka: flush.messages=1)"
            for side in _turns(number):
                config = {} if side == "ours" else {"flush.messages": "1"}
                with self.topic(side, partitions, config) as topic:
                    self._measure(
                        side, "produce, acks=all", label, "produce", topic, records, [*options, *extra]
                    )

    def latency(self, size: str, number: int, rate: int = 1000) -> None:
        """From produce to acknowledgement, and to the consumer's hand, at a moderate rate."""
        records = self.plan.latency_records
        for side in _turns(number):
            with self.topic(side, 1) as topic:
                options = ["--records", str(records), "--size", str(SIZES[size]), "--rate", str(rate)]
                address = ["--bootstrap", self.servers[side].bootstrap, "--topic", topic, *options]
                with _client("receive", *address) as receiver:
                    assert receiver.stderr is not None
                    receiver.stderr.readline()  # it is ready
                    sent = run_client("send", *address)
                    received = _result(receiver)
            for name, values in (("acknowledged", sent), ("end to end", received)):
                ordered = sorted(values["latencies"][records // 10 :])  # the first ones meet cold caches
                group = f"latency at {rate:,} records/s"
                for percentile, at in (("p50", 0.5), ("p99", 0.99)):
                    value = ordered[int(len(ordered) * at)] / 1e6
                    self.table.add(side, group, f"{size}, {name}, {percentile}", "ms", value)

    def memory(self, when: str) -> None:
        for side, server in self.servers.items():
            self.table.add(side, "memory", when, "MB", resident(server.pid) / _MEGABYTE)

    def start_up(self, number: int) -> None:
        """From the start of the process until it answers Metadata, with nothing to load."""
        for side in _turns(number):
            server = self.make(side, "empty")
            server.start()
            server.stop()  # formatted, and in the page cache
            self.table.add(side, "start-up", "empty", "s", _start(server))
            if number == 0:
                self._many_partitions(side, server)
            server.stop()

    def start_up_with_log(self) -> None:
        """The same with gigabytes of log: after a clean stop, and after a kill."""
        gigabytes = self.plan.log_gigabytes
        partitions = gigabytes
        for side in SIDES:
            server = self.make(side, "big")
            server.start()
            admin = AdminClient({"bootstrap.servers": server.bootstrap})
            admin.create_topics([NewTopic("big", partitions, 1)])["big"].result(60)
            records = (1 << 30) // 1000
            _produce_to_first(server, records)
            server.stop()
            fill.multiply(server, "big", partitions)
            held = fill.size_of(server.data)
            assert held > 0.95 * (gigabytes << 30), f"only {held} bytes were written"
            label = f"{gigabytes} GB of log"
            self.table.add(side, "start-up", f"{label}, after a clean stop", "s", _start(server))
            self.table.add(side, "memory", f"with {label}", "MB", resident(server.pid) / _MEGABYTE)
            _check_ends(server, partitions, records)
            _produce_to_first(server, 10_000)
            server.kill()
            self.table.add(side, "start-up", f"{label}, after a kill", "s", _start(server))
            _check_ends(server, partitions, records + 10_000)
            server.stop()
            _remove(server.data)

    def java_clients(self, number: int) -> None:
        """Kafka's own performance tools, as a check on librdkafka; once more with Kafka durable as well."""
        for size in SIZES:
            records = self.plan.records[size] // 2
            shape = f"{size}, 6 partitions"
            for side in _turns(number):
                with self.topic(side, 6) as topic:
                    rate = self._java_producer(side, topic, records, size)
                    self.table.add(side, "Java client", f"produce {shape}, acks=all", "records/s", rate, True)
                    rate = java_clients.consume(self.servers[side].bootstrap, topic, records)
                    self.table.add(side, "Java client", f"consume {shape}", "records/s", rate, True)
            durable = f"produce {shape}, both durable (Kafka: flush.messages=1)"
            for side in _turns(number):
                with self.topic(side, 6, {} if side == "ours" else {"flush.messages": "1"}) as topic:
                    rate = self._java_producer(side, topic, records, size)
                    self.table.add(side, "Java client", durable, "records/s", rate, True)

    def _java_producer(self, side: str, topic: str, records: int, size: str) -> float:
        _settle()
        return java_clients.produce(self.servers[side].bootstrap, topic, records, SIZES[size])

    @contextmanager
    def topic(self, side: str, partitions: int, config: dict[str, str] | None = None) -> Iterator[str]:
        self._topics += 1
        name = f"bench-{self._topics}"
        admin = AdminClient({"bootstrap.servers": self.servers[side].bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(60)
        yield name
        admin.delete_topics([name])[name].result(60)
        _settle()

    def _measure(
        self, side: str, group: str, label: str, what: str, topic: str, records: int, options: list[str]
    ) -> None:
        server = self.servers[side]
        _settle()
        before = usage(server.pid)
        result = run_client(what, "--bootstrap", server.bootstrap, "--topic", topic, *options)
        used = usage(server.pid).since(before)
        seconds = result["seconds"]
        self.table.add(side, group, label, "records/s", records / seconds, True)
        cost = used.total / records * 1e6
        self.table.add(side, f"server's CPU, {what}", label, "s per million records", cost)
        shares = [used.total, used.busiest, result["cpu"], result["busiest"]]
        self.bottlenecks.setdefault(f"{what} {label}", {}).setdefault(side, []).append(
            " / ".join(f"{share / seconds:.2f}" for share in shares)
        )

    def _many_partitions(self, side: str, server: Server) -> None:
        self.table.add(side, "memory", "idle", "MB", resident(server.pid) / _MEGABYTE)
        count = self.plan.many_partitions
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        started = time.perf_counter()
        admin.create_topics([NewTopic("many", count, 1)])["many"].result(120)
        took = time.perf_counter() - started
        self.table.add(side, "start-up", f"creating {count:,} partitions", "s", took)
        run_client(
            "produce",
            "--bootstrap",
            server.bootstrap,
            "--topic",
            "many",
            "--records",
            "200000",
            "--size",
            "100",
        )
        time.sleep(2)
        name = f"with {count:,} partitions, written to"
        self.table.add(side, "memory", name, "MB", resident(server.pid) / _MEGABYTE)
        server.stop()
        self.table.add(side, "start-up", f"{count:,} partitions", "s", _start(server))
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.delete_topics(["many"])["many"].result(120)


def _turns(number: int) -> list[str]:
    return list(SIDES if number % 2 == 0 else reversed(SIDES))


def _settle() -> None:
    """Let the disk take what the page cache holds, so that it does not disturb what is measured next."""
    os.sync()


def _start(server: Server) -> float:
    started = time.perf_counter()
    server.launch()
    server.wait_ready(every=0.002)
    return time.perf_counter() - started


@contextmanager
def _client(*arguments: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "benchmarks.client", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _result(process: "subprocess.Popen[str]") -> dict[str, Any]:
    output, errors = process.communicate(timeout=600)
    if process.returncode != 0:
        raise SystemExit(f"{process.args!r} failed:\n{errors[-3000:]}")
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def run_client(*arguments: str) -> dict[str, Any]:
    with _client(*arguments) as process:
        return _result(process)


def _produce_to_first(server: Server, records: int) -> None:
    options = ["--records", str(records), "--size", "1000", "--partition", "0"]
    run_client("produce", "--bootstrap", server.bootstrap, "--topic", "big", *options)


def _check_ends(server: Server, partitions: int, first: int) -> None:
    """The server serves what was put there: partition 0 ends where it was written, the last is not empty."""
    result = run_client(
        "ends", "--bootstrap", server.bootstrap, "--topic", "big", "--records", "0", "--size", "0"
    )
    ends = result["ends"]
    assert len(ends) == partitions and ends[0] == first and min(ends) > 0, ends


def _remove(data: Path) -> None:
    shutil.rmtree(data, ignore_errors=True)
