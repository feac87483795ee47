"""Ways to spoil a valid request. Each takes the bytes of a frame, without its length, and gives others.

Everything follows from the random generator: a seed repeats a run.
"""

import random
import struct
from collections.abc import Callable, Sequence

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]

_INTERESTING = [0, 1, -1, -2, 127, 128, 255, 256, 32767, -32768, 65535, 10**6, 2**31 - 1, -(2**31), 2**24]
_VARINTS = [
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1: a compact length of two gigabytes and more
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\xff" * 12,  # longer than any varint may be
    b"\x00",
    b"\x80\x00",
]
_LARGEST = 1 << 17


def flip_bits(dice: random.Random, frame: bytes, others: Sequence[bytes]) -> bytes:
    spoiled = bytearray(frame)
    for _ in range(dice.choice([1, 1, 1, 2, 4, 8])):
        spoiled[_place(dice, spoiled)] ^= 1 << dice.randrange(8)
    return bytes(spoiled)


def overwrite_bytes(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    spoiled = bytearray(frame)
    start = _place(dice, spoiled)
    piece = dice.choice([b"\x00", b"\xff", b"\x7f", b"\x80", dice.randbytes(1)]) * dice.randrange(1, 9)
    spoiled[start : start + len(piece)] = piece
    return bytes(spoiled)


def overwrite_integer(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    """Lengths, counts and ids are integers: put an awkward one where one may stand."""
    spoiled = bytearray(frame)
    size = dice.choice([2, 4, 4, 4, 8])
    start = _place(dice, spoiled)
    value = dice.choice(_INTERESTING) & ((1 << 8 * size) - 1)
    spoiled[start : start + size] = value.to_bytes(size, "big")
    return bytes(spoiled)


def overwrite_varint(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    start = _place(dice, frame)
    kept = start + dice.randrange(0, 3)
    return frame[:start] + dice.choice(_VARINTS) + frame[kept:]


def truncate(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    return frame[: dice.randrange(len(frame) + 1)]


def splice(dice: random.Random, frame: bytes, others: Sequence[bytes]) -> bytes:
    other = dice.choice(others)
    return frame[: dice.randrange(len(frame) + 1)] + other[dice.randrange(len(other) + 1) :]


def change_ids(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    """Another API or another version before the same body."""
    if len(frame) < 4:
        return frame
    key, version = struct.unpack_from(">hh", frame)
    if dice.random() < 0.5:
        key = dice.choice([dice.randrange(100), dice.randrange(-32768, 32768)])
    if dice.random() < 0.7:
        version = dice.choice([dice.randrange(20), -1, 32767, version + 1, max(0, version - 1)])
    return struct.pack(">hh", key, max(-32768, min(32767, version))) + frame[4:]


def insert(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    start = _place(dice, frame)
    return frame[:start] + dice.randbytes(dice.choice([1, 2, 4, 40])) + frame[start:]


def cut_out(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    start = _place(dice, frame)
    return frame[:start] + frame[start + dice.choice([1, 2, 4, 16]) :]


def repeat(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    """The same piece over and over: long arrays, deep nesting of nothing."""
    start = _place(dice, frame)
    piece = frame[start : start + dice.choice([1, 4, 20, 60])]
    times = min(dice.choice([2, 16, 300, 4000]), _LARGEST // max(1, len(piece)))
    return frame[:start] + piece * times + frame[start:]


def huge_array(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    """A count that is much too high, with something to fill it with."""
    start = _place(dice, frame)
    count = dice.choice([struct.pack(">i", 10**6), struct.pack(">i", 2**31 - 1), b"\xff\xff\xff\xff\x0f"])
    return frame[:start] + count + bytes(dice.choice([0, 100, _LARGEST]))


def append_garbage(dice: random.Random, frame: bytes, _: Sequence[bytes]) -> bytes:
    return frame + dice.randbytes(dice.choice([1, 10, 1000]))


def garbage(dice: random.Random, _: bytes, __: Sequence[bytes]) -> bytes:
    return dice.randbytes(dice.choice([0, 1, 7, 8, 30, 300]))


def leave(_: random.Random, frame: bytes, __: Sequence[bytes]) -> bytes:
    """Nothing: a well-formed request with odd values, or one that moves the state on for the others."""
    return frame


MUTATIONS: list[Mutation] = [
    flip_bits, flip_bits, flip_bits, overwrite_bytes, overwrite_integer, overwrite_integer, overwrite_varint,
    truncate, splice, change_ids, insert, cut_out, repeat, huge_array, append_garbage, garbage,
    leave, leave, leave, leave, leave, leave, leave, leave,
]  # fmt: skip


def mutate(dice: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A frame made from one of the seeds, spoiled once or twice.

    >>> mutate(random.Random(5), [bytes(40)]) == mutate(random.Random(5), [bytes(40)])
    True
    """
    frame = dice.choice(MUTATIONS)(dice, dice.choice(seeds), seeds)
    if dice.random() < 0.1 and frame:
        frame = dice.choice(MUTATIONS)(dice, frame, seeds)
    return frame


def _place(dice: random.Random, frame: bytes | bytearray) -> int:
    """Somewhere in the frame, mostly behind the header so that the request is at least found."""
    if len(frame) > 20 and dice.random() < 0.85:
        return dice.randrange(14, len(frame))
    return dice.randrange(max(1, len(frame)))
