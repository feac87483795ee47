"""Conditions and orders as SQL. Values are always bound; names come from the schema."""

from collections.abc import Sequence
from typing import Any

from headwater.errors import BadInput
from headwater.views.database import Database, Operand
from headwater.views.filters import OPERATORS, Every, Filter, Order, Where, orders
from headwater.views.model import ViewSchema
from headwater.views.types import arrow_type, member_type
from headwater.views.values import one_value

Bound = tuple[Any, ...]


def condition(database: Database, schema: ViewSchema, where: Filter) -> tuple[str, Bound]:
    """What follows WHERE, and its values."""
    if isinstance(where, Where):
        return _comparison(database, schema, where)
    parts = [condition(database, schema, part) for part in where.parts]
    if not parts:
        return ("1 = 1" if isinstance(where, Every) else "1 = 0"), ()
    word = " AND " if isinstance(where, Every) else " OR "
    return "(" + word.join(sql for sql, _ in parts) + ")", tuple(v for _, bound in parts for v in bound)


def order_by(database: Database, schema: ViewSchema, order: Sequence[str | Order]) -> tuple[str, Bound]:
    """What follows ORDER BY: what was asked for, then the key, so that pages of rows do not overlap."""
    chosen = orders(order)
    named = {one.column for one in chosen}
    chosen += tuple(Order(name) for name in schema.key if name not in named)
    parts: list[str] = []
    bound: list[Any] = []
    for one in chosen:
        operand = _operand(database, schema, one.column)[0]
        parts.append(operand.sql + (" DESC NULLS LAST" if one.descending else " ASC NULLS FIRST"))
        bound += operand.bound
    return ", ".join(parts), tuple(bound)


def _comparison(database: Database, schema: ViewSchema, where: Where) -> tuple[str, Bound]:
    if where.operator not in OPERATORS:
        cause = f"there is no operator {where.operator!r}"
        raise BadInput("read the view", schema.name, cause, f"Use one of {', '.join(sorted(OPERATORS))}.")
    operand, kind = _operand(database, schema, where.column)
    if where.operator in ("is null", "is not null"):
        return f"{operand.sql} {where.operator.upper()}", operand.bound
    many = where.operator == "in"
    try:
        values = [operand.bind(one_value(value, kind)) for value in (where.value if many else [where.value])]
    except (ValueError, TypeError) as error:
        raise BadInput(
            "read the view", schema.name, f"{where.column}: {error}", "Correct the value."
        ) from None
    if not many:
        return f"{operand.sql} {where.operator} {database.mark}", (*operand.bound, values[0])
    if not values:
        return "1 = 0", ()
    return f"{operand.sql} IN ({', '.join([database.mark] * len(values))})", (*operand.bound, *values)


def _operand(database: Database, schema: ViewSchema, name: str) -> tuple[Operand, Any]:
    if name in schema.types:
        kind = arrow_type(schema.types[name])
        return database.operand(name, (), kind), kind
    column, *path = name.split(".")
    if column in schema.types:
        kind = member_type(arrow_type(schema.types[column]), tuple(path))
        if kind is not None:
            return database.operand(column, tuple(path), kind), kind
    cause = f"there is no column {name!r}; there are {', '.join(schema.types)}"
    raise BadInput("read the view", schema.name, cause, "Correct the name.")
