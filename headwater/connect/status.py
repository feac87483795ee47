"""The status of running sources, for other processes: ``<data>/connect/<source>.json``, written twice a second."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from headwater.connect.sinks.worker import SinkWorkerStatus
from headwater.connect.worker import WorkerStatus


class SourceStatusFile:
    """What a worker says of itself."""

    def __init__(self, data: Path, source: str) -> None:
        self.path = data / "connect" / f"{source}.json"

    def write(self, application: str, status: WorkerStatus | SinkWorkerStatus, rate: float) -> None:
        """Replaces the file in one step."""
        document = {
            "application": application,
            "pid": os.getpid(),
            "at": time.time(),
            "rate": rate,
            **asdict(status),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(f".{os.getpid()}")
        part.write_bytes(orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS))
        part.replace(self.path)

    def read(self) -> dict[str, Any] | None:
        """What was written last, with ``running`` telling whether its writer lives; None when there is nothing."""
        try:
            document: dict[str, Any] = orjson.loads(self.path.read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        over = document.get("state") in ("stopped", "failed")
        document["running"] = not over and _lives(int(document.get("pid", 0)))
        return document


def read_statuses(data: Path) -> list[dict[str, Any]]:
    """Of all sources that have run with this data directory, by name."""
    return [document for document in _read_all(data) if document.get("kind") != "sink"]


def read_sink_statuses(data: Path) -> list[dict[str, Any]]:
    """Of all sinks that have run with this data directory, by name."""
    return [document for document in _read_all(data) if document.get("kind") == "sink"]


def _read_all(data: Path) -> list[dict[str, Any]]:
    files = sorted((data / "connect").glob("*.json"))
    found = [SourceStatusFile(data, path.name.removesuffix(".json")).read() for path in files]
    return [document for document in found if document is not None]


def share_read(progress: Mapping[str, Any]) -> float | None:
    """How much of a table a snapshot has read, from 0 to 1; None when nobody knows.

    >>> share_read({"rows": 25, "total": 100, "done": False})
    0.25
    """
    if progress["done"]:
        return 1.0
    total = progress.get("total")
    return min(1.0, progress["rows"] / total) if total else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0
