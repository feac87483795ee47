"""Changes of a table, as the parts of ALTER TABLE make them; pure."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from headwater.connect.cdc.mysql.schema import Column, Table, Type, parse_labels, parse_type

Change = Callable[[Table], Table]


class Extra(NamedTuple):
    """What stands beside a column's type."""

    primary: bool = False
    unique: bool = False
    row_end: bool = False
    versioned: bool = False
    filled: bool = False  # rows that were there before show a value in it when it is added
    computed: bool = False
    place: str | None = None  # after which column; "" is first, None last


def not_null(columns: list[Column], primary: tuple[str, ...]) -> tuple[Column, ...]:
    folded = {name.lower() for name in primary}
    return tuple(c._replace(nullable=False) if c.name.lower() in folded else c for c in columns)


def chosen_key(
    columns: list[Column], primary: tuple[str, ...], uniques: list[tuple[str, ...]]
) -> tuple[str, ...]:
    """The primary key, else the first unique index whose columns cannot be NULL."""
    by_name = {column.name.lower(): column for column in columns}
    candidates = [primary] if primary else uniques
    for names in candidates:
        found = [by_name.get(name.lower()) for name in names]
        if all(c is not None and (bool(primary) or not c.nullable) for c in found):
            return tuple(c.name for c in found if c is not None)
    return ()


class UnclearChange(Exception):
    pass


def apply_all(changes: list[Callable[[Table], Table]], table: Table) -> Table | None:
    try:
        for change in changes:
            table = change(table)
    except UnclearChange:
        return None
    return table


def place_of(table: Table, name: str) -> int:
    for place, column in enumerate(table.columns):
        if column.name.lower() == name.lower():
            return place
    raise UnclearChange


def with_versioning(table: Table) -> Table:
    """System versioning without columns of one's own adds two that nobody sees."""
    if table.row_end:
        return table
    hidden = tuple(Column(name, "timestamp(6)", None, True, False) for name in ("row_start", "row_end"))
    return replace(table, columns=table.columns + hidden, row_end="row_end")


def without_versioning(table: Table) -> Table:
    return replace(table, columns=tuple(c for c in table.columns if not c.hidden), row_end="")


def _insert(columns: list[Column], column: Column, place: str | None) -> tuple[Column, ...]:
    if place == "":
        columns.insert(0, column)
    elif place is not None:
        names = [each.name.lower() for each in columns]
        if place.lower() not in names:
            raise UnclearChange
        columns.insert(names.index(place.lower()) + 1, column)
    else:  # last, but before what nobody sees
        end = len(columns)
        while end and columns[end - 1].hidden:
            end -= 1
        columns.insert(end, column)
    return tuple(columns)


def add_column(column: Column, extra: Extra) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        if any(each.name.lower() == column.name.lower() for each in table.columns):
            return table  # IF NOT EXISTS
        made = replace(table, columns=_insert(list(table.columns), column, extra.place))
        if extra.primary:
            made = replace(made, key=(column.name,))
        elif extra.unique and not table.key:
            raise UnclearChange
        return made

    return change


def drop_column(name: str) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        kept = tuple(each for each in table.columns if each.name.lower() != name.lower())
        if any(part.lower() == name.lower() for part in table.key):
            raise UnclearChange  # the key lost a column, or another index is the key now
        return replace(table, columns=kept)

    return change


def change_column(old: str, column: Column, extra: Extra) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        place = place_of(table, old)
        columns = list(table.columns)
        previous = columns.pop(place)
        in_key = any(part.lower() == old.lower() for part in table.key)
        made = column._replace(nullable=column.nullable and not (in_key and not previous.nullable))
        if extra.place is None:
            columns.insert(place, made)
            changed = tuple(columns)
        else:
            changed = _insert(columns, made, extra.place)
        key = tuple(column.name if part.lower() == old.lower() else part for part in table.key)
        return replace(table, columns=changed, key=(column.name,) if extra.primary else key)

    return change


