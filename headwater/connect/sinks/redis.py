"""Redis kept in step with a topic: rows and the offsets that they cover change in one MULTI/EXEC.

So whatever is killed, and when, Redis holds the table as the topic had it at the position that it holds; a Redis that
comes back from an older copy goes on from the older position by itself, and an empty one is filled from the beginning.
The position is the hash ``headwater:sink:<name>``: ``<topic>-<partition>`` -> offset; ``worker``, by which a newer
worker fences an older one; ``id:<topic>``, by which another topic of the name is told from the one that it was. Redis
Cluster is not for it: a transaction cannot span its slots.
"""

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import orjson

from headwater.client.bare_requests import Place
from headwater.connect.sinks.changes import Change, ChangeReader
from headwater.connect.sinks.identity import as_text
from headwater.connect.sinks.resp import RedisAddress, RedisConnection, RedisError, command, many
from headwater.connect.sinks.sink import OnGap
from headwater.connect.sinks.table import TableSink
from headwater.errors import SinkImpossible, TakenOver

Form = Literal["json", "hash"]

_WORKER = b"worker"
_MULTI, _EXEC = command(b"MULTI"), command(b"EXEC")


class RedisSink(TableSink):
    """A key a row, as a JSON string or a hash."""

    def __init__(
        self,
        address: RedisAddress,
        name: str,
        topic: str,
        reader: ChangeReader,
        *,
        form: Form = "json",
        ttl_ms: int | None = None,
        on_gap: OnGap = "fail",
    ) -> None:
        super().__init__(name, topic, reader)
        self._address, self._form, self._ttl, self.on_gap = address, form, ttl_ms, on_gap
        self._place = f"headwater:sink:{name}".encode()
        self._id = uuid.uuid4().hex
        self._worker = b""  # how the position names us: when we took over, and who we are
        self._redis: RedisConnection | None = None

    def describe(self) -> str:
        return self._address.shown

    def open(self, places: Iterable[Place]) -> dict[Place, int]:
        redis = self._redis = RedisConnection(self._address)
        found = self._position(redis)
        step = f"Delete the rows and the hash {self._place.decode()}: the sink then begins anew."
        self.require_topic(found.get(_id(self.topic), b"").decode(), step)
        last = found.get(_WORKER, b"0")
        if self._worker and last != self._worker and _since(last) > _since(self._worker):
            raise self._taken_over()
        # Later than any before it, even where another machine's clock is ahead.
        since = max(time.time_ns(), _since(last) + 1)
        self._worker = f"{since}-{self._id}".encode()
        watch = [command(b"WATCH", self._place), command(b"HGETALL", self._place)]
        about = [_WORKER, self._worker]
        if self.topic_id:
            about += [_id(self.topic), self.topic_id.encode()]
        taken = redis.ask([command(b"HSET", self._place, *about), *watch])
        for reply in taken:
            redis.check(reply, "open")
        found = _pairs(taken[-1])
        self._positions = {place: int(found[field]) for place in places if (field := _field(place)) in found}
        return dict(self._positions)

    def close(self, *, in_order: bool) -> None:
        if self._redis is not None:
            self._redis.close()
            self._redis = None

    def write(self, place: Place, changes: Sequence[Change], after: int) -> Mapping[int, str]:
        redis = self._redis
        assert redis is not None
        effects = self._effects(changes)
        effects.append(command(b"HSET", self._place, _field(place), str(after).encode()))
        began = time.monotonic()
        # The watch for the next transaction goes along: from here on nobody else may have moved the position.
        watch = [command(b"WATCH", self._place), command(b"HGET", self._place, _WORKER)]
        *replies, watching, worker = redis.ask([_MULTI, *effects, _EXEC, *watch])
        for reply in replies[:-1]:
            redis.check(reply, "write to")
        done = redis.check(replies[-1], "write to")
        redis.check(watching, "write to")
        if done is None or redis.check(worker, "write to") != self._worker:
            raise self._taken_over()
        for reply in done:
            if isinstance(reply, RedisError):
                raise SinkImpossible("write to", self._address.shown, str(reply))
        self._took(time.monotonic() - began)
        return {}

    def moved(self, place: Place, after: int) -> None:
        """Written with the rows already."""

    def _effects(self, changes: Sequence[Change]) -> list[bytes]:
        gone = [change.id.encode() for change in changes if change.row is None]
        rows = [(change.id.encode(), change.row) for change in changes if change.row is not None]
        if self._form == "hash":
            gone += [key for key, _ in rows]  # columns that a row no longer has must not stay
        effects = [many([b"UNLINK", *gone])] if gone else []
        if not rows:
            return effects
        ttl = str(self._ttl).encode() if self._ttl is not None else None
        if self._form == "hash":
            for key, row in rows:
                fields = [
                    part
                    for column, value in row.items()
                    if value is not None
                    for part in (column.encode(), as_text(value).encode())
                ]
                if fields:  # Redis has no hash without fields
                    effects.append(many([b"HSET", key, *fields]))
                    effects += [command(b"PEXPIRE", key, ttl)] if ttl is not None else []
        elif ttl is not None:
            effects += [command(b"SET", key, orjson.dumps(row), b"PX", ttl) for key, row in rows]
        else:
            parts = [b"MSET"]
            for key, row in rows:
                parts.append(key)
                parts.append(orjson.dumps(row))
            effects.append(many(parts))
        return effects

    def _position(self, redis: RedisConnection) -> dict[bytes, bytes]:
        return _pairs(redis.check(redis.ask([command(b"HGETALL", self._place)])[0], "read the position in"))

    def _taken_over(self) -> TakenOver:
        cause = "another worker has taken this sink over"
        return TakenOver("write for", self.name, cause, "Run one worker a sink, or give the sinks names.")


def _field(place: Place) -> bytes:
    return f"{place[0]}-{place[1]}".encode()


def _id(topic: str) -> bytes:
    return f"id:{topic}".encode()


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _since(worker: bytes) -> int:
    """When a worker took over.

    >>> _since(b"17-abc"), _since(b"x")
    (17, 0)
    """
    text = worker.partition(b"-")[0]
    return int(text) if text.isdigit() else 0
