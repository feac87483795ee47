"""How each system is started, and what is to be known about its figures. One small class a system."""

import abc
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import environments
from benchmarks.peers.environments import Environment
from benchmarks.streams_events import Workload
from benchmarks.streams_processes import Command
from benchmarks.streams_results import Result, TopicResult, decoder
from tests.support.servers import free_port

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Job:
    """One pipeline to run."""

    workload: Workload
    bootstrap: str
    source: str
    target: str
    directory: Path  # of this run alone


class System(abc.ABC):
    """A stream processor in one configuration."""

    name: str
    guarantee: str
    settings: str  # those that are not its defaults, as its documentation advises them
    # Of the events of a throughput run how many this one gets, so that slow ones end in a minute or so.
    shares: dict[Workload, float] = {"words": 1.0, "ticks": 1.0}
    shows_open_windows = True
    measures_throughput: tuple[Workload, ...] = ("words", "ticks")
    measures_latency: tuple[Workload, ...] = ("words", "ticks")

    def prepare(self) -> None:  # noqa: B027 - ours is installed
        """Install it. Raises ``CannotInstall``."""

    def verify(self, job: Job) -> None:  # noqa: B027 - most cannot be mistaken
        """Raises ``WrongResult`` when what runs is not what this class says."""

    @abc.abstractmethod
    def commands(self, job: Job) -> list[Command]:
        """What runs the pipeline."""

    def result(self, job: Job) -> Result:
        """Where its result is read."""
        return TopicResult(job.bootstrap, job.target, decoder(job.workload))


class Peer(System):
    """A system that is installed into an environment of its own."""

    environment: Environment

    def prepare(self) -> None:
        self.environment.make()

    def _arguments(self, program: str, job: Job) -> list[str | Path]:
        address: list[str | Path] = ["--bootstrap", job.bootstrap]
        topics: list[str | Path] = ["--source", job.source, "--target", job.target]
        return [self.environment.python, _HERE / program, job.workload, *address, *topics]


class Flink(Peer):
    environment = environments.FLINK
    name = f"Flink {environments.FLINK.version}"
    guarantee = "exactly once"
    settings = (
        "Flink SQL, parallelism 2, checkpoints each second, mini-batches of 500 ms, two-phase aggregation, "
        "object reuse, sink upsert-kafka by transactions"
    )
    extra: tuple[str, ...] = ()
    measures_latency: tuple[Workload, ...] = ("words", "ticks", "rows")

    def prepare(self) -> None:
        super().prepare()
        environments.flink_connector()

    def commands(self, job: Job) -> list[Command]:
        jar = environments.flink_connector()
        own: list[str | Path] = ["--jar", jar, "--directory", job.directory, *self.extra]
        return [Command([*self._arguments("flink_app.py", job), *own], {})]


class FlinkAtLeastOnce(Flink):
    name = f"Flink {environments.FLINK.version}, at least once"
    guarantee = "at least once"
    settings = "as above, sink without transactions, mini-batches of 5 ms"
    extra = ("--at-least-once", "--mini-batch-ms", "5")
    measures_throughput = ()
    measures_latency = ("words", "ticks", "rows")


class FlinkFinal(Flink):
    name = f"Flink {environments.FLINK.version}, closed windows"
    settings = "as Flink, with the window function TUMBLE, which shows a window once, when it closes"
    extra = ("--final",)
    shows_open_windows = False
    measures_throughput = ("ticks",)
    measures_latency = ()


class Quix(Peer):
    environment = environments.QUIX
    name = f"Quix Streams {environments.QUIX.version}"
    guarantee = "exactly once"
    settings = "two processes, commits each second"
    shares = {"words": 0.05, "ticks": 0.15}

    def commands(self, job: Job) -> list[Command]:
        return [
            Command([*self._arguments("quix_app.py", job), "--directory", job.directory / str(number)], {})
            for number in range(2)
        ]


class Bytewax(Peer):
    environment = environments.BYTEWAX
    name = f"Bytewax {environments.BYTEWAX.version}"
    guarantee = "at least once"
    settings = "two processes, orjson, batches of 10,000 records, snapshots each 10 seconds"
    shares = {"words": 0.34, "ticks": 0.34}

    def commands(self, job: Job) -> list[Command]:
        python = self.environment.python
        recovery = job.directory / "recovery"
        recovery.mkdir(parents=True)
        subprocess.run([python, "-m", "bytewax.recovery", recovery, "2"], check=True, capture_output=True)
        addresses = ";".join(f"127.0.0.1:{free_port()}" for _ in range(2))
        environment = {
            "PYTHONPATH": str(_HERE),
            "BENCH_WORKLOAD": job.workload,
            "BENCH_BOOTSTRAP": job.bootstrap,
            "BENCH_SOURCE": job.source,
            "BENCH_TARGET": job.target,
        }
        common: list[str | Path] = [python, "-m", "bytewax.run", "bytewax_app:dataflow()", "-a", addresses]
        kept: list[str | Path] = ["-r", recovery, "-s", "10", "-b", "0"]
        return [Command([*common, "-i", str(number), *kept], environment) for number in range(2)]


class Pathway(Peer):
    environment = environments.PATHWAY
    name = f"Pathway {environments.PATHWAY.version}"
    guarantee = "at least once"
    settings = "two threads, autocommit each 100 ms"

    def commands(self, job: Job) -> list[Command]:
        spawn: list[str | Path] = [self.environment.python.with_name("pathway"), "spawn", "--threads", "2"]
        return [Command([*spawn, *self._arguments("pathway_app.py", job)], {})]


PEERS: tuple[System, ...] = (Flink(), FlinkAtLeastOnce(), FlinkFinal(), Quix(), Bytewax(), Pathway())
