"""One client's connection: bytes to frames, frames to handlers, responses back in the order of the requests.

Large frames are received straight into a buffer of their own. Produce requests are appended as they come,
many in flight, and answered when durable; any other request has the connection to itself until it is
answered, as in Kafka. A client that does not read its responses stops being read from.
"""

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from headwater.broker.apis import API_VERSIONS, APIS, FETCH, PRODUCE, Api
from headwater.broker.context import RequestContext
from headwater.broker.decode import decode_request
from headwater.broker.fetch import start_fetch
from headwater.broker.messages import encode_response, error, request_type
from headwater.broker.produce import start_produce
from headwater.broker.wire import BadRequest, RequestHeader, read_request_header, skip_tags

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger("headwater.broker")

RECEIVE_BUFFER = 16 << 10
UNANSWERED_LIMIT = 256  # requests of one connection
QUEUED_LIMIT = 8  # requests of one connection that wait for their turn
QUEUED_BYTES = 8 << 20  # of them
WRITE_LIMIT = 1 << 20

_SIZE = struct.Struct(">i")

Piece = bytes | bytearray | memoryview


class Slot:
    """The place of a response in the order of a connection's responses."""

    __slots__ = ("_connection", "pieces")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.pieces: Sequence[Piece] | None = None

    def answer(self, pieces: Sequence[Piece]) -> None:
        """Send the response, once those before it are sent."""
        self.pieces = pieces
        self._connection.flush()

    def skip(self) -> None:
        """There is no response (acks=0)."""
        self.pieces = ()
        self._connection.flush()

    def fail(self) -> None:
        """No response can be made: end the connection."""
        self._connection.close()


