"""Programs that the tests run and PyPI does not have, installed as Debian packages when we may.

``python3 -m tests.support.packages`` is the step of ``make test``; it needs only the standard library.
Without the right to install, it says what is missing and goes on: the tests that need it fail, none is
skipped.
"""

import os
import shutil
import subprocess
import sys

# program -> the Debian package that has it
PROGRAMS = {
    "java": "default-jre-headless",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "kcat": "kcat",
    "go": "golang",
    "node": "nodejs",
    "npm": "npm",
    "mariadbd": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",  # which mariadb-install-db calls, and its package does not bring
    "redis-server": "redis-server",
    "wrk": "wrk",
    "chromium": "chromium",
    "pg_createcluster": "postgresql",  # the server's own programs are off PATH: see postgres.py
}


class ComponentMissing(AssertionError):
    """A test cannot run because this machine lacks something. The test fails; it is not skipped."""


def require(program: str) -> str:
    """The path of ``program``; a failure that says how to get it when there is none."""
    path = shutil.which(program)
    if path is None:
        package = PROGRAMS.get(program, program)
        raise ComponentMissing(
            f"cannot run {program}: it is not on PATH. "
            f"Run `make test` as root, which installs it, or `apt-get install {package}`."
        )
    return path


def missing() -> list[str]:
    """The packages of the programs that are not on PATH."""
    return [package for program, package in PROGRAMS.items() if shutil.which(program) is None]


def install() -> bool:
    """Install what is missing. True when every program is there afterwards."""
    packages = missing()
    if not packages:
        return True
    print(f"missing Debian packages: {' '.join(packages)}", flush=True)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print("they can be installed by root on Debian only; the tests that need them will fail")
        return False
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-qq", "update"], env=environment, check=False)
    command = ["apt-get", "-qq", "-y", "--no-install-recommends", "install"]
    if subprocess.run(
        [*command, *packages], env=environment, check=False, stdout=subprocess.DEVNULL
    ).returncode:
        for package in packages:  # a package that cannot be had must not take the others with it
            subprocess.run([*command, package], env=environment, check=False, stdout=subprocess.DEVNULL)
    left = missing()
    if left:
        print(f"could not install: {' '.join(left)}; the tests that need them will fail")
    return not left


if __name__ == "__main__":
    install()
    sys.exit(0)
