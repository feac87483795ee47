"""Output that goes nowhere: a reader that has seen enough, a disk that is full, streams that were closed."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAM, environment
from tests.support.servers import Server, answers_metadata, free_port

TOPIC = "said"


@pytest.fixture(scope="module")
def topic(headwater: Server) -> Iterator[str]:
    shell(headwater, f"seq 100 | {PROGRAM} produce {TOPIC} --create -q")
    yield TOPIC


def shell(server: Server, script: str) -> tuple[str, str]:
    """What a script of the shell says on standard output, and on standard error."""
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True, text=True, timeout=60, env=environment(HEADWATER_BOOTSTRAP=server.bootstrap),
    )  # fmt: skip
    return done.stdout, done.stderr


def test_a_reader_that_has_seen_enough(headwater: Server, topic: str) -> None:
    script = f"{PROGRAM} topics describe {topic} --all | head -1 >&2; echo ${{PIPESTATUS[0]}}"
    code, first = shell(headwater, script)
    assert code in ("0\n", "141\n") and first == "partition\t0\t1\t1 of 1\t0\t100\t100\n"
    for unbuffered, codes in (("", ("0\n",)), ("1", ("0\n", "141\n"))):
        script = f"PYTHONUNBUFFERED={unbuffered} {PROGRAM} topics list | true; echo ${{PIPESTATUS[0]}}"
        code, complaint = shell(headwater, script)
        assert code in codes and complaint == ""


@pytest.mark.parametrize("command", ["topics list", f"consume {TOPIC} --from-beginning --exit"])
def test_a_full_disk(headwater: Server, topic: str, command: str) -> None:
    said, complaint = shell(headwater, f"{PROGRAM} {command} > /dev/full; echo $?")
    assert said == "1\n"
    assert complaint == (
        "headwater: cannot write to standard output: no space left on device. Send it somewhere else.\n"
    )


def test_a_full_disk_for_rejected_lines(headwater: Server, topic: str) -> None:
    script = f"printf '1:a\\n2\\n3\\n' | {PROGRAM} produce {topic} -K : -q --rejects /dev/full; echo $?"
    said, complaint = shell(headwater, script)
    assert said == "1\n"
    assert complaint.splitlines() == [
        "headwater: cannot write to the --rejects file: no space left on device",
        "headwater: line 2: there is no ':' after a key: 2",
        "headwater: line 3: there is no ':' after a key: 3",
        "headwater: cannot send 2 of 3 lines: they are not valid records. They are named above. Correct and "
        "send them again.",
    ]


def test_streams_that_were_closed(headwater: Server, topic: str) -> None:
    commands = (
        "topics list >&-",
        f"produce {topic} -q <&-",
        f"consume {topic} -n 1 --from-beginning >&- 2>&-",
    )
    for command in commands:
        assert shell(headwater, f"{PROGRAM} {command}; echo $?") == ("0\n", "")


def test_a_broker_without_streams_opens_nothing_in_their_place(tmp_path: Path) -> None:
    """What a library complains of on standard error would be written into the log."""
    port = free_port()
    command = f"exec {PROGRAM} broker --data '{tmp_path}/a b' --port {port} <&- >&- 2>&-"
    process = subprocess.Popen(["bash", "-c", command], env=environment())
    try:
        end = time.monotonic() + 20
        while not answers_metadata(port):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        for number in range(3):
            assert os.readlink(f"/proc/{process.pid}/fd/{number}") == "/dev/null"
    finally:
        process.terminate()
        assert process.wait(20) == 0
