"""Packets of MySQL's protocol from a socket, many at a time.

A packet is three bytes of length, a number, and its content; one of 2^24 - 1 bytes goes on in the next. PyMySQL reads
them one by one with several calls each; here a buffer is read and all that is whole in it is told by its places.
"""

import socket

_LARGEST = 0xFFFFFF
_READ = 1 << 18
Spans = list[tuple[int, int]]  # where the contents of packets begin and end


class ConnectionClosed(ConnectionError):
    """The server has closed the connection."""


class Packets:
    """The packets that come from a connection which nobody else reads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self._parts: list[bytes] = []  # of a packet that is not whole yet
        self._collected = self._needed = 0
        self._timeout: float | None = -1.0
        self.is_quiet = False  # nothing at all came in the time of the last `receive`

    def receive(self, timeout: float | None) -> tuple[bytes, Spans]:
        """What has come: a buffer and the places of whole packets in it; none when nothing was whole in time."""
        if timeout != self._timeout:
            self._connection.settimeout(timeout)
            self._timeout = timeout
        try:
            data = self._connection.recv(_READ)
        except TimeoutError:
            self.is_quiet = True
            return b"", []
        self.is_quiet = False
        if not data:
            raise ConnectionClosed("the server closed the connection")
        if self._needed:
            self._parts.append(data)
            self._collected += len(data)
            if self._collected < self._needed:
                return b"", []
            data = b"".join(self._parts)
            self._parts, self._needed = [], 0
        elif self._rest:
            data = self._rest + data
        return self._split(data)

    def _split(self, data: bytes) -> tuple[bytes, Spans]:
        spans: Spans = []
        at, size = 0, len(data)
        while at + 4 <= size:
            length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            end = at + 4 + length
            if length == _LARGEST:
                joined = self._joined(data, at)
                if joined is None:
                    return data, spans
                data, end = joined
                size = len(data)
            elif end > size:
                self._wait_for(data[at:], length + 4)
                return data, spans
            spans.append((at + 4, end))
            at = end
        self._rest = data[at:]
        return data, spans

    def _joined(self, data: bytes, at: int) -> tuple[bytes, int] | None:
        """Takes the headers out of a content in several packets; None when it is not whole yet."""
        ends, place = [], at
        while True:
            if place + 4 > len(data):
                self._wait_for(data[at:], place + 4 - at)
                return None
            length = data[place] | data[place + 1] << 8 | data[place + 2] << 16
            if place + 4 + length > len(data):
                self._wait_for(data[at:], place + 4 + length - at)
                return None
            ends.append((place + 4, place + 4 + length))
            place += 4 + length
            if length < _LARGEST:
                break
        content = b"".join(data[start:end] for start, end in ends)
        return data[: at + 4] + content + data[place:], at + 4 + len(content)

    def _wait_for(self, begun: bytes, needed: int) -> None:
        """A packet larger than what is there: what comes is collected, not looked at again and again."""
        if needed > _READ:
            self._parts, self._collected, self._needed, self._rest = [begun], len(begun), needed, b""
        else:
            self._rest = begun
