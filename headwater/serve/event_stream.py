"""An answer that goes on for as long as its client listens."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.serve.sse import HEADERS, HELLO

Emit = Callable[[bytes], Awaitable[None]]
LONGEST_SECONDS = 86_400  # that a client may say a stream is to last


class EventStream(Response):
    """Server-sent events that ``write`` emits, until it returns, the time is up or the client is gone.

    ``emit`` waits while the client is slow to take what it was sent before, so that what is on its way to one
    client is never more than the transport's buffer and one piece.
    """

    def __init__(
        self,
        write: Callable[[Emit], Awaitable[None]],
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> None:
        super().__init__(None, 200, {**HEADERS, **(headers or {})})
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
        self._write, self._seconds = write, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def emit(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        if scope["method"] != "HEAD":
            await emit(HELLO)
            writer = asyncio.ensure_future(self._write(emit))
            listener = asyncio.ensure_future(_until_gone(receive))
            try:
                await asyncio.wait(
                    (writer, listener), timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for task in (writer, listener):
                    task.cancel()
                await asyncio.gather(writer, listener, return_exceptions=True)
            if not writer.cancelled() and (error := writer.exception()) is not None:
                raise error
        with contextlib.suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
