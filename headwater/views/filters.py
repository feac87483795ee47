"""Which rows of a view, and in which order. Plain data; a store turns it into SQL with bound values only.

Columns may be members of structs: ``window.start``. As in SQL, a comparison with null holds for no row:
ask with ``is null`` and ``is not null``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"]
OPERATORS: frozenset[str] = frozenset(("=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"))


@dataclass(frozen=True)
class Where:
    """A column compared with a value; ``in`` takes a sequence of values, ``is null`` none.

    >>> Where("country", "=", "CH") & (Where("n", ">", 10) | Where("n", "is null"))
    Every(parts=(Where(column='country', operator='=', value='CH'), Either(parts=(Where(...), Where(...)))))
    """

    column: str
    operator: Operator
    value: Any = None

    def __and__(self, other: "Filter") -> "Every":
        return Every((self, other))

    def __or__(self, other: "Filter") -> "Either":
        return Either((self, other))


@dataclass(frozen=True)
class Every:
    """Rows for which all parts hold; all rows when there are none."""

    parts: "tuple[Filter, ...]"

    def __and__(self, other: "Filter") -> "Every":
        return Every((*self.parts, other))

    def __or__(self, other: "Filter") -> "Either":
        return Either((self, other))


@dataclass(frozen=True)
class Either:
    """Rows for which one of the parts holds; no rows when there are none."""

    parts: "tuple[Filter, ...]"

    def __and__(self, other: "Filter") -> Every:
        return Every((self, other))

    def __or__(self, other: "Filter") -> "Either":
        return Either((*self.parts, other))


Filter: TypeAlias = Where | Every | Either


@dataclass(frozen=True)
class Order:
    """A column to sort by. As in Spark, nulls are smaller than all values and NaN is the largest number."""

    column: str
    descending: bool = False


def orders(columns: Sequence["str | Order"]) -> tuple[Order, ...]:
    """Names as orders; a leading ``-`` turns one round.

    >>> orders(["-n", "word"])
    (Order(column='n', descending=True), Order(column='word', descending=False))
    """
    return tuple(
        column if isinstance(column, Order) else Order(column.removeprefix("-"), column.startswith("-"))
        for column in columns
    )
