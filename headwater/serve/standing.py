"""How far a view is, as headers of a read and in the list of views. Pure."""

import json
from collections.abc import Iterable
from typing import Any

from headwater.streams.declarations import Table, View
from headwater.views.model import News, Progress, Reading, ViewInfo

LONGEST = 8000  # characters of the offsets in a header; many clients take no longer ones
INPUTS = "views"  # under which a view over views keeps the batches of these, beside the offsets of topics


def standing_headers(found: Reading | News) -> Iterable[tuple[str, str]]:
    """The version that was read, its last batch, the offsets and the time that it covers."""
    progress = found.progress
    yield "Headwater-View-Version", str(progress.version)
    yield "Headwater-Last-Change", str(found.last_change)
    if progress.batch is not None:
        yield "Headwater-Batch", str(progress.batch)
    if progress.watermark is not None:
        yield "Headwater-Watermark", _moment(progress.watermark)
    offsets = json.dumps(topic_offsets(progress), separators=(",", ":"))
    if len(offsets) <= LONGEST:
        yield "Headwater-Offsets", offsets


def topic_offsets(progress: Progress) -> dict[str, Any]:
    """The offsets that a view covers, by topic and partition."""
    return {topic: offsets for topic, offsets in progress.offsets.items() if topic != INPUTS}


def standing_of(node: View | Table, info: ViewInfo | None) -> dict[str, Any]:
    """A view in the list: the version that serves, else the newest that is being built, else nothing yet."""
    versions = () if info is None else info.versions
    chosen = next((each for each in versions if info and each.version == info.serving), None)
    if chosen is None and versions:
        chosen = versions[-1]
    described: dict[str, Any] = {
        "name": node.name,
        "kind": node.kind,
        "version": None,
        "state": "waiting",
        "key": list(node.key),
        "columns": None,
        "rows": 0,
        "watermark": None,
        "batch": None,
        "committed": None,
        "offsets": {},
        "last_change": 0 if info is None else info.last_change,
        "building": [],
    }
    if chosen is None:
        return described
    progress = chosen.progress
    return described | {
        "version": chosen.version,
        "state": chosen.state,
        "key": list(chosen.schema.key),
        "columns": [{"name": column.name, "type": column.type} for column in chosen.schema.columns],
        "rows": progress.rows,
        "watermark": None if progress.watermark is None else _moment(progress.watermark),
        "batch": progress.batch,
        "committed": None if progress.committed is None else _moment(progress.committed),
        "offsets": topic_offsets(progress),
        "building": [each.version for each in versions if each.state == "building"],
    }


def _moment(moment: Any) -> str:
    return str(moment.replace(tzinfo=None).isoformat(timespec="microseconds")) + "Z"
