"""Jars from Maven Central, fetched once into ``.cache/jars`` and then only checked for presence.

``python3 -m tests.support.jars`` fetches them all: the step of ``make test``.

Maven's ``-q`` hides some failures, so what counts is whether the files are there. A set of jars is complete
when its folder holds the file ``complete`` with the names of what was asked for. It is written last: an
interrupted fetch starts again.
"""

import shutil
import subprocess
from pathlib import Path

from tests.support.packages import ComponentMissing, require

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache" / "jars"

KAFKA_VERSION = "4.1.1"
KAFKA = [
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",  # without a binding Kafka's warnings go nowhere
]

# Spark's connector for pyspark 4.3.0. Taken one by one, because a parent pom of Spark names a repository that
# is not always reachable; the versions are the newest that Maven Central has and that work together.
SPARK_CONNECTOR = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
    "org.scala-lang.modules:scala-parallel-collections_2.13:1.2.0",
]

OPENSEARCH_VERSION = "2.19.1"
OPENSEARCH = [
    f"org.opensearch:opensearch:{OPENSEARCH_VERSION}",
    f"org.opensearch.plugin:transport-netty4-client:{OPENSEARCH_VERSION}",  # its HTTP server
    "org.apache.logging.log4j:log4j-core:2.21.0",
]

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headwater</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def kafka_libs() -> Path:
    """The folder of Apache Kafka's server and tools, with all they depend on."""
    return with_dependencies(f"kafka-{KAFKA_VERSION}", KAFKA)


def kafka_classpath() -> str:
    """What ``java -cp`` takes to run Apache Kafka's server, tools and client."""
    return f"{kafka_libs()}/*"


def opensearch_classpath() -> str:
    """What ``java -cp`` takes to run a node of OpenSearch."""
    return f"{with_dependencies(f'opensearch-{OPENSEARCH_VERSION}', OPENSEARCH)}/*"


def spark_connector() -> list[Path]:
    """The jars of Spark's Kafka connector, for ``spark.jars``."""
    return [artifact(coordinates) for coordinates in SPARK_CONNECTOR]


def with_dependencies(name: str, coordinates: list[str]) -> Path:
    """A folder with the artifacts (``group:artifact:version``) and everything they depend on."""
    folder = CACHE / name
    complete, contents = folder / "complete", "\n".join(coordinates)
    if complete.exists() and complete.read_text() == contents:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pom.xml").write_text(
        _POM.format(name=name, dependencies="\n".join(_dependency(one) for one in coordinates))
    )
    output = _maven("dependency:copy-dependencies", f"-DoutputDirectory={folder}", f"-f{folder / 'pom.xml'}")
    for one in coordinates:
        _, artifact_id, version = one.split(":")
        if not (folder / f"{artifact_id}-{version}.jar").exists():
            raise ComponentMissing(f"cannot fetch {one} by Maven.\n{output}")
    complete.write_text(contents)
    return folder


def artifact(coordinates: str) -> Path:
    """One jar, without what it depends on."""
    group, artifact_id, version = coordinates.split(":")
    jar = CACHE / "single" / f"{artifact_id}-{version}.jar"
    if jar.exists():
        return jar
    output = _maven("dependency:get", f"-Dartifact={coordinates}", "-Dtransitive=false")
    fetched = _local_repository() / group.replace(".", "/") / artifact_id / version / jar.name
    if not fetched.exists():
        raise ComponentMissing(f"cannot fetch {coordinates} by Maven: {fetched} is not there.\n{output}")
    jar.parent.mkdir(parents=True, exist_ok=True)
    partial = jar.with_suffix(".partial")
    shutil.copyfile(fetched, partial)
    partial.rename(jar)
    return jar


def _dependency(coordinates: str) -> str:
    group, artifact_id, version = coordinates.split(":")
    return (
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact_id}</artifactId>"
        f"<version>{version}</version></dependency>"
    )


def _maven(*arguments: str) -> str:
    command = [require("mvn"), "-q", "-B", *arguments]
    output = ""
    for _ in range(3):  # a download that breaks off is worth trying again
        result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        output = result.stdout + result.stderr
        if result.returncode == 0:
            break
    return output


def _local_repository() -> Path:
    goal = ["help:evaluate", "-Dexpression=settings.localRepository", "-DforceStdout"]
    found = _maven(*goal).strip().splitlines()
    if found and Path(found[-1]).is_dir():
        return Path(found[-1])
    return Path.home() / ".m2" / "repository"


if __name__ == "__main__":
    print(f"Apache Kafka: {kafka_libs()}")
    print(f"OpenSearch: {opensearch_classpath()}")
    print(f"Spark connector: {spark_connector()[0].parent}")
