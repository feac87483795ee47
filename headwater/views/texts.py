"""Arrow columns as JSON texts, a column at a time. Pure.

The texts are canonical: equal values of one type have equal texts, so that a key's text identifies it.
Times are written with all six digits and so sort as text, as long as their years have four digits.
"""

import base64
from collections.abc import Mapping

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

_NULL = "null"


def json_objects(columns: Mapping[str, pa.Array]) -> pa.Array:
    """One JSON object a row.

    >>> json_objects({"word": pa.array(["a", None]), "n": pa.array([1, 2])}).to_pylist()
    ['{"word":"a","n":1}', '{"word":null,"n":2}']
    """
    return joined_objects({name: json_texts(values) for name, values in columns.items()})


def joined_objects(columns: Mapping[str, pa.Array]) -> pa.Array:
    """As ``json_objects``, of values that are JSON texts already."""
    parts: list[pa.Array | str] = []
    for name, texts in columns.items():
        parts += ["," if parts else "{", orjson.dumps(name).decode() + ":", texts]
    return pc.binary_join_element_wise(*_merged([*parts, "}"]), "")


def _merged(parts: list[pa.Array | str]) -> list[pa.Array | str]:
    """Neighbouring constants as one, since joining costs a pass for each part."""
    merged: list[pa.Array | str] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def json_texts(values: pa.Array) -> pa.Array:
    """Each value as JSON; a null is ``null``.

    >>> json_texts(pa.array([{"a": [1, None]}, None])).to_pylist()
    ['{"a":[1,null]}', 'null']
    """
    kind = values.type
    if pa.types.is_null(kind):
        return pa.array([_NULL] * len(values), pa.string())
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            texts = pa.array(["{}"] * len(values), pa.string())
        else:
            texts = json_objects({kind.field(at).name: values.field(at) for at in range(kind.num_fields)})
    elif pa.types.is_map(kind):
        texts = _map_texts(values)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        texts = _listed(values, json_texts(values.flatten()), "[", "]")
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = _quoted(valid_strings(values))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = _wrapped(plain_texts(values))
    elif pa.types.is_floating(kind):
        texts = _float_texts(values)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        texts = _wrapped(plain_texts(values))
    else:
        texts = plain_texts(values)
    if values.null_count:
        texts = pc.if_else(pc.is_null(values), _NULL, texts)
    return texts


def plain_texts(values: pa.Array) -> pa.Array:
    """The text of each number, time, decimal or binary value, without quotes; a null stays one.

    >>> import datetime
    >>> plain_texts(pa.array([datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)])).to_pylist()
    ['2026-01-02T00:00:00.000000Z']
    """
    kind = values.type
    if pa.types.is_timestamp(kind):
        # Without its zone, since Arrow looks that up for each value.
        texts = values.cast(pa.timestamp("us", "UTC" if kind.tz else None)).cast(pa.timestamp("us"))
        texts = pc.replace_substring(texts.cast(pa.string()), " ", "T")
        return pc.binary_join_element_wise(texts, "Z", "") if kind.tz else texts
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        encoded = [None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
        return pa.array(encoded, pa.string())
    return values.cast(pa.string())


def valid_strings(values: pa.Array) -> pa.Array:
    """The strings, with U+FFFD in place of bytes that are no UTF-8 (Spark casts binary without a look)."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raw = values.cast(pa.binary()).to_pylist()
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in raw], pa.string())
    return values


def _wrapped(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _quoted(values: pa.Array) -> pa.Array:
    quoted = _wrapped(values)
    special = pc.match_substring_regex(values, r'["\\\x00-\x1f]')
    if not pc.any(special).as_py():
        return quoted
    escaped = [orjson.dumps(value).decode() for value in values.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special.fill_null(False), pa.array(escaped, quoted.type))


def _float_texts(values: pa.Array) -> pa.Array:
    # 0.0 and -0.0 are equal, so their texts must be.
    texts = pc.add(values, pa.scalar(0.0, values.type)).cast(pa.string())
    texts = pc.if_else(
        pc.match_substring_regex(texts, r"^-?[0-9]+$"), pc.binary_join_element_wise(texts, ".0", ""), texts
    )
    finite = pc.is_finite(values)
    if not pc.all(finite).as_py():
        positive = pc.greater(values, pa.scalar(0.0, values.type))
        infinite = pc.if_else(positive, '"Infinity"', '"-Infinity"')
        odd = pc.if_else(pc.is_nan(values), '"NaN"', infinite)
        texts = pc.if_else(finite, texts, odd)
    return texts


def _map_texts(values: pa.Array) -> pa.Array:
    present = values.filter(pc.is_valid(values)) if values.null_count else values
    begin, end = (present.offsets[0].as_py(), present.offsets[-1].as_py()) if len(present) else (0, 0)
    names = json_texts(present.keys[begin:end])
    # JSON has only strings for keys: a number or a struct is quoted, as Spark writes it.
    bare = pc.invert(pc.starts_with(names, '"'))
    if pc.any(bare).as_py():
        names = pc.if_else(bare, _quoted(names), names)
    entries = pc.binary_join_element_wise(names, json_texts(present.items[begin:end]), ":")
    return _listed(values, entries, "{", "}")


def _listed(values: pa.Array, texts: pa.Array, opening: str, closing: str) -> pa.Array:
    """The elements' texts joined again by the lists they came from; a null list gives an empty one."""
    if pa.types.is_map(values.type):
        ends = np.diff(values.offsets.to_numpy())
        lengths = np.where(values.is_valid().to_numpy(zero_copy_only=False), ends, 0)
    else:
        lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts.cast(pa.string())), ",")
    return pc.binary_join_element_wise(opening, joined, closing, "")
