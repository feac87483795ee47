"""Protobuf values, by a generated class or by a descriptor set and a message's name."""

import base64
import importlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Format

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
    # Fields without a value get their defaults, as readers of the format see them.
    return json_format.MessageToDict(
        instance, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


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
