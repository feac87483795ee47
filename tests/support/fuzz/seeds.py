"""Valid requests of every API and version that a broker advertises: what the mutations start from.

The values are plausible, so that requests reach deep into the handlers: names of topics and groups that
exist, short waits, real record batches. Everything follows from the random generator that is passed in.
"""

import dataclasses
import datetime
import functools
import io
import random
import socket
import struct
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import cramjam
from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from fastcrc.crc32 import iscsi as crc32c
from kio.index import load_request_schema
from kio.serial import entity_writer

TOPICS = ["fuzz-0", "fuzz-1", "fuzz-compacted", "fuzz-log-time"]
VICTIMS = ["victim-0", "victim-1", "victim-2"]  # created and deleted by the requests themselves
GROUPS = ["fuzz-group-0", "fuzz-group-1", "fuzz-group-2"]
TRANSACTIONS = ["fuzz-transaction-0", "fuzz-transaction-1"]
CONFIGS = [
    ("retention.ms", "60000"), ("segment.bytes", "1048576"), ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"), ("max.message.bytes", "900000"), ("min.cleanable.dirty.ratio", "0.1"),
    ("message.timestamp.type", "CreateTime"), ("no.such.config", "x"),
]  # fmt: skip

PRODUCE, FETCH, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 0, 1, 19, 20, 37
_BOMB_SIZE = 256 << 20
_THEN = 1_750_000_000_000  # a moment in the past: a seed gives the same bytes on every day


