"""Kafka's primitive types, as they stand in the keys and values of coordinator records.

Values of a *flexible* version write lengths as unsigned varints plus one and end each structure with tagged
fields; the others write fixed-size lengths. A reader skips tags that it does not know.
"""

import struct
import uuid
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class Malformed(ValueError):
    """A record that does not follow its format."""


class Writer:
    """Builds a key or a value.

    >>> Writer(flexible=True).i16(4).string("m").null_string(None).tags().done().hex()
    '0004026d0000'
    >>> Writer(flexible=False).i16(1).string("m").null_string(None).tags().done().hex()
    '000100016dffff'
    """

    __slots__ = ("_flexible", "_parts")

    def __init__(self, flexible: bool) -> None:
        self._flexible = flexible
        self._parts = bytearray()

    def done(self) -> bytes:
        return bytes(self._parts)

    def i8(self, value: int) -> "Writer":
        self._parts += _I8.pack(value)
        return self

    def i16(self, value: int) -> "Writer":
        self._parts += _I16.pack(value)
        return self

    def i32(self, value: int) -> "Writer":
        self._parts += _I32.pack(value)
        return self

    def i64(self, value: int) -> "Writer":
        self._parts += _I64.pack(value)
        return self

    def uuid(self, value: uuid.UUID) -> "Writer":
        self._parts += value.bytes
        return self

    def varint(self, value: int) -> "Writer":
        while value > 0x7F:
            self._parts.append(value & 0x7F | 0x80)
            value >>= 7
        self._parts.append(value)
        return self

    def string(self, value: str) -> "Writer":
        return self.null_string(value)

    def null_string(self, value: str | None) -> "Writer":
        data = None if value is None else value.encode()
        if self._flexible:
            self.varint(0 if data is None else len(data) + 1)
        else:
            self.i16(-1 if data is None else len(data))
        if data is not None:
            self._parts += data
        return self

    def data(self, value: bytes) -> "Writer":
        self.length(len(value))
        self._parts += value
        return self

    def length(self, count: int) -> "Writer":
        return self.varint(count + 1) if self._flexible else self.i32(count)

    def array(self, items: Iterable[T], write: Callable[["Writer", T], object]) -> "Writer":
        listed = list(items)
        self.length(len(listed))
        for item in listed:
            write(self, item)
        return self

    def tags(self, fields: Iterable[tuple[int, bytes]] = ()) -> "Writer":
        """The end of a structure: tagged fields, in rising order of their tags."""
        if self._flexible:
            listed = list(fields)
            self.varint(len(listed))
            for tag, data in listed:
                self.varint(tag).varint(len(data))
                self._parts += data
        return self


class Reader:
    """Takes a key or a value apart; raises ``Malformed`` when it ends too early.

    >>> reader = Reader(bytes.fromhex("000100016dffff"))
    >>> reader.i16(), reader.string(), reader.null_string()
    (1, 'm', None)
    """

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self.flexible = flexible

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise Malformed(f"{size} bytes are wanted at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def skip(self, size: int) -> None:
        self._take(size)

    def i8(self) -> int:
        return int(_I8.unpack(self._take(1))[0])

    def i16(self) -> int:
        return int(_I16.unpack(self._take(2))[0])

    def i32(self) -> int:
        return int(_I32.unpack(self._take(4))[0])

    def i64(self) -> int:
        return int(_I64.unpack(self._take(8))[0])

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._take(16))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise Malformed("a varint of more than five bytes")

    def string(self) -> str:
        value = self.null_string()
        if value is None:
            raise Malformed("null where a string must be")
        return value

    def null_string(self) -> str | None:
        size = self.varint() - 1 if self.flexible else self.i16()
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise Malformed(str(error)) from error

    def length(self) -> int:
        return self.varint() - 1 if self.flexible else self.i32()

    def data(self) -> bytes:
        return self._take(self.length())

    def array(self, read: Callable[["Reader"], T]) -> tuple[T, ...]:
        return tuple(read(self) for _ in range(max(self.length(), 0)))

    def tags(self) -> dict[int, bytes]:
        if not self.flexible:
            return {}
        tagged = {}
        for _ in range(self.varint()):
            tag = self.varint()
            tagged[tag] = self._take(self.varint())
        return tagged
