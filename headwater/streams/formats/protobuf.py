"""Protobuf values, by a generated class or by a descriptor set and a message's name."""

import base64
import importlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Format
from headwater.streams.formats.numbers import finite

_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT64: "bigint",
    FieldDescriptor.TYPE_UINT64: "decimal(20,0)",
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_FIXED64: "decimal(20,0)",
    FieldDescriptor.TYPE_FIXED32: "bigint",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "binary",
    FieldDescriptor.TYPE_UINT32: "bigint",
    FieldDescriptor.TYPE_ENUM: "string",
    FieldDescriptor.TYPE_SFIXED32: "int",
    FieldDescriptor.TYPE_SFIXED64: "bigint",
    FieldDescriptor.TYPE_SINT32: "int",
    FieldDescriptor.TYPE_SINT64: "bigint",
}
_TIMESTAMP = "google.protobuf.Timestamp"
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


def protobuf(
    message: type[Message] | str, *, descriptors: str | Path | None = None, registry: bool = False
) -> Format:
    """Values in Protobuf.

    `message` is a generated class, or its address ``package.module:Class``, or, with `descriptors` (a file made
    by ``protoc --descriptor_set_out=FILE --include_imports``), the message's full name. `registry` says that
    values begin with the registry's header (number of the schema, and place of the message in it), which is
    passed over.
    """
    if not isinstance(message, str):
        message = f"{message.__module__}:{message.__name__}"
    held = base64.b64encode(Path(descriptors).read_bytes()).decode() if descriptors is not None else None
    return Format("protobuf", (("message", message), ("descriptors", held), ("registry", registry)))


def ddl(format: Format) -> str:
    """The columns of a message."""
    descriptor = _class(format.option("message"), format.option("descriptors")).DESCRIPTOR
    return ", ".join(f"`{field.name}` {_type(field, ())}" for field in descriptor.fields)


def _type(field: FieldDescriptor, path: tuple[str, ...]) -> str:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (message.fields_by_name[name] for name in ("key", "value"))
        return f"map<string,{_type(value, path)}>" if key else ""
    if message is None:
        kind = _TYPES[field.type]
    elif message.full_name == _TIMESTAMP:
        kind = "timestamp"
    else:
        kind = _struct(message, path)
    return f"array<{kind}>" if field.is_repeated else kind


def _struct(message: Descriptor, path: tuple[str, ...]) -> str:
    if message.full_name in path:
        raise ApplicationInvalid(
            "read",
            f"the message {message.full_name}",
            "it contains itself, which a column cannot",
            "Read the stream with format='raw' and take what you need out of the value.",
        )
    path = (*path, message.full_name)
    return f"struct<{','.join(f'`{field.name}`:{_type(field, path)}' for field in message.fields)}>"


def decode(value: bytes, message: str, descriptors: str | None, registry: bool) -> Any:
    """One value; ValueError says what is wrong with it."""
    instance = _class(message, descriptors)()
    try:
        instance.ParseFromString(_without_header(value) if registry else value)
    except DecodeError as error:
        raise ValueError(f"it is not a {message}: {error}") from error
    return _plain(instance)


def _plain(message: Message) -> Any:
    """A message as JSON has it for our columns.

    (Protobuf's own JSON has texts for numbers of 64 bits, and forms of its own for some messages of Google's,
    which are no columns.) A field without a value has its default, as readers of the format see it, or is left
    out where the message can tell that it is missing.
    """
    if message.DESCRIPTOR.full_name == _TIMESTAMP:
        try:
            return _FIRST + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
        except OverflowError as error:
            raise ValueError(f"its time of {message.seconds} seconds is out of range") from error
    return {
        field.name: _field(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {_key(key): _single(inner, entry) for key, entry in value.items()}
    if field.is_repeated:
        return [_single(field, entry) for entry in value]
    return _single(field, value)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _single(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return finite(value) if isinstance(value, float) else value


def _without_header(value: bytes) -> bytes:
    """Behind the five bytes comes a list of places: its length, then so many numbers, all as zigzag varints."""
    if len(value) < 6 or value[0] != 0:
        raise ValueError("it does not begin with the number of a schema")
    count, position = _varint(value, 5)
    for _ in range(count):
        _, position = _varint(value, position)
    return value[position:]


def _varint(value: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(value):
            raise ValueError("it ends within its header")
        byte = value[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), position


@lru_cache(maxsize=64)
def _class(message: str, descriptors: str | None) -> type[Message]:
    if descriptors is None:
        module, _, name = message.partition(":")
        try:
            found: type[Message] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise _invalid(message, str(error)) from error
        return found
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(descriptors))
    for file in files.file:
        pool.Add(file)
    try:
        made: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
        return made
    except KeyError:
        raise _invalid(message, "it is not in the descriptors") from None


def _invalid(message: str, cause: str) -> ApplicationInvalid:
    return ApplicationInvalid(
        "read",
        f"the Protobuf message {message}",
        cause,
        "Give a generated class, 'module:Class', or the full name of a message in `descriptors`.",
    )