def advertised(host: str, port: int) -> dict[int, tuple[int, int]]:
    """The versions of each API that the broker offers, asked with ApiVersions v0."""
    request = struct.pack(">hhih4s", 18, 0, 1, 4, b"fuzz")
    with socket.create_connection((host, port), 10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        body = answer.read(size)
    _, error, count = struct.unpack_from(">ihi", body)
    assert error == 0, f"ApiVersions answered with error {error}"
    ranges = (struct.unpack_from(">hhh", body, 10 + 6 * index) for index in range(count))
    return {key: (lowest, highest) for key, lowest, highest in ranges}


class Seeds:
    """Frames (without their length) of valid requests.

    ``wild`` is the part of values that are well-formed but odd: the largest and smallest numbers, empty and
    long and strange names. They pass the decoder and try the handlers.
    """

    def __init__(self, dice: random.Random, topic_ids: Sequence[uuid.UUID] = (), wild: float = 0.0) -> None:
        self._dice = dice
        self._wild = wild
        self._topic_ids = [*topic_ids, uuid.UUID(int=dice.getrandbits(128))]
        self._bombs = _bombs()

    def build(self, offered: Mapping[int, tuple[int, int]], each: int) -> list[bytes]:
        """``each`` requests for every version of every API."""
        frames = []
        for key, (lowest, highest) in sorted(offered.items()):
            if key == PRODUCE:  # Kafka offers 0 to 2 for the sake of old clients, and does not serve them
                lowest = max(lowest, 3)
            for version in range(lowest, highest + 1):
                schema = load_request_schema(key, version)
                frames += [self.frame(schema, key, version) for _ in range(each)]
        return frames

    def frame(self, schema: type[Any], key: int, version: int) -> bytes:
        """One request, header included."""
        buffer = io.BytesIO()
        header = schema.__header_schema__
        fields: dict[str, Any] = {"request_api_key": key, "request_api_version": version, "correlation_id": 0}
        if any(field.name == "client_id" for field in dataclasses.fields(header)):
            fields["client_id"] = "fuzz"
        entity_writer(header)(buffer, header(**fields))
        return buffer.getvalue() + self.body(schema, key)

    def body(self, schema: type[Any], key: int) -> bytes:
        """What follows the header."""
        buffer = io.BytesIO()
        entity_writer(schema)(buffer, self._entity(schema, key))
        return buffer.getvalue()

    def _entity(self, schema: type[Any], key: int) -> Any:
        hints = typing.get_type_hints(schema)
        return schema(
            **{
                field.name: self._value(field.name, hints[field.name], key)
                for field in dataclasses.fields(schema)
            }
        )

    def _value(self, name: str, hint: Any, key: int) -> Any:
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            choices = [choice for choice in typing.get_args(hint) if choice is not types.NoneType]
            if self._dice.random() < 0.15 and name != "records":
                return None
            hint = choices[0]
        if typing.get_origin(hint) is tuple:
            dice = self._dice
            count = dice.choice([0, 1, 1, 1, 2, 3])
            if dice.random() < self._wild / 4:
                count = 60
            return tuple(self._value(_singular(name), typing.get_args(hint)[0], key) for _ in range(count))
        if dataclasses.is_dataclass(hint):
            return self._entity(typing.cast("type[Any]", hint), key)
        return self._primitive(name, hint, key)

    def _primitive(self, name: str, kind: Any, key: int) -> Any:
        dice = self._dice
        if issubclass(kind, bool):
            return dice.random() < 0.5
        if dice.random() < self._wild:
            odd = self._odd(kind)
            if odd is not None:
                return odd
        if issubclass(kind, datetime.timedelta):
            return datetime.timedelta(milliseconds=self._milliseconds(name))
        if issubclass(kind, uuid.UUID):
            return dice.choice(self._topic_ids)
        if issubclass(kind, float):
            return dice.random()
        if issubclass(kind, int):
            return self._integer(name, kind)
        if issubclass(kind, bytes):
            return self._records() if name == "records" else dice.randbytes(dice.randrange(40))
        if issubclass(kind, str):
            return self._string(name, key)
        raise TypeError(f"no value is known for {name}: {kind!r}")

    def _odd(self, kind: Any) -> Any:
        dice = self._dice
        if issubclass(kind, datetime.timedelta):
            return datetime.timedelta(milliseconds=dice.choice([-1, -(2**31), 2**31 - 1, 100]))
        if issubclass(kind, int):
            near = [kind.__low__, kind.__low__ + 1, -1, kind.__high__ - 1, kind.__high__, 1000, 70_000]
            return dice.choice([value for value in near if kind.__low__ <= value <= kind.__high__])
        if issubclass(kind, str):
            return dice.choice(["", " ", "\x00", ".", "..", "a/b", "\u00fc" * 50, "x" * 250, "x" * 20_000])
        if issubclass(kind, bytes):
            return dice.choice([b"", b"\x00" * 61, dice.randbytes(200), b"\xff" * 5000])
        return None

    def _milliseconds(self, name: str) -> int:
        """Waits are short, for the fuzzer's sake; sessions as short as brokers allow."""
        if name in ("session_timeout", "rebalance_timeout"):
            return 6000
        return self._dice.choice([0, 1, 5, 20])

    def _integer(self, name: str, kind: Any) -> int:
        dice = self._dice
        match name:
            case "partition" | "partition_index" | "index":
                return dice.choice([0, 0, 1, 2, 7])
            case "count" | "num_partitions":
                return dice.choice([1, 2, 3, -1])
            case "replication_factor":
                return dice.choice([1, 1, -1])
            case "acks":
                return dice.choice([-1, -1, 1, 1, 0])
            case "resource_type":
                return dice.choice([2, 2, 2, 4])
            case "port":
                return 9092
            case "timestamp":
                return dice.choice([-1, -2, -3, _THEN])
            case "max_bytes" | "partition_max_bytes":
                return dice.choice([0, 1, 1000, 1 << 20])
            case "session_id" | "session_epoch" | "share_session_epoch":
                return dice.choice([0, -1, 1])
            case "broker_id" | "replica_id" | "current_leader_epoch" | "leader_epoch":
                return dice.choice([-1, 0, 1])
            case "generation_id" | "member_epoch" | "generation_id_or_member_epoch":
                return dice.choice([-1, 0, 1, 2])
        if kind.__low__ >= 0:
            return dice.choice([0, 1, 2, 9])
        return dice.choice([-1, 0, 0, 1, 1, 2, 9, 100])

    def _string(self, name: str, key: int) -> str:
        dice = self._dice
        if key in (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS) and name in ("name", "topic_name"):
            return dice.choice(VICTIMS)
        if "topic" in name or name == "name":
            return dice.choice([*TOPICS, *TOPICS, *TOPICS, dice.choice(CONFIGS)[0], "no-such-topic"])
        if "group" in name and "instance" not in name:
            return dice.choice(GROUPS)
        if "transaction" in name:
            return dice.choice(TRANSACTIONS)
        if name == "key":
            return dice.choice([*GROUPS, *TRANSACTIONS])
        if name == "resource_name":
            return dice.choice([*TOPICS, "0", "1"])
        if name == "configuration_key":
            return dice.choice(CONFIGS)[0]
        if name == "value":
            return dice.choice(CONFIGS)[1]
        if name in ("protocol_type", "protocol_name"):
            return "consumer"
        if name == "server_assignor":
            return dice.choice(["uniform", "range", "none-such"])
        return dice.choice(["", "fuzz", "a-member", "\u00fc\u4e2d", "x" * 300])

    def _records(self) -> bytes:
        dice = self._dice
        if dice.random() < 0.03:
            return dice.choice(self._bombs)
        transactional = dice.random() < 0.3
        identified = transactional or dice.random() < 0.4
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=dice.choice([0, 0, 0, 1, 2, 3, 4]),
            is_transactional=transactional,
            producer_id=dice.choice([0, 1, 1000]) if identified else -1,
            producer_epoch=dice.choice([0, 0, 1]) if identified else -1,
            base_sequence=dice.choice([0, 0, 1, 3]) if identified else -1,
            batch_size=1 << 20,
        )
        for offset in range(dice.choice([1, 1, 3, 20])):
            key = dice.choice([b"a", b"b", None])
            builder.append(offset, _THEN, key, dice.randbytes(dice.randrange(200)), [])
        batch = bytes(builder.build())
        return batch * dice.choice([1, 1, 1, 1, 2])


def _singular(name: str) -> str:
    return name.removesuffix("s") if name.endswith("s") else name


@functools.cache
def _bombs() -> list[bytes]:
    """Batches of a few kilobytes whose records would be a quarter of a gigabyte when decompressed."""
    zeros = bytes(_BOMB_SIZE)
    packed = {4: bytes(cramjam.zstd.compress(zeros)), 1: bytes(cramjam.gzip.compress(zeros, 9))}
    return [_sealed(codec, records) for codec, records in packed.items()]


def _sealed(codec: int, records: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1000)
    builder.append(0, _THEN, b"k", b"v", [])
    batch = bytearray(bytes(builder.build())[:61] + records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)
