"""Requests with an idempotency key: each is written once, however often it is sent and whoever is killed.

The events of a request and the answer to it are one Kafka transaction: both are there, or neither is. A thread takes
all requests that wait and commits them together. It is the only one that decides about a key, and looks first whether
the key has its answer: so a repetition gets the answer of the first, also while the first is under way.

The newest server of an application has the transactional id; an older one, or a second one beside it, takes it back
with its next request, after reading what the other has written. That is right for any number of servers, and quick
for one.
"""

import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from headwater.client.connection import Connection
from headwater.client.transactions import TransactionalWriter
from headwater.errors import (
    BatchTooLarge,
    HeadwaterError,
    KeyReused,
    NotDelivered,
    StaleProducerEpoch,
    TransactionAborted,
    UnknownTopic,
)
from headwater.serve.delivery import (
    BATCH_BYTES,
    BROKEN,
    LARGEST_RECORD,
    Outcomes,
    Place,
    Record,
    hand_over,
)
from headwater.serve.remembered import Memory, Remembered, topic_of

TRANSACTION_SECONDS = 20.0
FLUSH_SECONDS = 1.0
GROUP_REQUESTS, GROUP_BYTES = 500, 8 << 20  # of one transaction
ATTEMPTS = 3
PAUSE_SECONDS = 0.2  # at most, before a server that was fenced takes over again

_FINAL = (BatchTooLarge, UnknownTopic)  # what no repetition mends


class Answer(NamedTuple):
    """What a request is answered: the status and the body, as JSON."""

    status: int
    body: bytes
    is_repeated: bool = False


@dataclass
class KeyedRequest:
    """A request that waits for its transaction."""

    key: str
    fingerprint: str
    topic: str
    records: Sequence[Record]
    compose: Callable[[Sequence[Place]], Answer]  # the answer, when it is known where the records are
    size: int
    deadline: float  # on the monotonic clock: it is not begun any more behind it
    done: "Future[Answer]" = field(default_factory=Future)
    attempts: int = 0


class _Writer(TransactionalWriter):
    """One that reports every record's place."""

    def _forced_options(self) -> dict[str, Any]:
        return {
            **super()._forced_options(),
            "delivery.report.only.error": False,
            "linger.ms": 1,
            "batch.size": BATCH_BYTES,
            "message.max.bytes": LARGEST_RECORD + (1 << 20),
        }

    def send(self, records: Sequence[Record]) -> list[Place]:
        """The places of the records, once all are acknowledged; raises what became of the first that was not."""
        if not records:
            return []
        outcomes = Outcomes(len(records))
        try:
            hand_over(self.producer, records, outcomes)
            while self.producer.flush(FLUSH_SECONDS):
                pass  # each record fails by itself at the transaction's time-out
        except BROKEN as error:
            cause = "its producer can do no more; another one may have taken over"
            raise TransactionAborted("write in", self._subject, cause) from error
        found = outcomes.done.result(timeout=0)
        for outcome in found:
            if isinstance(outcome, HeadwaterError):
                raise outcome
        return [outcome for outcome in found if isinstance(outcome, Place)]


