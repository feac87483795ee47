"""Attackers: threads that send spoiled frames over sockets, many to a connection, and see what comes back.

A frame counts when the broker has dealt with it: it was answered, or it made the broker close the
connection, or a later frame of the same connection was answered. What lay behind a frame that closed the
connection was not looked at, and does not count.
"""

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence

from tests.support.fuzz.mutations import mutate

_SENTINEL = 0x7ABCDEF1
_PATIENCE = 0.5  # seconds without a byte from the broker; then the attacker goes away without a word
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST

_STREAMS = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),  # the start of TLS
    b"\x00" * 400,
    b"\xff" * 400,
]


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def sentinel() -> bytes:
    """A request that every broker answers, and whose answer is known by its correlation id."""
    return framed(struct.pack(">hhih4s", 18, 0, _SENTINEL, 4, b"last"))


class Attacker(threading.Thread):
    """One stream of frames, over as many connections as it takes."""

    def __init__(self, address: tuple[str, int], seeds: Sequence[bytes], dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.outcomes: Counter[str] = Counter()
        self._address = address
        self._seeds = seeds
        self._dice = dice
        self._ended = threading.Event()
        self.failure: BaseException | None = None

    @property
    def frames(self) -> int:
        """How many frames the broker has dealt with."""
        return sum(count for what, count in self.outcomes.items() if what in COUNTED)

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                try:
                    with socket.create_connection(self._address, 10) as connection:
                        self._use(connection)
                except OSError:
                    self.outcomes["connection refused"] += 1
                    time.sleep(0.05)
        except BaseException as error:
            self.failure = error
            raise

    def _use(self, connection: socket.socket) -> None:
        """Bursts of frames until the connection is gone."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not self._ended.is_set():
            if self._dice.random() < 0.05:
                self._break_framing(connection)
                return
            frames = [mutate(self._dice, self._seeds) for _ in range(self._dice.choice([1, 1, 2, 4, 16]))]
            if not self._burst(connection, frames):
                return

    def _burst(self, connection: socket.socket, frames: Sequence[bytes]) -> bool:
        """Send the frames at once and read the answers. Whether the connection is still good."""
        self.outcomes["sent"] += len(frames)
        # The other direction must be read while we write, or two full buffers would wait for each other.
        connection.settimeout(_PATIENCE)
        data = b"".join(map(framed, frames)) + sentinel()
        answers = _Answers(connection)
        try:
            _send(connection, data, answers)
            alive = answers.read_until(_SENTINEL)
        except TimeoutError:
            # The broker holds a request back (a long poll, a join): going away is what clients do then.
            self.outcomes["answered"] += answers.count
            self.outcomes["left waiting"] += 1
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            return False
        except ConnectionError:
            alive = False
        if alive:
            self.outcomes["answered"] += answers.count
            self.outcomes["not to be answered"] += max(0, len(frames) - answers.count)  # acks=0
            return True
        self.outcomes["answered"] += min(answers.count, len(frames) - 1)
        self.outcomes["closed"] += 1
        return False

    def _break_framing(self, connection: socket.socket) -> None:
        """Wrong lengths, half frames, other protocols; then wait for the broker to close, or leave."""
        dice = self._dice
        frame = mutate(dice, self._seeds)
        length = dice.choice([2**31 - 1, -1, -(2**31), 0, 100 << 20, (100 << 20) + 1, len(frame) + 50, 2])
        data = dice.choice(
            [
                struct.pack(">i", length) + frame,
                struct.pack(">i", length) + frame,
                framed(frame)[: dice.randrange(len(frame) + 4)],
                dice.choice(_STREAMS),
                dice.randbytes(dice.choice([1, 3, 4, 100])),
            ]
        )
        self.outcomes["sent"] += 1
        connection.settimeout(_PATIENCE)
        try:
            connection.sendall(data)
            how = dice.choice(["leave", "reset", "finish", "wait"])
            if how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            elif how == "finish":
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            elif how == "wait" and length not in (len(frame) + 50, 100 << 20):
                connection.settimeout(0.02)
                while connection.recv(65536):
                    pass
        except OSError:  # closed, reset, or silent: each is an answer to this
            pass
        self.outcomes["broken framing"] += 1


COUNTED = {"answered", "not to be answered", "closed", "left waiting", "broken framing"}


class _Answers:
    """Response frames as they come, counted."""

    def __init__(self, connection: socket.socket) -> None:
        self.count = 0
        self._connection = connection
        self._pending = bytearray()
        self._last = 0

    def take(self, data: bytes) -> None:
        if not data:
            raise ConnectionResetError("closed by the broker")
        self._pending += data
        start = 0
        while len(self._pending) - start >= 8:
            size, correlation = struct.unpack_from(">ii", self._pending, start)
            if len(self._pending) - start - 4 < size:
                break
            self._last = correlation
            self.count += correlation != _SENTINEL
            start += 4 + size
        del self._pending[:start]

    def read_until(self, correlation: int) -> bool:
        while self._last != correlation:
            self.take(self._connection.recv(1 << 20))
        return True


def _send(connection: socket.socket, data: bytes, answers: _Answers) -> None:
    view = memoryview(data)
    while view:
        sent = connection.send(view[: 1 << 16])
        view = view[sent:]
        if view:
            connection.setblocking(False)
            try:
                answers.take(connection.recv(1 << 20))
            except BlockingIOError:
                pass
            finally:
                connection.settimeout(_PATIENCE)


class SlowLoris(threading.Thread):
    """Connections that send a valid request one byte at a time and never finish it."""

    def __init__(
        self, address: tuple[str, int], seeds: Sequence[bytes], count: int, dice: random.Random
    ) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._streams = [framed(dice.choice(seeds)) for _ in range(count)]
        self._ended = threading.Event()
        self.bytes_sent = 0

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        connections: list[tuple[socket.socket, bytes]] = []
        position = 0
        try:
            connections.extend(
                (socket.create_connection(self._address, 10), stream) for stream in self._streams
            )
            while not self._ended.wait(0.25):
                for connection, stream in connections:
                    if position < len(stream) - 1:
                        connection.sendall(stream[position : position + 1])
                        self.bytes_sent += 1
                position += 1
        finally:
            for connection, _ in connections:
                connection.close()
