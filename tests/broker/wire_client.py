"""A Kafka client of bare requests: any API, any version, nothing retried, nothing interpreted.

Requests are nested dictionaries with the field names of kio; what is left out takes the protocol's zero.
Responses come back as nested dictionaries, durations and moments in milliseconds, errors by their names::

    with WireClient(server.port) as client:
        answer = client.call("init_producer_id", 4, transactional_id="orders", transaction_timeout=60_000)
        assert answer["error_code"] == "none"
"""

import contextlib
import dataclasses
import datetime
import io
import itertools
import socket
import struct
import types
import typing
import uuid
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_writer

HOST = "127.0.0.1"
API_KEYS = {name: key for key, name in api_key_map.items()}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Answer = dict[str, Any]


class Closed(ConnectionError):
    """The server ended the connection instead of answering."""


class WireClient:
    """One connection to a broker."""

    def __init__(
        self, port: int, host: str = HOST, client_id: str | None = "wire", timeout: float = 30
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, api: str, version: int, /, **fields: Any) -> Answer:
        """Send a request and return its answer."""
        self.send(api, version, **fields)
        return self.receive(api, version)

    def send(self, api: str, version: int, /, **fields: Any) -> int:
        """Send a request; returns its correlation id."""
        number = next(self._numbers)
        self.send_frame(encode_request(api, version, number, self._client_id, fields))
        return number

    def send_frame(self, content: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(content)) + content)

    def send_bytes(self, content: bytes) -> None:
        try:
            self._socket.sendall(content)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed(str(error)) from None

    def receive(self, api: str, version: int) -> Answer:
        """The next answer, which must be one of that API and version."""
        return decode_response(api, version, self.receive_frame())

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def is_closed_by_peer(self, timeout: float = 5) -> bool:
        """Whether the server ends the connection within the time, without another byte."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            try:
                piece = self._socket.recv(min(size - len(content), 1 << 20))
            except ConnectionResetError as error:
                raise Closed(str(error)) from None
            if not piece:
                raise Closed("the server closed the connection")
            content += piece
        return bytes(content)


@contextlib.contextmanager
def connected(port: int, count: int = 1) -> Iterator[list[WireClient]]:
    """Several connections at once."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(WireClient(port)) for _ in range(count)]


# -- requests ------------------------------------------------------------------------------------------


def encode_request(
    api: str, version: int, correlation_id: int, client_id: str | None, fields: Mapping[str, Any]
) -> bytes:
    """A request with its header, without the length in front of it."""
    body_type = load_request_schema(API_KEYS[api], version)
    header_type = body_type.__header_schema__
    header = {
        "request_api_key": API_KEYS[api],
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    buffer = io.BytesIO()
    entity_writer(header_type)(buffer, build(header_type, header))
    entity_writer(body_type)(buffer, build(body_type, fields))
    return buffer.getvalue()


def build(entity: type[Any], fields: Mapping[str, Any]) -> Any:
    """An entity of kio from plain values; a name it does not have is a mistake."""
    hints = typing.get_type_hints(entity)
    unknown = set(fields) - set(hints)
    if unknown:
        raise TypeError(f"{entity.__module__} has no {', '.join(sorted(unknown))}")
    values = {}
    for field in dataclasses.fields(entity):
        if field.name in fields:
            values[field.name] = _value(hints[field.name], fields[field.name])
        elif field.default is dataclasses.MISSING:
            values[field.name] = _zero(hints[field.name])
    return entity(**values)


def _strip(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        choices = [choice for choice in typing.get_args(hint) if choice is not types.NoneType]
        return choices[0], len(choices) < len(typing.get_args(hint))
    return hint, False


def _value(hint: Any, value: Any) -> Any:
    hint, _ = _strip(hint)
    if value is None:
        return None
    if typing.get_origin(hint) is tuple:
        element = typing.get_args(hint)[0]
        return tuple(_value(element, item) for item in value)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast("type[Any]", hint), value)
    if isinstance(hint, type):
        if issubclass(hint, datetime.timedelta):
            return datetime.timedelta(milliseconds=value)
        if issubclass(hint, datetime.datetime):
            return EPOCH + datetime.timedelta(milliseconds=value)
        if issubclass(hint, ErrorCode):
            return ErrorCode(value)
    return value


def _zero(hint: Any) -> Any:
    hint, optional = _strip(hint)
    if optional:
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if dataclasses.is_dataclass(hint):
        return build(typing.cast("type[Any]", hint), {})
    if issubclass(hint, datetime.timedelta):
        return datetime.timedelta(0)
    if issubclass(hint, uuid.UUID):
        return None
    for kind, zero in ((str, ""), (bool, False), (int, 0), (bytes, b""), (float, 0.0)):
        if issubclass(hint, kind):
            return zero
    raise TypeError(f"no zero is known for {hint!r}")


# -- responses -----------------------------------------------------------------------------------------


def decode_response(api: str, version: int, frame: bytes) -> Answer:
    """A response as nested dictionaries; bytes left over are a mistake of the server.

    Not by kio's reader, which refuses values that Kafka does send, such as a time of -1.
    """
    body_type = load_response_schema(API_KEYS[api], version)
    reader = _Reader(frame)
    reader.entity(body_type.__header_schema__)
    answer = reader.entity(body_type)
    if reader.position != len(frame):
        raise AssertionError(f"{len(frame) - reader.position} bytes follow the {api} response v{version}")
    return answer


_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "error_code": "h",
}


