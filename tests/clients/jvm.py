"""Java programs against Kafka's jars: compiled once for each version of the client, run with a small JVM."""

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.support import jars
from tests.support.packages import require

SOURCES = Path(__file__).with_name("java")
CLASSES = jars.REPOSITORY / ".cache" / "java"

# For programs that live for seconds: the second compiler and parallel collectors cost more than they bring.
OPTIONS = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xmx512m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]


def classpath(version: str = jars.KAFKA_VERSION, extra: tuple[str, ...] = ()) -> str:
    """Kafka's jars, with the client of another version in front when one is named, and jars besides."""
    parts = [str(jars.artifact(one)) for one in extra]
    if version != jars.KAFKA_VERSION:
        parts.append(str(jars.artifact(f"org.apache.kafka:kafka-clients:{version}")))
    parts.append(jars.kafka_classpath())
    return ":".join(parts)


def compiled(program: str, version: str = jars.KAFKA_VERSION, extra: tuple[str, ...] = ()) -> Path:
    """The folder of the classes of ``java/PROGRAM.java``, compiled against that version of the client."""
    source = SOURCES / f"{program}.java"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = CLASSES / f"{program}-{version}-{digest}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [
            require("javac"),
            "-nowarn",
            "-d",
            str(folder),
            "-cp",
            classpath(version, extra),
            str(source),
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert result.returncode == 0, f"{program}.java does not compile with {version}:\n{result.stderr}"
        (folder / "complete").touch()
    return folder


def program(name: str, version: str = jars.KAFKA_VERSION, extra: tuple[str, ...] = ()) -> list[str]:
    """The command that runs ``java/NAME.java``."""
    where = f"{compiled(name, version, extra)}:{classpath(version, extra)}"
    return [require("java"), *OPTIONS, "-cp", where, name]


def tool(main_class: str, *arguments: str, extra: tuple[str, ...] = ()) -> list[str]:
    """The command that runs one of Kafka's own programs."""
    return [require("java"), *OPTIONS, "-cp", classpath(extra=extra), main_class, *arguments]
