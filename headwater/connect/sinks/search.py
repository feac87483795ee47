"""An index of OpenSearch or Elasticsearch kept in step with a topic, through the bulk API.

A document's version is the offset of the record that it comes from (``external_gte``): what is repeated, or late, finds
its own or a newer version and changes nothing. The position, committed behind what was written, is that of the consumer
group ``headwater.sink.<name>``; so `headwater groups` shows it, and resetting it writes the index anew. The topic's id
is beside it, and in the mapping of the index: offsets of another topic of the name are no versions of its documents.

What the server says of one document (a value that does not fit the mapping) concerns that one: it is set aside in
``<topic>.dead``. What it says of the index, or of itself, is waited for.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson
from confluent_kafka import Consumer, TopicPartition

from headwater.client.bare_requests import Place
from headwater.client.connection import open_client
from headwater.client.positions import read_positions, save_positions
from headwater.connect.sinks.bulk import Action, action, described, judge, requests
from headwater.connect.sinks.changes import Change, ChangeReader
from headwater.connect.sinks.http import HttpAddress, HttpConnection
from headwater.connect.sinks.index_mark import marked, topic_of
from headwater.connect.sinks.sink import OnGap
from headwater.connect.sinks.table import TableSink
from headwater.errors import ConnectionLost, SinkImpossible

SAVE_SECONDS = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
PATIENCE_SECONDS = 30.0  # then the worker says that it waits, and begins again from its position
_TOO_LARGE = 413

logger = logging.getLogger("headwater.connect")


class SearchSink(TableSink):
    """A document a row."""

    def __init__(
        self,
        address: HttpAddress,
        name: str,
        topic: str,
        reader: ChangeReader,
        *,
        index: str,
        on_gap: OnGap = "fail",
    ) -> None:
        super().__init__(name, topic, reader)
        self._address, self._index, self.on_gap = address, index, on_gap
        # Only what is judged: answers of thousands of items are long.
        self._of_index = f"/{quote(index, safe='')}"
        self._path = f"{self._of_index}/_bulk?filter_path=errors,error,items.*.status,items.*.error"
        self._http: HttpConnection | None = None
        self._group: Consumer | None = None
        self._unsaved: dict[Place, int] = {}
        self._saved_at = 0.0
        self._marked = False  # whether the index says which topic it follows

    @property
    def group(self) -> str:
        """The consumer group whose committed offsets are its position."""
        return f"headwater.sink.{self.name}"

    def describe(self) -> str:
        return f"{self._address.shown}/{self._index}"

    def open(self, places: Iterable[Place]) -> dict[Place, int]:
        self._http = HttpConnection(self._address)
        status, answer = self._http.ask("GET", "/")
        if status != 404:  # some services have no such page
            self._check(status, answer)
        options = {"group.id": self.group, "enable.auto.commit": False}
        self._group = open_client(Consumer, self._log.options(forced=options))
        found = read_positions(self._group, [TopicPartition(*place) for place in places], self.group)
        self._unsaved = {}
        positions = {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
        followed = {each.metadata for each in found if each.offset >= 0 and each.metadata}
        former = next(iter(followed - {self.topic_id}), "") if self.topic_id else ""
        self._positions = positions if self._goes_on(former) else {}
        return dict(self._positions)

    def _goes_on(self, former: str) -> bool:
        """Whether the position holds for the index; not for one that is yet to be made. `former` is another topic."""
        status, mappings = self._mappings()
        self._marked = not self.topic_id
        if status == 404:
            return False
        followed = topic_of(mappings, self.topic)
        step = f"Delete the index {self._index}: the sink then writes it anew."
        self.require_topic(followed, step)
        self._marked = self._marked or bool(followed)
        if former and not followed and self._documents() != 0:
            self.require_topic(former, step)
        return not former

    def close(self, *, in_order: bool) -> None:
        http, self._http = self._http, None
        group, self._group = self._group, None
        try:
            if in_order and group is not None:
                self._save(group)
        finally:
            if http is not None:
                http.close()
            if group is not None:
                group.close()

    def idle(self) -> None:
        if self._unsaved and time.monotonic() - self._saved_at > SAVE_SECONDS:
            assert self._group is not None
            self._save(self._group)

    def moved(self, place: Place, after: int) -> None:
        self._unsaved[place] = after
        self.idle()

    def write(self, place: Place, changes: Sequence[Change], after: int) -> Mapping[int, str]:
        began = time.monotonic()
        refused: dict[int, str] = {}
        for part in requests([action(change) for change in changes]):
            self._write(part, refused)
        if changes and not self._marked:
            self._mark()
        self._took(time.monotonic() - began)
        return refused

    def _mappings(self) -> tuple[int, Any]:
        """Those of the index, if the server shows them."""
        assert self._http is not None
        status, answer = self._http.ask("GET", f"{self._of_index}/_mapping")
        if status == 429 or status >= 500:
            self._check(status, answer)
        return status, self._check(status, answer) if status < 300 else None

    def _documents(self) -> int | None:
        """How many the index has, if the server says so."""
        assert self._http is not None
        self._http.ask("POST", f"{self._of_index}/_refresh")
        status, answer = self._http.ask("GET", f"{self._of_index}/_count")
        return int(self._check(status, answer).get("count", -1)) if status < 300 else None

    def _mark(self) -> None:
        """Says in the index which topic it follows, before any position says that it does.

        Where that is not permitted, the sink goes on without: a topic made anew is known by its position alone then.
        """
        assert self._http is not None
        status, mappings = self._mappings()
        if status < 300:
            change = orjson.dumps(marked(mappings, self.topic, self.topic_id))
            status, answer = self._http.ask("PUT", f"{self._of_index}/_mapping", change)
            if status == 429 or status >= 500:
                self._check(status, answer)
            if status >= 300:
                logger.warning(
                    "%s: the index %s cannot be marked: %s", self.name, self._index, _reason(answer)
                )
        self._marked = True

    def _write(self, actions: list[Action], refused: dict[int, str]) -> None:
        """Sends them until each is done or refused."""
        left, pause, began = actions, FIRST_PAUSE, time.monotonic()
        while left:
            left, reason = self._send(left, refused)
            if not left:
                return
            if time.monotonic() + pause - began > PATIENCE_SECONDS:
                step = "The sink tries again by itself; look at the index and the cluster's health."
                raise ConnectionLost("write to", self.describe(), reason, step)
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    def _send(self, actions: list[Action], refused: dict[int, str]) -> tuple[list[Action], str]:
        """One request; what has to be sent again, and why."""
        assert self._http is not None
        body = b"".join(each.lines for each in actions)
        status, answer = self._http.ask("POST", self._path, body, "application/x-ndjson")
        if status == _TOO_LARGE:
            if len(actions) == 1:
                refused[actions[0].offset] = f"the server takes no request of {len(body)} bytes"
                return [], ""
            half = len(actions) // 2
            left, reason = self._send(actions[:half], refused)
            more, other = self._send(actions[half:], refused)
            return [*left, *more], reason or other
        if status == 429 or status >= 500:
            return actions, f"it answers {status}: {_reason(answer)}"
        document = self._check(status, answer)
        items = document.get("items", [])
        if len(items) != len(actions):
            raise SinkImpossible(
                "write to", self.describe(), f"it answered for {len(items)} of {len(actions)}"
            )
        left, why = [], ""
        for each, item in zip(actions, items, strict=True):
            verdict, reason = judge(item)
            if verdict == "again":
                left.append(each)
                why = reason
            elif verdict == "refused":
                refused[each.offset] = reason
        return left, why

    def _check(self, status: int, answer: bytes) -> dict[str, Any]:
        if status == 429 or status >= 500:
            step = "The sink tries again by itself."
            raise ConnectionLost("reach", self.describe(), f"it answers {status}: {_reason(answer)}", step)
        if status >= 300:
            raise SinkImpossible("write to", self.describe(), f"it answers {status}: {_reason(answer)}")
        try:
            document: dict[str, Any] = orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            cause = "what answers there is neither OpenSearch nor Elasticsearch"
            raise SinkImpossible("write to", self.describe(), cause) from error
        return document

    def _save(self, group: Consumer) -> None:
        if self._unsaved:
            places = [TopicPartition(*place, at, self.topic_id) for place, at in self._unsaved.items()]
            save_positions(group, places, self.group)
            self._unsaved = {}
        self._saved_at = time.monotonic()


def _reason(answer: bytes) -> str:
    try:
        kind, reason = described(orjson.loads(answer)["error"])
        return f"{kind}: {reason}" if reason else kind
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return answer[:200].decode(errors="replace").strip() or "nothing"
