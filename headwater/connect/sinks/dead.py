"""Records that a sink cannot use, copied to ``<topic>.dead`` as they were, with headers that say why.

They are durable before the sink's position moves behind them. A sink that is killed in between copies them again: the
headers ``headwater.topic``, ``headwater.partition`` and ``headwater.offset`` tell a repeated one.
"""

from collections.abc import Mapping
from typing import Any

from headwater.client.admin import Admin
from headwater.client.bare_requests import Place
from headwater.client.columns import Columns
from headwater.client.connection import Connection
from headwater.client.writer import Writer

_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1"}  # somebody has to look at them first
_REASON_LENGTH = 2000  # characters


class DeadLetters:
    """Of one topic."""

    def __init__(self, connection: Connection, topic: str, sink: str) -> None:
        self.topic = f"{topic}.dead"
        self._connection, self._sink = connection, sink
        self._writer: Writer | None = None

    def write(self, place: Place, columns: Columns, reasons: Mapping[int, str]) -> None:
        """Copies the records at these indexes, and returns when the log has them."""
        if not reasons:
            return
        if self._writer is None:
            Admin(self._connection).create_topic(self.topic, 1, configs=_CONFIGS, exist_ok=True)
            self._writer = Writer(self._connection)
        keys, values, headers = columns.keys(), columns.values(), columns.headers()
        for index, reason in sorted(reasons.items()):
            kept: list[tuple[str, Any]] = [
                (pair["key"], pair["value"]) for pair in headers[index].as_py() or ()
            ]
            kept += [
                ("headwater.topic", place[0].encode()),
                ("headwater.partition", str(place[1]).encode()),
                ("headwater.offset", str(int(columns.offsets[index])).encode()),
                ("headwater.sink", self._sink.encode()),
                ("headwater.reason", reason[:_REASON_LENGTH].encode()),
            ]
            self._writer.write(self.topic, values[index].as_py(), keys[index].as_py(), headers=kept)
        try:
            self._writer.flush()
        except BaseException:
            self._writer = None  # what it could not deliver would be counted against the next
            raise
