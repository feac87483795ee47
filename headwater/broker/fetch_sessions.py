"""Incremental fetch sessions (KIP-227): a consumer of many partitions names only what changed.

A session remembers the partitions a client reads and what it was last told of each. A later request carries
changes only, and its response only the partitions that have something to say.
"""

import random
import uuid
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headwater.broker.messages import ErrorCode
from headwater.broker.wire import Fetched

SESSIONS_LIMIT = 1000
FINAL_EPOCH = -1
INITIAL_EPOCH = 0


TopicKey = str | uuid.UUID


@dataclass(slots=True)
class Target:
    """One partition that a client reads."""

    topic: TopicKey
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    told: tuple[int, int, int] | None = None  # high watermark, last stable offset and log start, as last sent

    @property
    def key(self) -> tuple[TopicKey, int]:
        return self.topic, self.partition


@dataclass(slots=True)
class Session:
    """What one client reads."""

    session_id: int
    epoch: int = 1
    targets: OrderedDict[tuple[TopicKey, int], Target] = field(default_factory=OrderedDict)

    def worth_telling(self, results: list[Fetched]) -> list[Fetched]:
        """The results with records, an error or news; partitions with records go to the end of the queue."""
        told = []
        for result in results:
            key = (result.topic, result.partition)
            target = self.targets.get(key)
            if target is None:
                continue
            news = (result.high_watermark, result.last_stable, result.log_start)
            if result.records or result.error or news != target.told:
                target.told = None if result.error else news
                told.append(result)
                if result.records:
                    self.targets.move_to_end(key)
        return told


class SessionError(Exception):
    """The request names a session that is not there, or not at that epoch."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Sessions:
    """All sessions, the least recently used going first when there are too many."""

    def __init__(self, limit: int = SESSIONS_LIMIT) -> None:
        self._limit = limit
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def targets(self, request: Any) -> tuple[Session | None, Iterable[Target]]:
        """What a Fetch request wants to read, and the session it is part of."""
        session_id = getattr(request, "session_id", 0)
        epoch = getattr(request, "session_epoch", FINAL_EPOCH)
        if epoch == FINAL_EPOCH:
            self._sessions.pop(session_id, None)
            return None, _targets(request)
        if epoch == INITIAL_EPOCH:
            self._sessions.pop(session_id, None)
            return self._open(request)
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionError(ErrorCode.fetch_session_id_not_found)
        if epoch != session.epoch:
            raise SessionError(ErrorCode.invalid_fetch_session_epoch)
        self._sessions.move_to_end(session_id)
        session.epoch = session.epoch + 1 if session.epoch < 2**31 - 1 else 1
        self._change(session, request)
        return session, list(session.targets.values())

    def _open(self, request: Any) -> tuple[Session | None, Iterable[Target]]:
        targets = _targets(request)
        if not targets:
            return None, targets
        while len(self._sessions) >= self._limit:
            self._sessions.popitem(last=False)
        session_id = random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = random.randrange(1, 2**31)
        session = Session(session_id)
        for target in targets:
            session.targets[target.key] = target
        self._sessions[session_id] = session
        return session, targets

    def _change(self, session: Session, request: Any) -> None:
        for topic in request.forgotten_topics_data:
            key = _topic_key(topic)
            for partition in topic.partitions:
                session.targets.pop((key, partition), None)
        for target in _targets(request):
            known = session.targets.get(target.key)
            if known is None:
                session.targets[target.key] = target
            else:
                known.offset, known.max_bytes = target.offset, target.max_bytes
                known.leader_epoch = target.leader_epoch


def _topic_key(topic: Any) -> TopicKey:
    name = getattr(topic, "topic", None)
    if name is not None:
        return str(name)
    topic_id = topic.topic_id
    return topic_id if topic_id is not None else uuid.UUID(int=0)


def _targets(request: Any) -> list[Target]:
    targets = []
    for topic in request.topics:
        key = _topic_key(topic)
        for partition in topic.partitions:
            targets.append(  # noqa: PERF401 (nested: a comprehension would hide what is in it)
                Target(
                    key,
                    partition.partition,
                    partition.fetch_offset,
                    partition.partition_max_bytes,
                    getattr(partition, "current_leader_epoch", -1),
                )
            )
    return targets
