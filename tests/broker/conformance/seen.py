"""What Apache Kafka answered, in files: one a script, one line a step."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("seen")


def read_seen(name: str) -> list[dict[str, Any]]:
    """The transcript of a script against Apache Kafka."""
    steps: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return steps


def write_seen(name: str, steps: Sequence[dict[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(step) for step in steps)
    (FOLDER / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def as_seen(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A transcript as it would be read back."""
    read: list[dict[str, Any]] = json.loads(json.dumps(list(steps)))
    return read
