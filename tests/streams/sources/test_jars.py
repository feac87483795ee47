"""Fetching the connector's jars, from a small Maven repository on this machine."""

import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headwater.errors import EngineMissing
from headwater.streams.settings import load_stream_settings
from headwater.streams.sources.jars import COMPLETE, cache_folder, fetch_jars, find_jars

CONNECTOR = "spark-sql-kafka-0-10_2.13"
TOKENS = "spark-token-provider-kafka-0-10_2.13"

_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<scope>{}</scope></dependency>"
)
_POM = '<project xmlns="http://maven.apache.org/POM/4.0.0"><dependencies>{}</dependencies></project>'


class MavenRepository:
    """A folder laid out as Maven does, served over HTTP."""

    def __init__(self, folder: Path, url: str, requests: list[str]) -> None:
        self.folder, self.url, self.requests = folder, url, requests

    def add(self, group: str, name: str, version: str, *needs: tuple[str, str, str, str]) -> Path:
        place = self.folder / group.replace(".", "/") / name / version
        place.mkdir(parents=True)
        jar = place / f"{name}-{version}.jar"
        jar.write_bytes(f"the jar {name} {version}".encode() * 1000)
        jar.with_name(jar.name + ".sha1").write_text(hashlib.sha1(jar.read_bytes()).hexdigest())
        dependencies = "".join(_DEPENDENCY.format(*each) for each in needs)
        (place / f"{name}-{version}.pom").write_text(_POM.format(dependencies))
        versions = sorted(each.name for each in place.parent.iterdir() if each.is_dir())
        listing = "".join(f"<version>{each}</version>" for each in versions)
        (place.parent / "maven-metadata.xml").write_text(
            f"<metadata><versioning><versions>{listing}</versions></versioning></metadata>"
        )
        return jar


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[MavenRepository]:
    folder = tmp_path / "maven"
    folder.mkdir()
    requests: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, form: str, *values: object) -> None:
            requests.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield MavenRepository(folder, f"http://127.0.0.1:{server.server_port}", requests)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def filled(repository: MavenRepository) -> MavenRepository:
    """With holes: the connector ends before 4.3.0, and what it asks for is there in an older version alone."""
    needs = [
        ("org.apache.spark", TOKENS, "4.2.0", "compile"),
        ("org.apache.kafka", "kafka-clients", "3.9.2", "compile"),
        ("org.apache.spark", "spark-sql_2.13", "4.2.0", "provided"),
        ("com.google.code.findbugs", "jsr305", "3.0.0", "compile"),  # Spark brings one
        ("org.apache.kafka", "kafka_2.13", "3.9.2", "test"),
    ]
    repository.add("org.apache.spark", CONNECTOR, "4.1.0", *needs)
    repository.add("org.apache.spark", CONNECTOR, "4.2.0-preview1", *needs)
    repository.add("org.apache.spark", CONNECTOR, "4.2.0", *needs)
    repository.add("org.apache.spark", CONNECTOR, "4.4.0", *needs)
    repository.add("org.apache.spark", TOKENS, "4.0.0")
    repository.add("org.apache.kafka", "kafka-clients", "3.9.2")
    return repository


def test_the_newest_set_that_fits(filled: MavenRepository, tmp_path: Path) -> None:
    told: list[tuple[str, bool]] = []
    fetch: Callable[[], list[Path]] = partial(
        fetch_jars, filled.url, version="4.3.0", folder=tmp_path / "jars",
        on_jar=lambda jar, fetched: told.append((jar.name, fetched)),
    )  # fmt: skip
    names = [f"{CONNECTOR}-4.2.0.jar", f"{TOKENS}-4.0.0.jar", "kafka-clients-3.9.2.jar"]
    assert [jar.name for jar in fetch()] == names
    assert told == [(name, True) for name in names]
    assert {each.name for each in (tmp_path / "jars").iterdir()} == {*names, COMPLETE}
    asked = len(filled.requests)
    assert [jar.name for jar in fetch()] == names
    assert len(filled.requests) == asked, "what is there is not asked for again"
    (tmp_path / "jars" / names[1]).unlink()
    told.clear()
    fetch()
    assert told == [(names[0], False), (names[1], True), (names[2], False)]


def test_the_same_version_when_it_is_there(filled: MavenRepository, tmp_path: Path) -> None:
    filled.add("org.apache.spark", CONNECTOR, "4.3.0")
    found = fetch_jars(filled.url, version="4.3.0", folder=tmp_path / "jars")
    assert [jar.name for jar in found] == [f"{CONNECTOR}-4.3.0.jar"]


def test_a_damaged_jar_is_not_kept(filled: MavenRepository, tmp_path: Path) -> None:
    jar = next(filled.folder.rglob("kafka-clients-3.9.2.jar"))
    jar.write_bytes(jar.read_bytes()[:-1])
    with pytest.raises(EngineMissing, match="checksum"):
        fetch_jars(filled.url, version="4.3.0", folder=tmp_path / "jars")
    assert not (tmp_path / "jars" / "kafka-clients-3.9.2.jar").exists()
    assert not (tmp_path / "jars" / COMPLETE).exists()


def test_nothing_that_fits(repository: MavenRepository, tmp_path: Path) -> None:
    repository.add("org.apache.spark", CONNECTOR, "4.4.0")
    with pytest.raises(EngineMissing, match="neither this version nor one before it"):
        fetch_jars(repository.url, version="4.3.0", folder=tmp_path / "jars")
    with pytest.raises(EngineMissing, match="refused"):
        fetch_jars("http://127.0.0.1:9", version="4.3.0", folder=tmp_path / "jars")


def test_jars_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert find_jars(load_stream_settings(environ={}, directory=tmp_path)) == []
    cached = cache_folder() / "a.jar"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert find_jars(load_stream_settings(environ={}, directory=tmp_path)) == [], "the fetch was not finished"
    (cached.parent / COMPLETE).write_text("a.jar")
    assert find_jars(load_stream_settings(environ={}, directory=tmp_path)) == [cached]
    folder = tmp_path / "mine"
    settings = load_stream_settings(environ={"HEADWATER_JARS": str(folder)}, directory=tmp_path)
    with pytest.raises(EngineMissing, match="no such folder"):
        find_jars(settings)
    folder.mkdir()
    with pytest.raises(EngineMissing, match="no jar in it"):
        find_jars(settings)
    (folder / "b.jar").touch()
    assert find_jars(settings) == [folder / "b.jar"]


def test_the_command(filled: MavenRepository, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("headwater")
    command = [str(program), "jars", "--folder", str(tmp_path / "jars"), "--repository"]
    done = subprocess.run([*command, filled.url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"fetched  {CONNECTOR}-4.2.0.jar"
    assert "3 jars for Spark" in done.stderr
    failed = subprocess.run(
        [*command, "http://127.0.0.1:9"], capture_output=True, text=True, timeout=60, check=False
    )
    assert failed.returncode == 0, "they are there already"
