"""How large partitions are on their brokers' disks: DescribeLogDirs v1, byte by byte.

confluent-kafka has no call for it. Version 1 is understood by every Kafka from 2.0 on; only connections without
TLS and SASL are asked, and all others are told that the size is not known.

    request   topics int32 (-1: all)
    response  throttle int32 | results [error int16 | directory string | topics [name string | partitions
              [number int32 | size int64 | lag int64 | is_future int8]]]
"""

import socket
import struct
from collections.abc import Iterable

from headwater.client.connection import Connection

DESCRIBE_LOG_DIRS = 35
SECONDS = 2.0
_ENTRY = struct.Struct(">iqqb")

Place = tuple[str, int]


def partition_sizes(connection: Connection, brokers: Iterable[tuple[str, int]]) -> dict[Place, int] | None:
    """The bytes of each partition, of its largest replica; None when they cannot be asked for."""
    if connection.properties.get("security.protocol", "plaintext").lower() != "plaintext":
        return None
    sizes: dict[Place, int] = {}
    for address in brokers:
        try:
            answer = _ask(address)
        except (OSError, ValueError):
            return None
        for place, size in read_sizes(answer).items():
            sizes[place] = max(size, sizes.get(place, 0))
    return sizes


def read_sizes(body: bytes) -> dict[Place, int]:
    """The partitions of an answer, without its size and correlation id.

    >>> entry = struct.pack(">h1si", 1, b"t", 1) + _ENTRY.pack(0, 512, 0, 0)
    >>> read_sizes(struct.pack(">iihh1si", 0, 1, 0, 1, b"d", 1) + entry)
    {('t', 0): 512}
    """
    sizes: dict[Place, int] = {}
    (results,), at = struct.unpack_from(">i", body, 4), 8
    for _ in range(results):
        _, at = _text(body, at + 2)
        (topics,), at = struct.unpack_from(">i", body, at), at + 4
        for _ in range(topics):
            name, at = _text(body, at)
            (partitions,), at = struct.unpack_from(">i", body, at), at + 4
            for _ in range(partitions):
                number, size, _, is_future = _ENTRY.unpack_from(body, at)
                at += _ENTRY.size
                if not is_future:
                    sizes[name, number] = size
    return sizes


def _text(body: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", body, at)
    end = at + 2 + length
    return body[at + 2 : end].decode(), end


def _ask(address: tuple[str, int]) -> bytes:
    client = b"headwater"
    request = struct.pack(">hhih", DESCRIBE_LOG_DIRS, 1, 1, len(client)) + client + struct.pack(">i", -1)
    with socket.create_connection(address, SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", _receive(connection, 4))
        return _receive(connection, length)[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            raise ValueError("the broker closed the connection")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
