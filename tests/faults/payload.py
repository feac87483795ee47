"""Records whose content follows from who sent them and as what: a reader can tell a wrong byte."""

import struct
import zlib

_HEAD = struct.Struct(">HQI")  # sender, sequence, CRC-32 of the filling
_FILLING = bytes(range(256)) * 257


def payload(sender: int, sequence: int, largest: int) -> bytes:
    """The value of ``sender``'s record number ``sequence``: of varying size, up to about ``largest`` bytes.

    >>> sender_and_sequence(payload(3, 41, 200))
    (3, 41)
    """
    size = (sequence * 7919 + sender * 104_729) % max(1, largest)
    start = sequence % 256
    filling = _FILLING[start : start + size]
    return _HEAD.pack(sender, sequence, zlib.crc32(filling)) + filling


def sender_and_sequence(value: bytes) -> tuple[int, int]:
    """Who sent this value and as what number; ValueError when it is not as it was sent.

    >>> sender_and_sequence(payload(3, 41, 200)[:-1])
    Traceback (most recent call last):
    ...
    ValueError: record 41 of sender 3 was changed
    """
    if len(value) < _HEAD.size:
        raise ValueError(f"{len(value)} bytes are no record of this test")
    sender, sequence, checksum = _HEAD.unpack_from(value)
    if zlib.crc32(value[_HEAD.size :]) != checksum:
        raise ValueError(f"record {sequence} of sender {sender} was changed")
    return sender, sequence
