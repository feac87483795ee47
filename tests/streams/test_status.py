"""How an output is doing, from what Spark reports of its batches."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.streams.engine import status as module
from headwater.streams.engine.status import (
    Meter,
    OutputStatus,
    StatusFile,
    document_of,
    dropped_by_watermark,
    rows_read,
)


def batch(number: int, start: dict[str, int] | None, end: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "batchId": number,
        "durationMs": {"addBatch": 40, "triggerExecution": 55},
        "sources": [
            {
                "startOffset": None if start is None else json.dumps({"clicks": start}),
                "endOffset": json.dumps({"clicks": end}),
            }
        ],
        **more,
    }


def test_batches_add_up() -> None:
    meter = Meter(OutputStatus("pages", "view"))
    meter.take(batch(0, None, {"0": 100}))
    meter.take(
        batch(
            1,
            {"0": 100},
            {"0": 150, "1": 7},
            eventTime={"watermark": "2026-01-05T10:00:00.000Z"},
            stateOperators=[
                {"numRowsTotal": 5, "memoryUsedBytes": 700},
                {"numRowsTotal": 2, "memoryUsedBytes": 1},
            ],
        )
    )
    status = meter.status
    assert (status.batches, status.batch, status.rows_in, status.batch_ms) == (2, 1, 157, 55.0)
    assert status.offsets == {"clicks": {0: 150, 1: 7}}
    assert (status.state_rows, status.state_bytes) == (7, 701)
    assert status.watermark == "2026-01-05T10:00:00.000Z"


def test_a_report_without_a_batch_counts_none() -> None:
    meter = Meter(OutputStatus("pages", "view"))
    meter.take(batch(0, None, {"0": 1}))
    meter.take(batch(1, {"0": 1}, {"0": 1}, durationMs={"triggerExecution": 3}))
    assert (meter.status.batches, meter.status.batch, meter.status.rows_in) == (1, 0, 1)


def test_the_rate_falls_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    meter = Meter(OutputStatus("pages", "view"))
    meter.take(batch(0, None, {"0": 500}))
    meter.refresh()
    assert meter.status.rate == 50.0  # over ten seconds
    now += 5
    meter.take(batch(1, {"0": 500}, {"0": 600}))
    meter.refresh()
    assert meter.status.rate == 60.0
    now += 6
    meter.refresh()
    assert meter.status.rate == 10.0
    now += 5
    meter.refresh()
    assert meter.status.rate == 0.0


def test_rows_of_several_sources() -> None:
    sources = [
        {"startOffset": {"a": {"0": 1}}, "endOffset": {"a": {"0": 4}}},
        {"startOffset": {"b": {"0": 1}}, "endOffset": {"b": {"0": 11}}},
        {"startOffset": None, "endOffset": None},
    ]
    assert rows_read({"sources": sources}) == 13
    assert rows_read({}) == 0


def test_rows_that_all_operators_dropped() -> None:
    operators = [{"numRowsDroppedByWatermark": 2}, {}, {"numRowsDroppedByWatermark": 3}]
    assert dropped_by_watermark({"stateOperators": operators}) == 5
    assert dropped_by_watermark({}) == 0


def test_a_status_file_tells_whether_its_writer_lives(tmp_path: Path) -> None:
    file = StatusFile(tmp_path, "shop")
    assert file.read() is None
    document = document_of("shop", [OutputStatus("pages", "view", offsets={"clicks": {0: 7}})])
    file.write(document)
    found = file.read()
    assert found is not None and found["running"] and found["pid"] == os.getpid()
    assert found["outputs"][0]["name"] == "pages"
    assert found["outputs"][0]["offsets"] == {"clicks": {"0": 7}}

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file.write({**document, "pid": ended.pid})
    assert file.read() is not None and not file.read()["running"]  # type: ignore[index]
    file.write({**document, "stopped": True})
    assert not file.read()["running"]  # type: ignore[index]


def test_a_status_file_that_is_none_is_passed_over(tmp_path: Path) -> None:
    file = StatusFile(tmp_path, "shop")
    file.write({})
    file.path.write_text("{torn")
    assert file.read() is None
    assert [path.name for path in file.path.parent.iterdir()] == ["shop.json"]
