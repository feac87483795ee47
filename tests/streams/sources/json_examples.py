"""Random JSON values for a schema, most of them right, some of them wrong in one place."""

import json
import random
from typing import Any

SCHEMA = """
    flag boolean, tiny byte, small short, number int, big long, real float, wide double, name string,
    at timestamp, day date, tags array<string>, counts array<int>, price decimal(10,2), raw binary,
    place struct<city: string, seen: timestamp, deep: struct<n: long>>,
    visits array<struct<page: string, ms: long>>, scores map<string,double>
"""
QUICK_SCHEMA = """
    flag boolean, tiny byte, small short, number int, big long, real float, wide double, name string,
    at timestamp, day date, tags array<string>, counts array<int>,
    place struct<city: string, seen: timestamp, deep: struct<n: long>>,
    visits array<struct<page: string, ms: long>>
"""

_TEXTS = [
    "",
    "a",
    "ä€😀",
    'quo"te',
    "back\\slash",
    "tab\t",
    "line\nbreak",
    "\u0001",
    "</x>",
    "null",
    "12",
    "{}",
]
_TIMES = [
    "2026-11-16T11:31:17Z", "2026-11-16T11:31:17.123Z", "2026-11-16 11:31:17", "2026-11-16T11:31:17.123456",
    "2026-11-16T11:31:17.123456789Z", "2026-11-16T11:31:17+01:00", "2026-11-16T11:31:17-0530", "2026-11-16",
    "2026-1-6 1:2:3", "2026-11", "2026", "2026-11-16T11", "2026-11-16T11:31", "1969-12-31T23:59:59.999Z",
    "2026-11-16T11:31:17 Europe/Paris", "2026-03-29T02:30:00", "2026-10-25T02:30:00",
    "  2026-11-16 11:31:17  ",
    "2026-11-16T11:31:17UTC", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z",
]  # fmt: skip
_NO_TIMES = [
    "yesterday", "2026-13-01", "2026-11-16T25:00:00", "2026-11-16T11:31Z", "2026/11/16", "", "20261116",
    "2026-11-16T", "2026-11-16T11:31:17+19:00", "2026-11-16T11:31:17 Mars/Crater", "16.11.2026",
]  # fmt: skip
_DAYS = ["2026-11-16", "2026-1-6", "2026-11", "2026", "2026-11-16T11:00:00", "1969-12-31", "2026-11-16 x"]
_NO_DAYS = ["tomorrow", "2026-02-30", "", "11/16/2026", "2026-11-16x"]


def values(count: int, seed: int, *, wrong: float = 0.3) -> list[bytes | None]:
    """So many values; the part ``wrong`` of them has something odd, which Spark may take or not."""
    chance = random.Random(seed)
    return [_value(chance, chance.random() < wrong) for _ in range(count)]


def plain_values(count: int, seed: int, at: str) -> list[bytes]:
    """Values that fit exactly, with timestamps of one form, as most topics hold them."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        fields = {name: make(chance) for name, make in _RIGHT.items() if chance.random() < 0.9}
        if "at" in fields:
            fields["at"] = chance.choice([at, None])
        if isinstance(fields.get("place"), dict):
            fields["place"]["seen"] = at
        made.append(_written(chance, fields))
    return made


def _value(chance: random.Random, odd: bool) -> bytes | None:
    fields = {name: make(chance) for name, make in _RIGHT.items() if chance.random() < 0.8}
    if not odd:
        return _written(chance, fields)
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice(
            [None, b"", b" ", b"null", b"[]", b"[{}]", b"3", b'"x"', b"{", b"}", b"nul", b"tru"]
        )
    text = _written(chance, fields)
    if kind == 1:
        return text[: chance.randrange(len(text))]
    if kind == 2:
        place = chance.randrange(len(text))
        return (
            text[:place]
            + chance.choice([b"x", b",", b'"', b"{", b"}", b"]", b":", b"1", b"\n"])
            + text[place:]
        )
    if kind == 3:
        return text + chance.choice([b" ", b"\n", b"x", b"{}", b'{"big":7}', b"]"])
    for _ in range(chance.choice([1, 1, 1, 2])):
        fields[chance.choice(list(_RIGHT))] = chance.choice(_ODD)(chance)
    return _written(chance, fields)


def _written(chance: random.Random, fields: dict[str, Any]) -> bytes:
    names = list(fields)
    chance.shuffle(names)
    spaces = chance.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")])
    text = json.dumps(
        {name: fields[name] for name in names}, separators=spaces, ensure_ascii=chance.random() < 0.5
    )
    return text.encode("utf-8", "surrogatepass")


def _text(chance: random.Random) -> str:
    return "".join(chance.choices(_TEXTS, k=chance.randrange(3)))


def _integer(bits: int) -> Any:
    bound = 2 ** (bits - 1)
    return lambda chance: chance.choice([0, 1, -1, 7, bound - 1, -bound, chance.randrange(-bound, bound)])


def _double(chance: random.Random) -> float:
    return chance.choice([0.0, 1.5, -2.25, 1e300, 5e-324, 0.1, chance.random(), chance.gauss(0, 1e9), 3])


def _visit(chance: random.Random) -> Any:
    return {"page": _text(chance), "ms": chance.randrange(1000), "extra": None}


_RIGHT: dict[str, Any] = {
    "flag": lambda chance: chance.random() < 0.5,
    "tiny": _integer(8),
    "small": _integer(16),
    "number": _integer(32),
    "big": _integer(64),
    "real": lambda chance: chance.choice([0.5, -1.25, 3, 1e10, 0.1]),
    "wide": _double,
    "name": _text,
    "at": lambda chance: chance.choice(_TIMES[:4]),
    "day": lambda chance: chance.choice(_DAYS[:1]),
    "tags": lambda chance: [chance.choice([None, _text(chance)]) for _ in range(chance.randrange(3))],
    "counts": lambda chance: [chance.randrange(100) for _ in range(chance.randrange(3))],
    "price": lambda chance: chance.choice([1, 2.5, 19.99, "7.25", 0, -3.1]),
    "raw": lambda chance: chance.choice(["aGk=", "", "AAECAw=="]),
    "place": lambda chance: {
        "city": _text(chance),
        "seen": _TIMES[0],
        "deep": {"n": 5, "m": [1]},
        "other": {},
    },
    "visits": lambda chance: [_visit(chance) for _ in range(chance.randrange(3))],
    "scores": lambda chance: {_text(chance): chance.random() for _ in range(chance.randrange(3))},
    "unknown": lambda chance: chance.choice([1, "x", [1, {"a": None}], {"b": 2.5}]),
}
_ODD = [
    lambda chance: None,
    lambda chance: True,
    lambda chance: chance.choice([300, 200, -129, 2**31, 2**63, -(2**63) - 1, 10**25, 5]),
    lambda chance: chance.choice(
        [1.0, 1e3, 12.50, 1e16, 1e-5, float("nan"), float("inf"), -float("inf"), 1e400]
    ),
    lambda chance: chance.choice(_TEXTS),
    lambda chance: chance.choice(_TIMES),
    lambda chance: chance.choice(_NO_TIMES),
    lambda chance: chance.choice(_DAYS + _NO_DAYS),
    lambda chance: chance.choice(["NaN", "Infinity", "-INF", "1.5", "1,000.5", "1e2", "true"]),
    lambda chance: chance.choice([[], [1], ["a", 2], [[1]], [{}], [None]]),
    lambda chance: chance.choice([{}, {"a": 1}, {"city": 5}, {"deep": {"n": "x"}}, {"b": [1.50, "\u0001ä"]}]),
    lambda chance: "\ud800",
]