class Connection(asyncio.BufferedProtocol):
    """The server's side of one connection."""

    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.host = "/unknown"
        self.last_active = time.monotonic()
        self._transport: asyncio.Transport | None = None
        self._small = bytearray(RECEIVE_BUFFER)
        self._filled = 0
        self._frame: bytearray | None = None  # a large frame under way
        self._frame_size = 0
        self._frame_filled = 0
        self._unanswered: deque[Slot] = deque()
        self._queued: deque[bytes | memoryview] = deque()
        self._alone = False  # a request that has the connection to itself is under way
        self._working_off = False  # the queue; what is answered at once leads back to it
        self._writing_paused = False
        self._reading_paused = False
        self._closing = False
        self._draining = False
        self.on_close: list[Any] = []

    # -- the transport's calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_LIMIT)
        peer = transport.get_extra_info("peername")
        self.host = f"/{peer[0]}" if peer else "/unknown"
        if len(self.broker.connections) >= self.broker.most_connections:
            self.broker.turn_away(self.host)
            self._closing = True
            transport.abort()
            return
        self.broker.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self.broker.connections.discard(self)
        for callback in self.on_close:
            callback()
        self._queued.clear()
        self._unanswered.clear()
        self._frame = None

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._work_off_queue()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            if self._frame_filled == len(self._frame):
                self.broker.frames.grow(self._frame, self._frame_size)
            return memoryview(self._frame)[self._frame_filled : self._frame_size]
        return memoryview(self._small)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = time.monotonic()
        if self._closing:
            return
        try:
            if self._frame is not None:
                self._frame_filled += nbytes
                if self._frame_filled == self._frame_size:
                    buffer, self._frame = self._frame, None
                    self._take(memoryview(buffer)[: self._frame_size])
            else:
                self._filled += nbytes
                self._split()
        except BadRequest as error:
            logger.warning("closing %s: %s", self.host, error)
            self.close()
        except Exception:
            logger.exception("closing %s: a request failed", self.host)
            self.close()

    # -- frames -----------------------------------------------------------------------------------

    def _split(self) -> None:
        """Take the frames out of the small buffer."""
        buffer, filled, position = self._small, self._filled, 0
        while filled - position >= 4:
            (size,) = _SIZE.unpack_from(buffer, position)
            if size < 8 or size > self.broker.largest_request:
                raise BadRequest(f"a frame of {size} bytes")
            end = position + 4 + size
            if end <= filled:
                self._take(bytes(memoryview(buffer)[position + 4 : end]))
                position = end
                if self._closing:
                    return
                continue
            if size + 4 > RECEIVE_BUFFER:
                here = filled - position - 4
                self._frame = self.broker.frames.take(size)
                self._frame[:here] = memoryview(buffer)[position + 4 : filled]
                self._frame_size, self._frame_filled = size, here
                self._filled = 0
                return
            break
        rest = filled - position
        if position and rest:
            buffer[:rest] = buffer[position:filled]
        self._filled = rest

    def _take(self, frame: bytes | memoryview) -> None:
        if self._draining:
            return
        if self._alone or self._queued or self._writing_paused or len(self._unanswered) >= UNANSWERED_LIMIT:
            self._queued.append(frame)
            self._adjust_reading()
        else:
            self._start(frame)

    def _work_off_queue(self) -> None:
        if self._working_off:
            return  # the loop goes on with the next one: from within, each would go a few calls deeper
        self._working_off = True
        while (
            self._queued
            and not self._alone
            and not self._writing_paused
            and not self._closing
            and len(self._unanswered) < UNANSWERED_LIMIT
        ):
            try:
                self._start(self._queued.popleft())
            except BadRequest as error:
                logger.warning("closing %s: %s", self.host, error)
                self.close()
            except Exception:
                logger.exception("closing %s: a request failed", self.host)
                self.close()
        self._working_off = False
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """Read from the client only while its requests can be worked on."""
        if self._transport is None or self._closing or self._transport.is_closing():
            return
        stop = (
            self._writing_paused
            or len(self._queued) >= QUEUED_LIMIT
            or sum(map(len, self._queued)) > QUEUED_BYTES
        )
        if stop != self._reading_paused:
            self._reading_paused = stop
            if stop:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # -- requests ---------------------------------------------------------------------------------

    def _start(self, frame: bytes | memoryview) -> None:
        header = read_request_header(frame)
        api = APIS.get(header.api_key)
        if api is None:
            raise BadRequest(f"unknown API {header.api_key}")
        if not api.low <= header.version <= api.high:
            if header.api_key == API_VERSIONS:
                self._answer_unsupported_versions(header)
                return
            raise BadRequest(f"version {header.version} of {api.name}, which has {api.low} to {api.high}")
        context = RequestContext(
            header.api_key, header.version, header.correlation_id, header.client_id, self.host
        )
        slot = Slot(self)
        self._unanswered.append(slot)
        if header.api_key == PRODUCE:
            waiting = start_produce(self.broker, context, memoryview(frame), header.body, slot)
            if waiting is not None:
                self._have_alone(waiting)
            elif isinstance(frame, memoryview) and isinstance(frame.obj, bytearray):
                self.broker.frames.give(frame.obj)  # its batches are in their files, or refused
            return
        try:
            request = self._read(header, frame)
        except BadRequest:
            raise
        except Exception as error:
            raise BadRequest(f"a malformed {api.name} request of version {header.version}: {error}") from None
        self._alone = True
        if header.api_key == FETCH:
            start_fetch(self.broker, context, request, slot, self)
        else:
            self._run(api, request, context, slot)

    def _read(self, header: RequestHeader, frame: bytes | memoryview) -> Any:
        position = header.body
        body_type = request_type(header.api_key, header.version)
        if body_type.__flexible__:
            try:
                position = skip_tags(frame, position)
            except IndexError:
                raise BadRequest("a header without its tagged fields") from None
        return decode_request(header.api_key, header.version, bytes(frame), position)

    def _run(self, api: Api, request: Any, context: RequestContext, slot: Slot) -> None:
        result = api.handler(self.broker, request, context)
        if isinstance(result, Coroutine):
            self._have_alone(self._await(api, result, context, slot))
        else:
            self._encode(result, context, slot)
            self._alone = False

    def _have_alone(self, work: Coroutine[Any, Any, None]) -> None:
        """Do ``work`` to its end, even when the client goes away: half of a request is worse than all."""
        self._alone = True
        task = self.broker.loop.create_task(self._finish(work))
        self.broker.requests.add(task)
        task.add_done_callback(self.broker.requests.discard)

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("closing %s: a request failed", self.host)
            self.close()
        self.release()

    async def _await(
        self, api: Api, result: Coroutine[Any, Any, Any], context: RequestContext, slot: Slot
    ) -> None:
        self._encode(await result, context, slot)

    def _encode(self, fields: Any, context: RequestContext, slot: Slot) -> None:
        if isinstance(fields, bytes):
            slot.answer((fields,))
        else:
            slot.answer((encode_response(context.api_key, context.version, context.correlation_id, fields),))

    def release(self) -> None:
        """The request that had the connection to itself is answered."""
        self._alone = False
        self._work_off_queue()

    def _answer_unsupported_versions(self, header: RequestHeader) -> None:
        """Clients find out by this how far down they have to go: version 0, error 35, the range of itself."""
        api = APIS[API_VERSIONS]
        fields = {
            "error_code": error(35),
            "api_keys": ({"api_key": API_VERSIONS, "min_version": api.low, "max_version": api.high},),
        }
        slot = Slot(self)
        self._unanswered.append(slot)
        slot.answer((encode_response(API_VERSIONS, 0, header.correlation_id, fields),))

    # -- responses --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send the responses that are ready and have none before them."""
        transport = self._transport
        if transport is None or self._closing:
            return
        unanswered = self._unanswered
        out: list[Piece] = []
        while unanswered and unanswered[0].pieces is not None:
            pieces = unanswered.popleft().pieces
            if pieces:
                out.append(_SIZE.pack(sum(len(piece) for piece in pieces)))
                out.extend(pieces)
        if out:
            transport.writelines(out)
        if self._draining and not unanswered:
            self.close()
        elif self._queued and not self._alone:
            self._work_off_queue()

    # -- ending -----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take no more requests; close when those under way are answered."""
        self._draining = True
        self._queued.clear()
        if not self._unanswered:
            self.close()

    @property
    def is_busy(self) -> bool:
        return bool(self._unanswered)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if self._transport is not None:
                self._transport.close()