class _Reader:
    """Reads entities by their schemas."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.position = 0

    def entity(self, kind: Any) -> Answer:
        flexible = kind.__flexible__
        hints = typing.get_type_hints(kind)
        answer: Answer = {}
        tagged: dict[int, Any] = {}
        for field in dataclasses.fields(kind):
            tag = field.metadata.get("tag")
            if tag is None:
                answer[field.name] = self._field(field, hints[field.name], flexible)
            else:
                tagged[tag] = field
        if flexible:
            self._tagged_fields(tagged, hints, answer)
        return answer

    def _tagged_fields(self, tagged: dict[int, Any], hints: dict[str, Any], answer: Answer) -> None:
        for field in tagged.values():
            answer[field.name] = "(absent)"
        for _ in range(self._uvarint()):
            tag, size = self._uvarint(), self._uvarint()
            end = self.position + size
            if tag in tagged:
                field = tagged[tag]
                answer[field.name] = self._field(field, hints[field.name], True)
                assert self.position == end, f"the tagged field {field.name} is not {size} bytes long"
            self.position = end

    def _field(self, field: Any, hint: Any, flexible: bool) -> Any:
        hint, optional = _strip(hint)
        if typing.get_origin(hint) is not tuple:
            return self._one(field, hint, optional, flexible)
        element = typing.get_args(hint)[0]
        count = self._uvarint() - 1 if flexible else self._number("i")
        if count < 0:
            return None
        return [self._one(field, element, False, flexible) for _ in range(count)]

    def _one(self, field: Any, hint: Any, optional: bool, flexible: bool) -> Any:
        if dataclasses.is_dataclass(hint):
            if optional and self._number("b") < 0:
                return None
            return self.entity(hint)
        kind = field.metadata["kafka_type"]
        if kind in _FORMATS:
            value = self._number(_FORMATS[kind])
            return ErrorCode(value).name if kind == "error_code" else value
        if kind == "uuid":
            return uuid.UUID(bytes=self._bytes(16))
        if kind == "string":
            size = self._uvarint() - 1 if flexible else self._number("h")
            return None if size < 0 else self._bytes(size).decode()
        size = self._uvarint() - 1 if flexible else self._number("i")
        return None if size < 0 else self._bytes(size)

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from(">" + form, self.frame, self.position)
        self.position += struct.calcsize(form)
        return value

    def _bytes(self, size: int) -> bytes:
        assert self.position + size <= len(self.frame), "the response is cut short"
        self.position += size
        return self.frame[self.position - size : self.position]

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.frame[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
