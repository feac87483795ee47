"""The outbox pattern: rows of one table are events for topics of their own. No I/O.

Debezium's outbox event router: a row ``id, aggregatetype, aggregateid, type, payload`` becomes a record in the topic
``outbox.event.<aggregatetype>`` with the key `aggregateid`, the value `payload` and a header `id`; here also a
header `type`, where there is one. Only inserts count: rows are usually deleted at once.
"""

from collections.abc import Mapping

from headwater.connect.cdc.options import UNFIT
from headwater.connect.source import Record
from headwater.errors import CaptureImpossible

PREFIX = "outbox.event."
_LONGEST = 249  # characters of a topic's name; a log refuses longer ones
_NEEDED = ("id", "aggregatetype", "aggregateid", "payload")


def check_columns(table: str, columns: Mapping[str, object]) -> None:
    """Refuses a table that is no outbox."""
    if missing := [name for name in _NEEDED if name not in columns]:
        cause = f"it has no column {', '.join(missing)}"
        step = "Give it the columns id, aggregatetype, aggregateid, type and payload, or name another table."
        raise CaptureImpossible("use as an outbox", table, cause, step)


def event(row: Mapping[str, bytes | None]) -> Record:
    """The record of a row, of which the values are given as text; a payload of type bytea as its bytes.

    >>> event({"id": b"7", "aggregatetype": b"order", "aggregateid": b"42", "type": b"Paid", "payload": b"{}"})
    Record(topic='outbox.event.order', key=b'42', value=b'{}', headers=[('id', b'7'), ('type', b'Paid')])
    >>> long = {"id": b"7", "aggregatetype": b"o" * 300, "aggregateid": None, "payload": None}
    >>> len(event(long).topic)
    249
    """
    headers: list[tuple[str, bytes | None]] = [("id", row["id"])]
    if row.get("type") is not None:
        headers.append(("type", row["type"]))
    topic = PREFIX + UNFIT.sub("_", (row["aggregatetype"] or b"").decode("utf-8", "replace"))
    return Record(topic[:_LONGEST], row["aggregateid"], row["payload"], headers)
