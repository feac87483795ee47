"""The README's terminal session runs as it stands there, on a port of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.servers import free_port

ROOT = Path(__file__).parent.parent


def _session() -> list[tuple[str, str]]:
    """Commands and what they print, of the first console block."""
    block = re.search(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None, "README.md has no console block"
    steps: list[tuple[str, str]] = []
    for line in block.group(1).splitlines(keepends=True):
        if line.startswith("$ "):
            steps.append((line[2:].rstrip("\n"), ""))
        else:
            command, output = steps[-1]
            steps[-1] = (command, output + line)
    return steps


def test_the_session_runs_as_printed(tmp_path: Path) -> None:
    steps = _session()
    port = free_port()
    script = ["set -m"]
    for number, (command, _) in enumerate(steps):
        script.append(f"echo '--- {number}' >&2")
        if command.endswith("&"):
            script.append(f"{command[:-1]} --port {port} >&2 2> broker.log &")
            script.append(f"until (: > /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.1; done")
        else:
            script.append(f"{{ {command}; }} >&2")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HEADWATER_BOOTSTRAP": f"127.0.0.1:{port}",
    }
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    printed = re.split(r"^--- \d+\n", done.stderr.replace(str(port), "9092"), flags=re.MULTILINE)[1:]
    assert len(printed) == len(steps), done.stderr
    for (command, expected), text in zip(steps, printed, strict=True):
        seen = re.sub(r"^\[\d+\].*\n", "", text, flags=re.MULTILINE)  # the shell's notices about its jobs
        pattern = re.escape(expected).replace(re.escape("..."), r"[^\n]*")
        assert re.fullmatch(pattern, seen), f"$ {command}\n{seen}\ninstead of\n{expected}"
