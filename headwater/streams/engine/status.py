"""How each output of an application is doing: what the terminal, the metrics and `headwater status` show."""

import json
import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RATE_SECONDS = 10.0  # rates are means over so long
KEPT_FAILURES = 20


@dataclass(frozen=True)
class Failure:
    """When something failed, in seconds since the epoch, and why."""

    at: float
    cause: str


@dataclass
class OutputStatus:
    """One output. Counts are since the start of the process."""

    name: str
    kind: str
    guarantee: str = "exactly once"
    state: str = "starting"
    error: str | None = None
    restarts: int = 0
    failures: list[Failure] = field(default_factory=list)  # the last ones, oldest first
    build: int | None = None
    batches: int = 0
    batch: int = -1
    rows_in: int = 0
    rows_out: int = 0
    rate: float = 0.0  # rows read a second
    batch_ms: float = 0.0
    phases: dict[str, int] = field(default_factory=dict)  # of the last batch, in ms
    lag: int | None = None  # records in the log that are not in the result
    watermark: str | None = None
    late: int = 0
    dead: int = 0
    missed: int = 0  # records that retention took before they were read
    state_rows: int = 0
    state_bytes: int = 0
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)


def with_failure(failures: list[Failure], cause: str) -> list[Failure]:
    """A list that has one more, and no more than are kept.

    >>> [failure.cause for failure in with_failure([Failure(1.0, "disk full")], "no such column")]
    ['disk full', 'no such column']
    """
    return [*failures, Failure(time.time(), cause)][-KEPT_FAILURES:]


class Meter:
    """Turns the progress of a query into its status."""

    def __init__(self, status: OutputStatus) -> None:
        self.status = status
        self._recent: deque[tuple[float, int]] = deque()

    def begin(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Where a query goes on that has run before.

        >>> meter = Meter(OutputStatus("sales", "view"))
        >>> meter.begin({"orders": {0: 7}})
        >>> meter.status.offsets
        {'orders': {0: 7}}
        """
        self.status.offsets = {topic: dict(partitions) for topic, partitions in offsets.items()}

    def take(self, progress: Mapping[str, Any]) -> None:
        """Counts a batch."""
        status, phases = self.status, progress.get("durationMs", {})
        rows = rows_read(progress)
        if "addBatch" in phases:
            status.batches += 1
            status.batch = progress["batchId"]
            status.batch_ms = float(phases.get("triggerExecution", 0))
            status.phases = dict(phases)
        status.rows_in += rows
        self._recent.append((time.monotonic(), rows))
        status.watermark = progress.get("eventTime", {}).get("watermark", status.watermark)
        operators = progress.get("stateOperators", [])
        status.state_rows = sum(int(each.get("numRowsTotal", 0)) for each in operators)
        status.state_bytes = sum(int(each.get("memoryUsedBytes", 0)) for each in operators)
        for source in progress.get("sources", []):
            for topic, partitions in source_offsets(source.get("endOffset")).items():
                known = status.offsets.setdefault(topic, {})
                known.update({int(number): int(offset) for number, offset in partitions.items()})

    def refresh(self) -> None:
        """Lets the rate fall when nothing comes."""
        now = time.monotonic()
        while self._recent and now - self._recent[0][0] > RATE_SECONDS:
            self._recent.popleft()
        self.status.rate = round(sum(rows for _, rows in self._recent) / RATE_SECONDS, 1)


def rows_read(progress: Mapping[str, Any]) -> int:
    """How many records of the log a batch covers. (Spark counts a source anew for each branch that reads it.)

    >>> rows_read({"sources": [{"startOffset": {"t": {"0": 5}}, "endOffset": {"t": {"0": 9, "1": 2}}}]})
    6
    """
    rows = 0
    for source in progress.get("sources", []):
        start, end = (source_offsets(source.get(key)) for key in ("startOffset", "endOffset"))
        for topic, partitions in end.items():
            rows += sum(at - start.get(topic, {}).get(number, 0) for number, at in partitions.items())
    return rows


def source_offsets(found: Any) -> dict[str, dict[str, int]]:
    """The offsets of one source in a progress report, which gives them as an object or as its text.

    >>> source_offsets('{"clicks": {"0": 7}}')
    {'clicks': {'0': 7}}
    """
    found = json.loads(found) if isinstance(found, str) else found
    return found if isinstance(found, dict) else {}


def dropped_by_watermark(progress: Mapping[str, Any]) -> int:
    """How many rows Spark's operators dropped as too late in a batch.

    >>> dropped_by_watermark({"stateOperators": [{"numRowsDroppedByWatermark": 2}]})
    2
    """
    return sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in progress.get("stateOperators", []))


class StatusFile:
    """The status of a running application, for other processes: ``<data>/status/<application>.json``."""

    def __init__(self, data: Path, application: str) -> None:
        self.path = data / "status" / f"{application}.json"

    def write(self, document: Mapping[str, Any]) -> None:
        """Replaces the file in one step."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(document, default=str))
        part.replace(self.path)

    def read(self) -> dict[str, Any] | None:
        """What was written last, with ``running`` telling whether its writer lives."""
        try:
            document: dict[str, Any] = json.loads(self.path.read_text())
        except (FileNotFoundError, ValueError):
            return None
        document["running"] = _lives(int(document.get("pid", 0))) and not document.get("stopped")
        return document


def document_of(application: str, outputs: list[OutputStatus], **more: Any) -> dict[str, Any]:
    """The content of a status file."""
    return {
        "application": application,
        "pid": os.getpid(),
        "at": time.time(),
        "outputs": [asdict(output) for output in outputs],
        **more,
    }


def _lives(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