def rename_column(old: str, new: str) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        place = place_of(table, old)
        columns = list(table.columns)
        columns[place] = columns[place]._replace(name=new)
        key = tuple(new if part.lower() == old.lower() else part for part in table.key)
        return replace(table, columns=tuple(columns), key=key)

    return change


def add_key(kind: str, names: tuple[str, ...]) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        if kind == "primary":
            found = tuple(table.columns[place_of(table, name)].name for name in names)
            return replace(table, columns=not_null(list(table.columns), found), key=found)
        if table.key:
            return table  # it has a key already
        return replace(table, key=chosen_key(list(table.columns), (), [names]))

    return change


def convert(charset: str) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        columns = tuple(c._replace(charset=charset) if c.charset is not None else c for c in table.columns)
        return replace(table, columns=columns, charset=charset)

    return change


def with_charset(charset: str) -> Change:
    """Another character set for columns to come."""
    return lambda table: replace(table, charset=charset)


_WHOLE_NUMBERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}  # bits
_TEXTS = {"tinytext": 8, "text": 16, "mediumtext": 24, "longtext": 32}  # bits of their length in bytes
_TEXTS_OF_ANY_LENGTH = {"varchar", *_TEXTS}
_UNICODE = {"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"}
_UNICODE_WITHOUT_EMOJI = {"utf8", "utf8mb3", "ucs2"}


def changes_rows(before: Table, after: Table) -> bool:
    """Whether rows that nobody touched look otherwise after a change of columns that are there before and after.

    A column that went while another one came may have been renamed.

    >>> made = Table("shop", "t", (Column("id", "int"), Column("v", "varchar(10)")), ("id",))
    >>> wider = replace(made, columns=(Column("id", "bigint"), Column("v", "text")))
    >>> renamed = replace(made, columns=(Column("id", "int"), Column("w", "varchar(10)")))
    >>> changes_rows(made, wider), changes_rows(made, renamed)
    (False, True)
    """
    old = {column.name: column for column in before.visible}
    new = {column.name: column for column in after.visible}
    if old.keys() - new.keys() and new.keys() - old.keys():
        return True
    return any(not _keeps_values(old[name], new[name]) for name in old.keys() & new.keys())


def _keeps_values(before: Column, after: Column) -> bool:
    """Whether values are the same JSON in both. Without strict mode, those that do not fit are made to fit."""
    one, other = parse_type(before.type), parse_type(after.type)
    if before.nullable and not after.nullable:
        return False  # NULL becomes a value
    if one.base in _WHOLE_NUMBERS and other.base in _WHOLE_NUMBERS:
        sign = other.unsigned - one.unsigned  # -1: the sign takes a bit of what was there for the number
        return sign <= 0 and _WHOLE_NUMBERS[one.base] <= _WHOLE_NUMBERS[other.base] - (sign < 0)
    if not _has_characters_of(before.charset, after.charset):
        return False
    if one.base in _TEXTS_OF_ANY_LENGTH and other.base in _TEXTS_OF_ANY_LENGTH:
        return _has_room_for(one, other)
    if one.base != other.base or (other.unsigned and not one.unsigned):
        return False
    if one.base in ("enum", "set"):
        labels = parse_labels(one.arguments)
        return parse_labels(other.arguments)[: len(labels)] == labels
    return one.base == "year" or [n for n in one.numbers if n] == [n for n in other.numbers if n]


def _has_characters_of(before: str | None, after: str | None) -> bool:
    """Whether a character set has all characters of another."""
    if before == after or after in _UNICODE:
        return True
    return after in _UNICODE_WITHOUT_EMOJI and before not in _UNICODE


def _has_room_for(one: Type, other: Type) -> bool:
    """Whether the longest text of a type fits into another."""
    if one.base == other.base == "varchar":
        return one.numbers <= other.numbers
    longest = one.numbers[0] * 4 if one.base == "varchar" else (1 << _TEXTS[one.base]) - 1  # bytes
    return longest <= (other.numbers[0] if other.base == "varchar" else (1 << _TEXTS[other.base]) - 1)
