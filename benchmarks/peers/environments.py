"""A virtual environment for each peer, made once in ``.cache/peers``: what they need does not fit together.

``python -m benchmarks.peers.environments`` makes them all and says which ones cannot be made here.
"""

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.support.jars import REPOSITORY, artifact
from tests.support.packages import ComponentMissing

CACHE = REPOSITORY / ".cache" / "peers"
FLINK_CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0"


class CannotInstall(Exception):
    """A peer does not install here; the message says why."""


@dataclass(frozen=True)
class Environment:
    """What a peer is installed from."""

    name: str
    requirements: tuple[str, ...]

    @property
    def python(self) -> Path:
        """The environment's interpreter, once ``make`` has run."""
        return CACHE / self.name / "bin" / "python"

    @property
    def version(self) -> str:
        """The version of the peer itself, the first requirement."""
        return self.requirements[0].partition("==")[2]

    def make(self) -> None:
        """Install it, unless it is there. The stamp is written last: an interrupted run starts again."""
        stamp = CACHE / self.name / "complete"
        wanted = "\n".join(self.requirements)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        venv.create(CACHE / self.name, with_pip=True, clear=True)
        command: list[str | Path] = [self.python, "-m", "pip", "install", "-q", *self.requirements]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode != 0:
            raise CannotInstall(_reason(done.stderr))
        stamp.write_text(wanted)


# setuptools: these versions import pkg_resources, which setuptools 81 took away.
FLINK = Environment("flink", ("apache-flink==2.3.0", "setuptools<81"))
QUIX = Environment("quix", ("quixstreams==3.28.1",))
BYTEWAX = Environment("bytewax", ("bytewax==0.21.1", "confluent-kafka>=2.11,<3", "orjson>=3.10,<4"))
PATHWAY = Environment("pathway", ("pathway==0.33.0",))
ALL = (FLINK, QUIX, BYTEWAX, PATHWAY)


def flink_connector() -> Path:
    """Flink's Kafka connector for SQL, with Kafka's client in it."""
    try:
        return artifact(FLINK_CONNECTOR)
    except ComponentMissing as missing:
        raise CannotInstall(str(missing)) from missing


def _reason(errors: str) -> str:
    """The line of pip's that says what was wrong."""
    lines = [line for line in errors.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("ERROR")]
    return (said or lines or ["pip failed and said nothing"])[-1][:300]


def main() -> None:
    failed = False
    for environment in ALL:
        try:
            environment.make()
            print(f"{environment.name} {environment.version}: {environment.python}")
        except CannotInstall as error:
            failed = True
            print(f"{environment.name} {environment.version} does not install here: {error}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
