"""Numbers that JSON does not have."""

import math
from typing import Any


def finite(value: float) -> float | str:
    """The number, or its name, by which Spark's JSON knows it; orjson would write null.

    >>> finite(0.5), finite(-math.inf), finite(math.nan)
    (0.5, '-Infinity', 'NaN')
    """
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def all_finite(value: Any) -> Any:
    """The same for all numbers within a value.

    >>> all_finite({"x": [1.5, math.inf], "n": 1})
    {'x': [1.5, 'Infinity'], 'n': 1}
    """
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {name: all_finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [all_finite(entry) for entry in value]
    return value
