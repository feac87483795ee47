"""The README's terminal session runs as it stands there, on a port of its own."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import java
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
    for number, (command, expected) in enumerate(steps):
        script.append(f"echo '--- {number}' >&2")
        if command.endswith("&"):
            script.append(": > started")  # the job may not have made it when it is looked at first
            script.append(
                f"env -u HEADWATER_BOOTSTRAP {command[:-1]} --port {port} > started 2> started.log &"
            )
            script.append(
                "until grep -q ready started; do kill -0 %1 || break; sleep 0.1; done; cat started >&2"
            )
        elif command.startswith("headwater views"):
            # A view follows its stream; a person sees it a moment later.
            script.append(f"for _ in $(seq 100); do {command} > seen 2> /dev/null; cmp -s seen <(cat <<'END'")
            script.append(f"{expected}END")
            script.append(") && break; sleep 0.5; done; cat seen >&2")
        else:
            script.append(f"{{ {command}; }} >&2")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HEADWATER_BOOTSTRAP": f"127.0.0.1:{port}",
        **java.QUICK,
    }
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    printed = re.split(r"^--- \d+\n", done.stderr.replace(str(port), "9092"), flags=re.MULTILINE)[1:]
    assert len(printed) == len(steps), done.stderr
    for (command, expected), text in zip(steps, printed, strict=True):
        seen = re.sub(r"^\[\d+\].*\n", "", text, flags=re.MULTILINE)  # the shell's notices about its jobs
        pattern = re.escape(expected).replace(re.escape("..."), r"[^\n]*")
        assert re.fullmatch(pattern, seen), f"$ {command}\n{seen}\ninstead of\n{expected}"


def test_the_application_shown_is_the_example() -> None:
    """But for its types, which the example has for whoever reads on."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None

    def statements(text: str) -> list[str]:
        untyped = re.sub(r": DataFrame|-> DataFrame\b", "", text)
        tree = ast.parse(untyped)
        return sorted(
            ast.unparse(node)
            for node in tree.body
            if not isinstance(node, ast.Expr) and "DataFrame" not in ast.unparse(node)
        )

    assert statements(block.group(1)) == statements((ROOT / "examples/word_count.py").read_text())
