"""Moments and days that nobody could read again, at whatever depth of a value: null in their place. Pure."""

import pyarrow as pa
import pyarrow.compute as pc

from headwater.views.types import FIRST_MICROS, LAST_MICROS

_DAY = 86_400_000_000


def with_known_years(values: pa.Array) -> pa.Array:
    """The values with null in place of times outside of the years 1 to 9999; the same array if there are none.

    Keys of maps stay as they are: a key cannot be null.

    >>> with_known_years(pa.array([0, 253_402_300_800_000_000, None], pa.timestamp("us"))).to_pylist()
    [datetime.datetime(1970, 1, 1, 0, 0), None, None]
    >>> lists = pa.array([[0], None, [1, 253_402_300_800_000_000]], pa.list_(pa.int64()))
    >>> with_known_years(lists.cast(pa.list_(pa.timestamp("us"))))[2][1].as_py() is None
    True
    """
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _known(values)
    if pa.types.is_struct(kind):
        fields = [values.field(number) for number in range(kind.num_fields)]
        known = [with_known_years(field) for field in fields]
        if all(new is old for new, old in zip(known, fields, strict=True)):
            return values
        return pa.StructArray.from_arrays(known, fields=list(kind), mask=values.is_null())
    if pa.types.is_list(kind):
        elements = values.values
        return values if with_known_years(elements) is elements else _with_known_elements(values)
    if pa.types.is_map(kind):
        items = values.items
        return values if with_known_years(items) is items else _with_known_items(values)
    return values


def _known(times: pa.Array) -> pa.Array:
    is_date = pa.types.is_date(times.type)
    numbers = times.view(pa.int32() if is_date else pa.int64())
    unit = _DAY if is_date else 1
    first, last = FIRST_MICROS // unit, LAST_MICROS // unit
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None or (ends["min"] >= first and ends["max"] <= last):
        return times
    known = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    return pc.if_else(known, times, None)


def _with_known_elements(values: pa.ListArray) -> pa.ListArray:
    whole = _unsliced(values)
    elements = with_known_years(whole.values)
    return pa.ListArray.from_arrays(whole.offsets, elements, type=values.type, mask=whole.is_null())


def _with_known_items(values: pa.MapArray) -> pa.MapArray:
    whole = _unsliced(values)
    items = with_known_years(whole.items)
    return pa.MapArray.from_arrays(whole.offsets, whole.keys, items, type=values.type, mask=whole.is_null())


def _unsliced(values: pa.Array) -> pa.Array:
    """The same in buffers of its own: only such an array is made anew of its offsets with a mask."""
    return values.take(pa.array(range(len(values)), pa.int64()))
