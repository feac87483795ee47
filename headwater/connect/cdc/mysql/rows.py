"""Rows to JSON: for each shape of a table a function is written, compiled and used for all its rows. Pure.

A row of the log is a bitmap of NULLs and then the values that are not NULL, without anything between them; so a
decoder must know every column. A row of a result set is a value after the other, each with its length before it.

The function for most rows (no NULL in it) takes neighbouring columns of fixed size in one go and formats key and row
by one template each, with no object a column. That is what makes it several times faster than a loop over columns.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from headwater.connect.cdc.envelope import NULL
from headwater.connect.cdc.mysql.types import Piece

# Appends (key, row) for each row of the log between two places: the row as a JSON object, the key too, or None.
# Of a table with system versioning (key, row, whether the row is a current one).
RowsDecoder = Callable[[bytes, int, int, Callable[[tuple[Any, ...]], None]], None]
# The same for rows of a result set, each in a packet from one place to another.
ResultDecoder = Callable[[bytes, Sequence[tuple[int, int]], Callable[[tuple[Any, ...]], None]], None]


class RowPlan(NamedTuple):
    """What a decoder is to make of a row."""

    names: Sequence[str]  # of all columns
    pieces: Sequence[Piece]
    shown: Sequence[int]  # places of the columns that events have
    key: Sequence[int]  # places of the key's columns
    row_end: int | None = None  # the column of system versioning that says whether a row is current


# The greatest TIMESTAMP(6), before and since MariaDB 11.5, and the greatest transaction id.
FOREVER = (b"\x7f\xff\xff\xff\x0f\x42\x3f", b"\xff\xff\xff\xff\x0f\x42\x3f", (1 << 64) - 1)


def _template(names: Sequence[str], formats: Sequence[str]) -> bytes:
    pairs = [
        b"%b:%b" % (orjson.dumps(name).replace(b"%", b"%%"), form.encode())
        for name, form in zip(names, formats, strict=True)
    ]
    return b"{%b}" % b",".join(pairs)


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)},)"


def compile_log_rows(
    plan: RowPlan, present: Sequence[int] | None = None, single: bool = False
) -> RowsDecoder:
    """A decoder of rows in the log. `present` are the columns of an image that has not all; others are null.

    With `single` it decodes one row and returns where it ends: for updates whose two images differ in columns.
    """
    columns = list(range(len(plan.pieces))) if present is None else list(present)
    scope: dict[str, Any] = {
        "from_bytes": int.from_bytes,
        "dumps": orjson.dumps,
        "NULL": NULL,
        "FOREVER": FOREVER,
    }
    for place in columns:
        scope[f"f{place}"] = plan.pieces[place].function
    bitmap = (len(columns) + 7) // 8
    no_nulls = bytearray(bitmap)
    for bit in range(len(columns), bitmap * 8):
        no_nulls[bit // 8] |= 1 << bit % 8  # what is over in the last byte is set
    scope["NO_NULLS"] = bytes(no_nulls)
    lines = ["def decode(data, p, end, append):"]
    indent = " "
    if not single:
        lines.append(" while p < end:")
        indent = "  "
    lines.append(f"{indent}b = data[p:p + {bitmap}]; p += {bitmap}")
    lines.append(f"{indent}if b == NO_NULLS:")
    lines += [f"{indent} {line}" for line in _straight(plan, columns, scope)]
    lines.append(f"{indent}else:")
    lines.append(f"{indent} b = from_bytes(b, 'little')")
    lines += [f"{indent} {line}" for line in _with_nulls(plan, columns, scope)]
    if single:
        lines.append(" return p")
    exec("\n".join(lines), scope)  # of our own making: names are in templates, not in the code
    decoder: RowsDecoder = scope["decode"]
    return decoder


def _straight(plan: RowPlan, columns: Sequence[int], scope: dict[str, Any]) -> list[str]:
    """The lines for a row without NULLs."""
    lines: list[str] = []
    group: list[int] = []

    def take_group() -> None:
        if group:
            layout = struct.Struct("<" + "".join(plan.pieces[place].layout for place in group))
            name = f"u{group[0]}"
            scope[name] = layout.unpack_from
            targets = ", ".join(f"v{place}" for place in group)
            lines.append(f"{targets}, = {name}(data, p); p += {layout.size}")
            group.clear()

    for place in columns:
        piece = plan.pieces[place]
        if piece.layout:
            group.append(place)
        else:
            take_group()
            lines.append(_variable(piece, place))
    take_group()
    missing = set(range(len(plan.pieces))) - set(columns)
    values = {place: _value(plan.pieces[place], place) for place in columns}
    forms = {place: "%d" if plan.pieces[place].is_number else "%b" for place in columns}
    lines += _made(plan, values, forms, missing, "s", scope)
    return lines


def _with_nulls(plan: RowPlan, columns: Sequence[int], scope: dict[str, Any]) -> list[str]:
    """The lines for a row with NULLs."""
    lines = []
    for bit, place in enumerate(columns):
        piece = plan.pieces[place]
        lines.append(f"if b & {1 << bit}: w{place} = NULL" + (f"; v{place} = None" * (place == plan.row_end)))
        lines.append("else:")
        if piece.layout:
            layout = struct.Struct("<" + piece.layout)
            scope[f"o{place}"] = layout.unpack_from
            lines.append(f" v{place}, = o{place}(data, p); p += {layout.size}")
        else:
            lines.append(" " + _variable(piece, place))
        value = _value(piece, place)
        lines.append(f" w{place} = " + (f"b'%d' % {value}" if piece.is_number else value))
    missing = set(range(len(plan.pieces))) - set(columns)
    lines += _made(plan, {p: f"w{p}" for p in columns}, dict.fromkeys(columns, "%b"), missing, "n", scope)
    return lines


def _variable(piece: Piece, place: int) -> str:
    if piece.prefix == 1:
        return f"q = p + 1 + data[p]; v{place} = data[p + 1:q]; p = q"
    if piece.prefix == 2:
        return f"q = p + 2 + data[p] + (data[p + 1] << 8); v{place} = data[p + 2:q]; p = q"
    n = piece.prefix
    return f"q = p + {n} + from_bytes(data[p:p + {n}], 'little'); v{place} = data[p + {n}:q]; p = q"


def _value(piece: Piece, place: int) -> str:
    return piece.expression.format(v=f"v{place}", f=f"f{place}")


def _made(
    plan: RowPlan,
    values: dict[int, str],
    forms: dict[int, str],
    missing: set[int],
    suffix: str,
    scope: dict[str, Any],
) -> list[str]:
    """The lines that make key and row of the values, and append them."""
    values = values | dict.fromkeys(missing, "NULL")
    forms = forms | dict.fromkeys(missing, "%b")
    used = set(plan.key)
    lines = []
    for place in sorted(used):  # what is in key and row is made once
        if values[place] not in (f"v{place}", f"w{place}", "NULL"):
            lines.append(f"k{place} = {values[place]}")
            values[place] = f"k{place}"
    names = plan.names
    scope[f"ROW_{suffix}"] = _template([names[p] for p in plan.shown], [forms[p] for p in plan.shown])
    row = f"ROW_{suffix} % {_tuple([values[p] for p in plan.shown])}" if plan.shown else "b'{}'"
    key = "None"
    if plan.key:
        scope[f"KEY_{suffix}"] = _template([names[p] for p in plan.key], [forms[p] for p in plan.key])
        key = f"KEY_{suffix} % {_tuple([values[p] for p in plan.key])}"
    current = f", v{plan.row_end} in FOREVER" if plan.row_end is not None else ""
    lines.append(f"append(({key}, {row}{current}))")
    return lines


def compile_result_rows(plan: RowPlan) -> ResultDecoder:
    """A decoder of rows in a result set, texts with their lengths before them; 251 stands for NULL."""
    scope: dict[str, Any] = {"from_bytes": int.from_bytes, "dumps": orjson.dumps, "NULL": NULL}
    lines = ["def decode(data, spans, append):", " for p, _ in spans:"]
    for place, piece in enumerate(plan.pieces):
        scope[f"f{place}"] = piece.function
        value = _value(piece, place)
        lines += [
            "  n = data[p]",
            "  if n < 251:",
            f"   q = p + 1 + n; v{place} = data[p + 1:q]; p = q; w{place} = {value}",
            f"  elif n == 251: w{place} = NULL; p += 1",
            "  else:",
            "   s = 2 if n == 252 else 3 if n == 253 else 8; p += 1 + s",
            f"   q = p + from_bytes(data[p - s:p], 'little'); v{place} = data[p:q]; p = q; w{place} = {value}",
        ]
    columns = range(len(plan.pieces))
    made = _made(plan, {p: f"w{p}" for p in columns}, dict.fromkeys(columns, "%b"), set(), "r", scope)
    lines += [f"  {line}" for line in made]
    exec("\n".join(lines), scope)
    decoder: ResultDecoder = scope["decode"]
    return decoder
