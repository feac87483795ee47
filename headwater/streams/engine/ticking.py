"""Ticks for the silent inputs of a query: what the query has read of each, and what is written when one is silent.

See ``headwater.streams.silence`` for the rules. A topic of ticks belongs to one input of one build of one
output; its records look like records of the stream of which only the event time is known.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from headwater.client.connection import Connection
from headwater.client.writer import Writer
from headwater.streams.declarations import LOG_TIME, PROCESSING_TIME, Stream
from headwater.streams.engine.checkpoint import Offsets
from headwater.streams.silence import InputState, ticks_due
from headwater.views.types import LAST_MICROS

_EPOCH = datetime.fromtimestamp(0, UTC)


def ticks_topic(application: str, output: str, build: int, stream: str) -> str:
    """The topic of the ticks of one input.

    >>> ticks_topic("shop", "answered", 1, "clicks")
    'shop.answered.1.clicks.ticks'
    """
    return f"{application}.{output}.{build}.{stream}.ticks"


def can_tick(stream: Stream) -> bool:
    """Whether a tick can be written for the stream: it has an event time, and values that we can write."""
    return stream.time is not None and stream.time != PROCESSING_TIME and stream.format.name == "json"


class Ticking:
    """The inputs of one query, and the ticks for those that are silent."""

    def __init__(self, connection: Connection, streams: Sequence[Stream], topics: Mapping[str, str]) -> None:
        self._connection, self._topics = connection, topics
        self._streams = {stream.name: stream for stream in streams}
        self._newest: dict[str, int | None] = {}
        self._heard: dict[str, float] = {}
        self._covered: Offsets = {}
        self._writer: Writer | None = None
        self.started()

    def started(self) -> None:
        """The query was started: Spark has forgotten what each input had contributed to its watermark."""
        self._newest = dict.fromkeys(self._streams)
        self._heard = dict.fromkeys(self._streams, time.time())

    def read(self, name: str, counted: Mapping[str, Any], end: Offsets) -> None:
        """A batch read so much of an input."""
        if counted.get("newest") is not None:
            newest, known = int(counted["newest"]), self._newest[name]
            self._newest[name] = newest if known is None else max(newest, known)
        if counted.get("rows"):
            self._heard[name] = time.time()
        self._covered.update(end)

    def look(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Writes the ticks that are due; `ends` are the ends of the streams' topics."""
        states = {name: self._state(stream, ends) for name, stream in self._streams.items()}
        due = ticks_due(states, time.time())
        if not due:
            return
        if self._writer is None:
            self._writer = Writer(self._connection)
        for name, micros in due.items():
            stream = self._streams[name]
            micros = min(micros, LAST_MICROS)  # no stream has events of after that
            if micros == self._newest[name]:
                continue
            moment = _EPOCH + timedelta(microseconds=micros)
            value = {} if stream.time == LOG_TIME else {stream.time: moment}
            # By log time the tick's own timestamp counts.
            self._writer.write(self._topics[name], orjson.dumps(value), timestamp=micros // 1000)
        self._writer.flush()

    def _state(self, stream: Stream, ends: Mapping[tuple[str, int], int]) -> InputState:
        covered = self._covered.get(stream.topic, {})
        behind = any(
            end > covered.get(number, 0) for (topic, number), end in ends.items() if topic == stream.topic
        )
        name = stream.name
        return InputState(stream.lateness, stream.idle, self._newest[name], self._heard[name], behind)
