"""Processes of ours that run beside a command, and end with it, however that ends."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from headwater.cli.output import complain

STOP_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
EXPLAINED = 1  # the exit code of what does not pass by itself


def start_child(arguments: Sequence[str], leash: str) -> subprocess.Popen[bytes]:
    """Our command with these arguments; the variable ``leash`` tells it to end when its standard input does."""
    # In a group of its own: Ctrl-C reaches whoever started it, which stops it in its turn.
    return subprocess.Popen(
        [sys.executable, "-m", "headwater.cli.main", *arguments],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, leash: "1"},
    )


def end_child(process: subprocess.Popen[bytes]) -> None:
    """Stops it in order, and by force if it does not heed."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def keep(what: str, arguments: Sequence[str], leash: str, stopping: threading.Event) -> None:
    """Keeps a child running, unless it ends because somebody has to act: it has said so then."""
    pause = FIRST_PAUSE
    while not stopping.is_set():
        began = time.monotonic()
        process = start_child(arguments, leash)
        try:
            while process.poll() is None and not stopping.wait(0.2):
                pass
        finally:
            if process.poll() is None:
                end_child(process)
        if stopping.is_set() or process.returncode in (0, EXPLAINED):
            return
        if time.monotonic() - began > 4 * LONGEST_PAUSE:
            pause = FIRST_PAUSE
        complain(f"{what} ended with code {process.returncode}; starting again in {pause:.0f} s")
        stopping.wait(pause)
        pause = min(LONGEST_PAUSE, pause * 2)