class KeyedDelivery:
    """The thread that writes requests with keys."""

    def __init__(self, connection: Connection, application: str, data: Path) -> None:
        self._connection, self._application = connection, application
        self._file = data / "ingest" / f"{application}.db"
        self._waiting: queue.SimpleQueue[KeyedRequest | None] = queue.SimpleQueue()
        self._again: deque[KeyedRequest] = deque()  # each alone, so that one cannot fail the others
        self._held: list[KeyedRequest] = []  # with the key of one that is in the same transaction
        self._writer: _Writer | None = None
        self._memory: Memory | None = None
        self._thread = threading.Thread(target=self._run, name="ingest-keys", daemon=True)

    def start(self) -> None:
        """Begins to serve what `submit` brings."""
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        """Ends when what waits has been written; a transaction that does not end is left to its time-out."""
        self._waiting.put(None)
        if self._thread.is_alive():
            self._thread.join(seconds)

    def submit(self, request: KeyedRequest) -> "Future[Answer]":
        """From any thread; never waits."""
        self._waiting.put(request)
        return request.done

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        stopping = False
        while not stopping or self._again or self._held:
            group, stopping = self._next_group(stopping)
            try:
                self._serve(group)
            except Exception as error:  # whatever it is: nobody else serves these, nor those that come
                self._lose()
                for request in group:
                    if not request.done.done():
                        request.done.set_exception(error)
        if self._memory is not None:
            self._memory.close()

    def _next_group(self, stopping: bool) -> tuple[list[KeyedRequest], bool]:
        if self._again:
            return [self._again.popleft()], stopping
        group, size = self._held, sum(request.size for request in self._held)
        self._held = []
        while not stopping and len(group) < GROUP_REQUESTS and size < GROUP_BYTES:
            try:
                request = self._waiting.get(block=not group)
            except queue.Empty:
                break
            if request is None:
                stopping = True
                break
            group.append(request)
            size += request.size
        return group, stopping

    def _serve(self, group: Sequence[KeyedRequest]) -> None:
        now = time.monotonic()
        waiting = []
        for request in group:
            if request.deadline < now:
                cause = "its turn did not come in time"
                request.done.set_exception(NotDelivered("write to", request.topic, cause))
            else:
                waiting.append(request)
        if not waiting:
            return
        try:
            memory = self._take_over()
        except HeadwaterError as error:
            self._lose()
            for request in waiting:
                request.done.set_exception(error)
            return
        fresh: dict[str, KeyedRequest] = {}
        for request in waiting:
            known = memory.find(request.key)
            if known is not None:
                _repeat(request, known)
            elif request.key in fresh:
                self._held.append(request)
            else:
                fresh[request.key] = request
        if fresh:
            self._commit(list(fresh.values()), memory)

    def _commit(self, requests: Sequence[KeyedRequest], memory: Memory) -> None:
        assert self._writer is not None
        try:
            answers, kept, end = self._in_transaction(self._writer, requests)
        except HeadwaterError as error:
            # Whether it was committed is in the topic, to be read when the id has been taken over again.
            self._lose()
            if isinstance(error, StaleProducerEpoch | TransactionAborted):
                time.sleep(random.uniform(0, PAUSE_SECONDS))
            for request in requests:
                request.attempts += 1
                is_alone = len(requests) == 1
                if is_alone and (request.attempts >= ATTEMPTS or isinstance(error, _FINAL)):
                    request.done.set_exception(error)
                else:
                    self._again.append(request)
            return
        for request, answer in zip(requests, answers, strict=True):
            request.done.set_result(answer)
        memory.keep(kept, end)

    def _in_transaction(
        self, writer: _Writer, requests: Sequence[KeyedRequest]
    ) -> tuple[list[Answer], list[Remembered], int]:
        with writer.transaction():
            places = writer.send([record for request in requests for record in request.records])
            answers, kept, at = [], [], 0
            for request in requests:
                answer = request.compose(places[at : at + len(request.records)])
                at += len(request.records)
                answers.append(answer)
                kept.append(
                    Remembered(request.key, request.fingerprint, answer.status, answer.body, time.time())
                )
            topic = topic_of(self._application)
            noted = writer.send([Record(topic, each.to_record(), each.key.encode()) for each in kept])
        return answers, kept, noted[-1].offset + 1

    def _take_over(self) -> Memory:
        """The answers up to now; from here on nobody else writes any."""
        if self._memory is None:
            self._memory = Memory(self._file, topic_of(self._application))
        if self._writer is None:
            name = f"headwater.ingest.{self._application}"
            writer = _Writer(self._connection, name, transaction_seconds=TRANSACTION_SECONDS)
            self._memory.catch_up(self._connection)
            self._writer = writer
        return self._memory

    def _lose(self) -> None:
        self._writer = None


def _repeat(request: KeyedRequest, known: Remembered) -> None:
    if known.fingerprint != request.fingerprint:
        key = request.key.partition(" ")[2]
        cause = "it came before, with another body"
        request.done.set_exception(KeyReused("use", f"the Idempotency-Key {key!r}", cause))
    else:
        request.done.set_result(Answer(known.status, known.body, is_repeated=True))
