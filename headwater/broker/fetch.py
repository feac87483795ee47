"""Fetch: whole batches from the files to the socket, or a wait until there are some."""

import asyncio
import logging
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.broker.context import RequestContext
from headwater.broker.fetch_sessions import Session, SessionError, Target
from headwater.broker.messages import ErrorCode, milliseconds
from headwater.broker.wire import Fetched, write_fetch_response
from headwater.errors import HeadwaterError
from headwater.log.index import AbortedTransaction
from headwater.log.partition import PartitionLog
from headwater.log.segment import Chunk, WouldBlock

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.connection import Connection, Slot

logger = logging.getLogger("headwater.broker")

READ_COMMITTED = 1


def start_fetch(
    broker: "Broker", context: RequestContext, request: Any, slot: "Slot", connection: "Connection"
) -> None:
    """Answer a Fetch request, now or when there is enough to answer with or its time is up."""
    try:
        session, targets = broker.fetch_sessions.targets(request)
    except SessionError as error:
        slot.answer(write_fetch_response(context.correlation_id, context.version, error.code, 0, []))
        connection.release()
        return
    Fetch(broker, context, request, slot, connection, session, targets).try_now()


class Fetch:
    """One Fetch request under way."""

    __slots__ = (
        "broker",
        "committed",
        "connection",
        "context",
        "deadline",
        "done",
        "logs",
        "max_bytes",
        "max_wait",
        "min_bytes",
        "missing",
        "reading",
        "session",
        "slot",
        "targets",
    )

    def __init__(
        self,
        broker: "Broker",
        context: RequestContext,
        request: Any,
        slot: "Slot",
        connection: "Connection",
        session: Session | None,
        targets: Iterable[Target],
    ) -> None:
        self.broker = broker
        self.context = context
        self.slot = slot
        self.connection = connection
        self.session = session
        self.targets = list(targets)
        self.committed = request.isolation_level == READ_COMMITTED
        self.min_bytes = request.min_bytes
        self.max_bytes = min(request.max_bytes, broker.largest_fetch)
        self.max_wait = milliseconds(request.max_wait)
        self.deadline: asyncio.TimerHandle | None = None
        self.logs: list[PartitionLog] = []
        self.missing = 0  # bytes that have to arrive before another look is worth it
        self.done = False
        self.reading = False

    # -- trying and waiting -----------------------------------------------------------------------

    def try_now(self) -> None:
        """Look what there is; answer if it is enough."""
        try:
            results, size, failed = self.gather(may_block=False)
        except WouldBlock:
            self._read_elsewhere()
            return
        self._judge(results, size, failed)

    def _read_elsewhere(self) -> None:
        """The bytes are not in memory: let a thread wait for the disk."""
        self.reading = True
        future = self.broker.loop.run_in_executor(self.broker.readers, self.gather, True)
        future.add_done_callback(self._read_done)

    def _read_done(self, future: "asyncio.Future[tuple[list[Fetched], int, bool]]") -> None:
        self.reading = False
        if self.done or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            logger.error("closing %s: a fetch failed: %r", self.context.client_host, error)
            self._finish()
            self.connection.close()
            return
        results, size, failed = future.result()
        self._judge(results, size, failed)

    def _judge(self, results: list[Fetched], size: int, failed: bool) -> None:
        timed_out = self.max_wait <= 0 or (
            self.deadline is not None and self.deadline.when() <= self.broker.loop.time()
        )
        if size >= self.min_bytes or failed or timed_out or not self.targets or self.broker.stopping:
            self._answer(results)
            return
        self.missing = self.min_bytes - size
        if self.deadline is None:
            self.deadline = self.broker.loop.call_later(self.max_wait / 1000, self._time_is_up)
            self.connection.on_close.append(self._finish)
            self.logs = [log for target in self.targets if (log := self._log(target)) is not None]
            for log in self.logs:
                self.broker.wait_for(log, self)

    def wake(self, new_bytes: int) -> None:
        """More of a partition has become readable."""
        self.missing -= new_bytes
        if self.missing <= 0 and not self.done and not self.reading:
            self.try_now()

    def _time_is_up(self) -> None:
        if not self.done and not self.reading:
            self.max_wait = 0
            self.try_now()

    def _finish(self) -> None:
        self.done = True
        if self.deadline is not None:
            self.deadline.cancel()
            for log in self.logs:
                self.broker.stop_waiting_for(log, self)
            if self._finish in self.connection.on_close:
                self.connection.on_close.remove(self._finish)

    def _answer(self, results: list[Fetched]) -> None:
        session_id = 0
        if self.session is not None:
            session_id = self.session.session_id
            results = self.session.worth_telling(results)
        self._finish()
        version = self.context.version
        self.slot.answer(write_fetch_response(self.context.correlation_id, version, 0, session_id, results))
        self.connection.release()

    # -- reading ----------------------------------------------------------------------------------

    def _log(self, target: Target) -> PartitionLog | None:
        return self.broker.find_log(target.topic, target.partition)

    def _unknown(self, target: Target) -> int:
        if isinstance(target.topic, uuid.UUID) and self.broker.find_topic(target.topic) is None:
            return ErrorCode.unknown_topic_id
        return ErrorCode.unknown_topic_or_partition

    def gather(self, may_block: bool) -> tuple[list[Fetched], int, bool]:
        """What can be sent now: results, bytes, and whether a partition has an error."""
        results: list[Fetched] = []
        size = 0
        failed = False
        room = self.max_bytes
        for target in self.targets:
            log = self._log(target)
            if log is None:
                results.append(_error(target, self._unknown(target))._replace(aborted=[]))
                failed = True
                continue
            if target.leader_epoch > 0:
                results.append(_error(target, ErrorCode.unknown_leader_epoch))
                failed = True
                continue
            try:
                result = self._read(target, log, room, first=size == 0, may_block=may_block)
            except HeadwaterError as error:
                if (
                    error.kafka_code != ErrorCode.offset_out_of_range
                ):  # an offset out of range is the client's to settle
                    logger.error("%s", error)
                results.append(_error(target, error.kafka_code))
                failed = True
                continue
            results.append(result)
            size += len(result.records)
            room -= len(result.records)
        return results, size, failed

    def _read(self, target: Target, log: PartitionLog, room: int, first: bool, may_block: bool) -> Fetched:
        offset = target.offset
        log.check_readable(offset)
        high_watermark = log.durable_offset
        stable = log.last_stable_offset
        end = stable if self.committed else high_watermark
        chunk: Chunk | None = None
        aborted: list[AbortedTransaction] | None = [] if self.committed else None
        if offset < end and (room > 0 or first):
            max_bytes = min(target.max_bytes, room)
            if self.committed:
                chunk, aborted = log.read_committed(offset, max_bytes, end, first, may_block)
            else:
                chunk = log.read(offset, max_bytes, end, first, may_block)
        return Fetched(
            target.topic,
            target.partition,
            0,
            high_watermark,
            stable,
            log.start_offset,
            aborted,
            b"" if chunk is None else chunk.data,
        )


def _error(target: Target, code: int) -> Fetched:
    return Fetched(target.topic, target.partition, code, -1, -1, -1, None, b"")
