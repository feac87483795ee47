"""The replication connection: what the server streams, and what is said back to it."""

import select
import time
from struct import Struct

import psycopg
from psycopg import pq

from headwater.connect.cdc.postgres.catalog import address, connection_string
from headwater.connect.cdc.postgres.lsn import lsn_text
from headwater.connect.cdc.postgres.pgoutput import EPOCH_MICROSECONDS
from headwater.errors import ConnectionLost

_status = Struct(">cqqqqB").pack
_keepalive = Struct(">qqB").unpack_from
_WAL = ord("w")

# XLogData: 'w', position, end, time, then the message of pgoutput.
HEADER = 25
STATUS_SECONDS = 10.0  # the server gives up after wal_sender_timeout, 60 seconds by default
BATCH_BYTES = 1 << 20


def open_replication(url: str) -> pq.abc.PGconn:
    """A connection that speaks the replication protocol, and SQL besides."""
    connection = pq.PGconn.connect(connection_string(url, replication="database").encode())
    if connection.status != pq.ConnStatus.OK:
        cause = connection.error_message.decode("utf-8", "replace").strip()
        connection.finish()
        raise ConnectionLost("open a replication connection to", address(url), cause)
    return connection


def run(connection: pq.abc.PGconn, command: str, what: str) -> list[list[bytes | None]]:
    """The answer to a replication command, as rows."""
    answer = connection.exec_(command.encode())
    if answer.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise ConnectionLost(what, "the replication connection", said(answer.error_message))
    return [
        [answer.get_value(row, column) for column in range(answer.nfields)] for row in range(answer.ntuples)
    ]


def said(message: bytes) -> str:
    """The first line of what the server said."""
    return (
        message.decode("utf-8", "replace").strip().split("\n")[0].rstrip(".") or "the server ended the stream"
    )


class Replication:
    """A stream from a slot. Not thread-safe."""

    def __init__(self, url: str, slot: str, publication: str, start: int) -> None:
        self._subject = f"slot {slot} of {address(url)}"
        self.confirmed = start  # what the server may forget
        self.sent = start  # everything before has been sent to us, as the last keepalive said
        self.caught_up = False  # nothing has come since the last keepalive
        self._told = 0.0
        self._must_answer = False
        self._connection = open_replication(url)
        quoted = publication.replace('"', '""').replace("'", "''")
        options = f"proto_version '1', publication_names '\"{quoted}\"', messages 'true'"
        answer = self._connection.exec_(
            f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(start)} ({options})'.encode()
        )
        if answer.status != pq.ExecStatus.COPY_BOTH:
            self.close()
            raise self._lost(said(answer.error_message))
        self._poll = select.poll()
        self._poll.register(self._connection.socket, select.POLLIN)

    def receive(self, seconds: float) -> list[bytes]:
        """The next messages (XLogData as a whole), about a megabyte of them; none after so many seconds of silence.

        It ends at a keepalive, so that what the keepalive says (`sent`) holds after these messages.
        """
        messages: list[bytes] = []
        size = 0
        get = self._connection.get_copy_data
        dry = False  # what the socket had is in libpq's buffer, and the buffer has no whole message
        try:
            while True:
                count, data = get(1)
                if count > 0:
                    if data[0] != _WAL:
                        self._hear(data)
                        break
                    messages.append(bytes(data))
                    self.caught_up = dry = False
                    size += count
                    if size > BATCH_BYTES:
                        break
                elif count < 0:
                    result = self._connection.get_result()
                    raise self._lost(said(result.error_message if result else self._connection.error_message))
                elif not dry:
                    self._connection.consume_input()
                    dry = True
                elif messages or not self._poll.poll(seconds * 1000):
                    break
                else:
                    self._connection.consume_input()
                    seconds = (
                        0.0 if seconds < 0.001 else seconds / 2
                    )  # half a message must not keep us for ever
        except psycopg.Error as error:
            raise self._lost(said(str(error).encode())) from error
        if self._must_answer or time.monotonic() - self._told > STATUS_SECONDS:
            self.tell()
        return messages

    def _hear(self, data: memoryview) -> None:
        end, _, answer = _keepalive(data, 1)
        self.sent = max(self.sent, end)
        self.caught_up = True
        self._must_answer |= bool(answer)

    def tell(self, *, ask: bool = False) -> None:
        """Says what the server may forget; `ask` for a keepalive at once."""
        now = time.time_ns() // 1000 - EPOCH_MICROSECONDS
        try:
            self._connection.put_copy_data(
                _status(b"r", max(self.sent, self.confirmed), self.confirmed, self.confirmed, now, ask)
            )
            while self._connection.flush():
                select.select([], [self._connection.socket], [], 1.0)
                self._connection.consume_input()
        except psycopg.Error as error:
            raise self._lost(said(str(error).encode())) from error
        self._told, self._must_answer = time.monotonic(), False

    def keep_alive(self) -> None:
        """To be called now and then while nothing is received."""
        if time.monotonic() - self._told > STATUS_SECONDS:
            self.tell()

    def _lost(self, cause: str) -> ConnectionLost:
        return ConnectionLost("stream from", self._subject, cause)

    def close(self) -> None:
        self._connection.finish()
