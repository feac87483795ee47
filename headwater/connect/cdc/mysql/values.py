"""Values as Debezium has them in JSON, from the bytes of the binary log and of result sets. Pure.

They are as Debezium encodes them, with nothing lost; dates and times are in temporal.py. Functions take bytes and
give JSON as bytes.
"""

import struct
import zlib
from binascii import b2a_base64
from collections.abc import Callable
from typing import Any

import orjson

from headwater.connect.cdc.envelope import NULL
from headwater.connect.cdc.mysql.charsets import decoded

_REMEMBERED = 20_000  # values of one column; then it begins anew


class Memo(dict[Any, bytes]):
    """Conversions that cost more than a look: each value is converted when first seen."""

    def __init__(self, convert: Callable[[Any], bytes]) -> None:
        super().__init__()
        self._convert = convert

    def __missing__(self, value: Any) -> bytes:
        if len(self) >= _REMEMBERED:
            self.clear()
        made = self[value] = self._convert(value)
        return made


def quoted(text: str) -> bytes:
    """A JSON string."""
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:  # half of a surrogate pair, which UTF-8 cannot have
        return orjson.dumps(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def base64(raw: bytes) -> bytes:
    """Bytes as Connect's JSON has them."""
    return b'"%b"' % b2a_base64(raw, newline=False)


def text_decoder(charset: str | None, codec: str) -> Callable[[bytes], bytes]:
    """From bytes in a character set to a JSON string."""
    if codec == "utf-8":

        def from_utf8(raw: bytes) -> bytes:
            return quoted(raw.decode("utf-8", "replace"))

        return from_utf8
    if charset == "latin1":  # the five bytes that cp1252 leaves open are control characters in MySQL
        holes = {n: chr(n) for n in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
        table = "".join(holes.get(n) or bytes([n]).decode("cp1252") for n in range(256))

        def from_latin1(raw: bytes) -> bytes:
            if raw.isascii():
                return quoted(raw.decode("ascii"))
            return quoted("".join([table[n] for n in raw]))

        return from_latin1

    def from_other(raw: bytes) -> bytes:
        return quoted(decoded(raw, charset, codec))

    return from_other


# -- numbers ---------------------------------------------------------------------------------------


def unscaled(number: int) -> bytes:
    """A big integer as Java writes it: two's complement, big-endian, as short as can be, in base64."""
    size = (number if number >= 0 else number + 1).bit_length() // 8 + 1
    return base64(number.to_bytes(size, "big", signed=True))


_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # of 0 to 9 decimal digits


def decimal_size(precision: int, scale: int) -> int:
    """How many bytes a DECIMAL takes in a row."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def decimal_number(raw: bytes, precision: int, scale: int) -> int:
    """DECIMAL in a row, without its point: groups of nine digits in four bytes, big-endian; the first bit is set when
    not negative, all bits are turned when negative. An odd group is the first of the whole, the last of the fraction.
    """
    whole = precision - scale
    digits = [whole % 9] * (whole % 9 > 0) + [9] * (whole // 9 + scale // 9) + [scale % 9] * (scale % 9 > 0)
    negative = not raw[0] & 0x80
    bits = int.from_bytes(raw, "big") ^ (1 << (len(raw) * 8 - 1))
    if negative:
        bits ^= (1 << len(raw) * 8) - 1
    plain, at, number = bits.to_bytes(len(raw), "big"), 0, 0
    for count in digits:
        size = _DIGIT_BYTES[count]
        number = number * 10**count + int.from_bytes(plain[at : at + size], "big")
        at += size
    return -number if negative else number


def decimal_decoder(precision: int, scale: int) -> Callable[[bytes], bytes]:
    """DECIMAL in a row; the same as `decimal_number`, with the groups laid out beforehand."""
    size, whole = decimal_size(precision, scale), precision - scale
    digits = [whole % 9] * (whole % 9 > 0) + [9] * (whole // 9 + scale // 9) + [scale % 9] * (scale % 9 > 0)
    sign, ones = 1 << (size * 8 - 1), (1 << size * 8) - 1
    groups, left = [], size * 8
    for count in digits:
        left -= _DIGIT_BYTES[count] * 8
        groups.append((10**count, left, (1 << _DIGIT_BYTES[count] * 8) - 1))

    def convert(raw: bytes) -> bytes:
        bits = int.from_bytes(raw, "big") ^ sign
        negative = bits & sign
        if negative:
            bits ^= ones
        number = 0
        for factor, shift, mask in groups:
            number = number * factor + (bits >> shift & mask)
        return unscaled(-number if negative else number)

    return convert


def decimal_text_decoder(scale: int) -> Callable[[bytes], bytes]:
    """DECIMAL in a result set, which always has as many digits as the scale says."""

    def convert(raw: bytes) -> bytes:
        whole, _, fraction = raw.partition(b".")
        return unscaled(int(whole + fraction.ljust(scale, b"0")))

    return convert


_FLOAT = struct.Struct("<f")


def float32(number: float) -> bytes:
    """The shortest text that is this number among those of four bytes.

    >>> float32(struct.unpack("<f", struct.pack("<f", 1.1))[0])
    b'1.1'
    """
    for digits in (6, 7, 8, 9):
        text = f"{number:.{digits}g}"
        if _FLOAT.unpack(_FLOAT.pack(float(text)))[0] == number:
            break
    return repr(float(text)).encode()


def float64(number: float) -> bytes:
    return repr(number).encode()


def float32_text(raw: bytes) -> bytes:
    return float32(float(raw))


def float64_text(raw: bytes) -> bytes:
    return repr(float(raw)).encode()


# -- bits, labels and the rest ---------------------------------------------------------------------


def bit_decoder(bits: int) -> Callable[[bytes], bytes]:
    """BIT(1) is a boolean, BIT(n) little-endian bytes; rows and result sets have it big-endian."""
    if bits == 1:
        return lambda raw: b"true" if raw and raw[-1] & 1 else b"false"
    size = (bits + 7) // 8
    return lambda raw: base64(raw.rjust(size, b"\0")[::-1])


def enum_values(labels: list[str]) -> list[bytes]:
    """By number; 0 is what MySQL stores for a value that was none of them."""
    return [b'""', *map(quoted, labels)]


def set_decoder(labels: list[str]) -> Callable[[bytes], bytes]:
    """SET: a bit for each label, little-endian."""

    def convert(raw: bytes) -> bytes:
        bits = int.from_bytes(raw, "little")
        return quoted(",".join(label for n, label in enumerate(labels) if bits >> n & 1))

    return convert


def padded_binary_decoder(size: int) -> Callable[[bytes], bytes]:
    """BINARY(size): rows leave out the zeros at the end."""
    return lambda raw: base64(raw.ljust(size, b"\0"))


def uuid_binary(raw: bytes) -> bytes:
    """UUID of MariaDB: sixteen bytes, with zeros at the end left out."""
    h = raw.ljust(16, b"\0").hex()
    return b'"%b"' % f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}".encode()


def inet4_binary(raw: bytes) -> bytes:
    return b'"%d.%d.%d.%d"' % tuple(raw.ljust(4, b"\0"))


def inet6_binary(raw: bytes) -> bytes:
    """INET6 as MariaDB prints it."""
    raw = raw.ljust(16, b"\0")
    if raw[:12] == bytes(10) + b"\xff\xff":
        return b'"::ffff:%d.%d.%d.%d"' % tuple(raw[12:])
    if raw[:12] == bytes(12) and any(raw[12:14]):  # an IPv4 address in IPv6's clothes
        return b'"::%d.%d.%d.%d"' % tuple(raw[12:])
    groups = [f"{raw[n] << 8 | raw[n + 1]:x}" for n in range(0, 16, 2)]
    best_start, best_size, start = 0, 0, 0
    while start < 8:
        size = 0
        while start + size < 8 and groups[start + size] == "0":
            size += 1
        if size > best_size:
            best_start, best_size = start, size
        start += size + 1
    if not best_size:
        return b'"%b"' % ":".join(groups).encode()
    text = ":".join(groups[:best_start]) + "::" + ":".join(groups[best_start + best_size :])
    return b'"%b"' % text.encode()


def geometry(raw: bytes) -> bytes:
    """A spatial value: four bytes of SRID, then well-known binary; a point has its coordinates beside."""
    srid, wkb = int.from_bytes(raw[:4], "little"), raw[4:]
    if not wkb:
        return NULL
    srid_text = b"%d" % srid if srid else NULL
    order = "<" if wkb[0] else ">"
    if len(wkb) == 21 and struct.unpack_from(order + "I", wkb, 1)[0] == 1:
        x, y = struct.unpack_from(order + "dd", wkb, 5)
        return b'{"x":%b,"y":%b,"wkb":%b,"srid":%b}' % (float64(x), float64(y), base64(wkb), srid_text)
    return b'{"wkb":%b,"srid":%b}' % (base64(wkb), srid_text)


def inflated(raw: bytes) -> bytes:
    """A value of a COMPRESSED column: a byte, then for compressed ones the length and deflate data.

    The byte is 0 before plain data, else 0x80 + 8 when without zlib's frame + the size of the length.
    """
    if not raw or not raw[0] & 0x80:
        return raw[1:]
    size = raw[0] & 0x07
    return zlib.decompress(raw[1 + size :], -15 if raw[0] & 0x08 else 15)
