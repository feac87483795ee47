"""The jars of Spark's Kafka connector: fetched once from a Maven repository into a cache, or a named folder.

The version of the connector is that of the installed pyspark, or the newest before it that the repository
has; what it depends on stands in its pom. A folder of the cache is complete when it holds the file ``complete``,
which is written last.
"""

import hashlib
import os
import re
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import EngineMissing, HeadwaterError

if TYPE_CHECKING:
    from headwater.streams.settings import StreamSettings

REPOSITORY_VARIABLE = "HEADWATER_MAVEN"
SPARK = "org.apache.spark"
RESOLVER = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"
COMPLETE = "complete"
SECONDS = 60.0
_NEXT_STEP = (
    "Try again, name another repository with --repository, or put the jars into a folder and name it with "
    "HEADWATER_JARS. Without them topics are read by Headwater's own source."
)


@dataclass(frozen=True)
class Artifact:
    """A jar in a Maven repository.

    >>> Artifact("org.apache.kafka", "kafka-clients", "3.9.2").path
    'org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2'
    """

    group: str
    name: str
    version: str

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.version}/{self.name}-{self.version}"

    @property
    def folder(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.name}"

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


def find_jars(settings: "StreamSettings") -> list[Path]:
    """The connector's jars: those of the folder that is named, else those of the cache, if any."""
    if settings.jars is not None:
        named = sorted(settings.jars.glob("*.jar"))
        if not named:
            cause = "there is no jar in it" if settings.jars.is_dir() else "there is no such folder"
            raise EngineMissing("use the folder of jars", str(settings.jars), cause, _NEXT_STEP)
        return named
    folder = cache_folder()
    if not (folder / COMPLETE).exists():
        return []
    names = (folder / COMPLETE).read_text().split()
    jars = [folder / name for name in names]
    return jars if all(jar.exists() for jar in jars) else []


def cache_folder(version: str | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Where the jars for a version of pyspark are kept, for all applications of a user.

    >>> str(cache_folder("4.3.0", {"XDG_CACHE_HOME": "/home/ada/.cache"}))
    '/home/ada/.cache/headwater/jars/spark-4.3.0'
    """
    environ = os.environ if environ is None else environ
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "headwater" / "jars" / f"spark-{version or pyspark_version()}"


def pyspark_version() -> str:
    import pyspark

    return str(pyspark.__version__)


def default_repository() -> str:
    """The repository that Spark itself takes packages from: the default of the resolver among its jars."""
    import pyspark

    for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            found = re.search(rb"https://[\w./-]+/maven2\b", archive.read(RESOLVER))
        if found is not None:
            return found[0].decode()
    raise EngineMissing(
        "fetch", "the jars of Spark's Kafka connector", "this Spark names no repository", _NEXT_STEP
    )


def fetch_jars(
    repository: str | None = None,
    *,
    version: str | None = None,
    folder: Path | None = None,
    on_jar: Callable[[Path, bool], None] = lambda jar, fetched: None,
) -> list[Path]:
    """Fetches what is missing of the connector's jars; ``on_jar`` hears of each, and if it was fetched."""
    version = version or pyspark_version()
    folder = folder or cache_folder(version)
    source = Repository(repository or os.environ.get(REPOSITORY_VARIABLE) or default_repository())
    complete = folder / COMPLETE
    if complete.exists():
        jars = [folder / name for name in complete.read_text().split()]
        if all(jar.exists() for jar in jars):
            for jar in jars:
                on_jar(jar, False)
            return jars
    artifacts = connector_artifacts(source, version)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        jars = []
        for artifact in artifacts:
            jar = folder / artifact.file
            if missing := not jar.exists():
                partial = jar.with_suffix(".partial")
                partial.write_bytes(source.jar(artifact))
                partial.replace(jar)
            on_jar(jar, missing)
            jars.append(jar)
        complete.write_text("\n".join(jar.name for jar in jars))
    except OSError as error:
        raise EngineMissing("keep jars in", str(folder), error.strerror or str(error)) from error
    return jars


def connector_artifacts(source: "Repository", version: str) -> list[Artifact]:
    """The connector that fits a version of Spark, and what it needs that Spark does not bring."""
    brought = _spark_jars()
    connector = source.newest(Artifact(SPARK, f"spark-sql-kafka-0-10_{_scala(brought)}", version))
    artifacts = [connector]
    for needed in source.dependencies(connector):
        if any(re.match(rf"{re.escape(needed.name)}-\d", name) for name in brought):
            continue
        artifacts.append(source.newest(needed) if needed.group == SPARK else needed)
    return artifacts


def _spark_jars() -> list[str]:
    import pyspark

    return [jar.name for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")]


def _scala(jars: list[str]) -> str:
    for name in jars:
        if match := re.match(r"scala-library-(\d+\.\d+)", name):
            return match[1]
    return "2.13"


class Repository:
    """A Maven repository over HTTP; the usual proxy variables are honoured."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def newest(self, wanted: Artifact) -> Artifact:
        """The artifact itself, or of the releases before its version the newest that is there."""
        candidates = [wanted.version, *sorted(self._versions(wanted), key=_numbers, reverse=True)]
        for version in candidates:
            if _numbers(version) <= _numbers(wanted.version):
                found = Artifact(wanted.group, wanted.name, version)
                if self._get(f"{found.path}.pom", optional=True) is not None:
                    return found
        cause = f"{self.url} has neither this version nor one before it"
        raise _fault(f"{wanted.name} {wanted.version}", cause)

    def _versions(self, artifact: Artifact) -> Iterator[str]:
        listing = self._get(f"{artifact.folder}/maven-metadata.xml", optional=True)
        for version in ET.fromstring(listing).iter("version") if listing else ():
            if version.text and re.fullmatch(r"[\d.]+", version.text):  # no previews
                yield version.text

    def dependencies(self, artifact: Artifact) -> list[Artifact]:
        """What an artifact's pom says that it needs to run, as far as the pom says so itself."""
        pom = ET.fromstring(self._get(f"{artifact.path}.pom") or b"")
        namespace = pom.tag.partition("}")[0] + "}" if "}" in pom.tag else ""
        needed = []
        for each in pom.findall(f"{namespace}dependencies/{namespace}dependency"):
            field = {child.tag.removeprefix(namespace): (child.text or "").strip() for child in each}
            if field.get("scope", "compile") == "compile" and field.get("type", "jar") == "jar":
                needed.append(Artifact(field["groupId"], field["artifactId"], field.get("version", "")))
        return needed

    def jar(self, artifact: Artifact) -> bytes:
        """The content of a jar, checked against the repository's SHA-1 of it."""
        content = self._get(f"{artifact.path}.jar") or b""
        told = (self._get(f"{artifact.path}.jar.sha1") or b"").split()
        found = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        if not told or told[0].decode("ascii", "replace").lower() != found:
            raise _fault(artifact.file, "what came does not match its checksum")
        return content

    def _get(self, path: str, *, optional: bool = False) -> bytes | None:
        url = f"{self.url}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            if optional and error.code in (403, 404, 410):
                return None
            raise _fault(url, f"the server answers {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise _fault(url, str(getattr(error, "reason", error)).lower()) from error


def _fault(subject: str, cause: str) -> HeadwaterError:
    return EngineMissing("fetch", subject, cause, _NEXT_STEP)


def _numbers(version: str) -> tuple[int, ...]:
    """
    >>> _numbers("4.10.0") > _numbers("4.9.1")
    True
    """
    return tuple(int(part) for part in re.findall(r"\d+", version))
