"""The tables and triggers that keep a changelog inside a SQLite database, as SQL. Pure.

``_headwater_changes`` has a row a change: its number, the shape of its table then, the operation, the time, the rowid
before and after it, and the values as they are: of the row before (for ``u`` and ``d``), then of the row after it.
Numbers follow the order of commits, since SQLite has one writer at a time.

``REPLACE`` deletes rows without firing their triggers, unless ``recursive_triggers`` is on in the writer's connection.
So rows that are in the way of a new one are put into ``_headwater_replaced`` before it comes; when it has come, those
that are gone were deleted. Rows left there, as by an ``INSERT OR IGNORE``, are still in their table, and so are not
taken for deleted later. Not seen is what a REPLACE deletes if a trigger of the user's own, fired before the row comes,
replaces rows of the same table.
"""

from collections.abc import Iterable, Sequence

from headwater.connect.cdc.sqlite.schema import OURS, Table, quoted

CHANGES, REPLACED = f"{OURS}changes", f"{OURS}replaced"
SHAPES, CAPTURES = f"{OURS}shapes", f"{OURS}captures"
HEAD = ("sequence", "shape", "op", "at", "before_rowid", "after_rowid")  # of CHANGES, before the values

TABLES = (
    f"CREATE TABLE IF NOT EXISTS {CHANGES} (sequence INTEGER PRIMARY KEY AUTOINCREMENT, shape, op, at, "
    "before_rowid, after_rowid)",
    f"CREATE TABLE IF NOT EXISTS {REPLACED} (shape, place)",
    # `since`: the last change before the shape; `again`: whether all rows have to be read because of it.
    f"CREATE TABLE IF NOT EXISTS {SHAPES} (id INTEGER PRIMARY KEY, name, description, since, again)",
    f"CREATE TABLE IF NOT EXISTS {CAPTURES} (name PRIMARY KEY, token, acknowledged, tables)",
)

_NOW = "julianday('now')"


def values(count: int) -> list[str]:
    """The columns in which CHANGES and REPLACED keep values."""
    return [f"v{number}" for number in range(count)]


def wider(table: str, present: int, needed: int) -> list[str]:
    """Gives CHANGES or REPLACED more columns."""
    return [f"ALTER TABLE {table} ADD COLUMN {name}" for name in values(needed)[present:]]


def triggers(table: Table, shape: int) -> dict[str, str]:
    """The triggers of a table by their names, which no other shape shares."""
    return dict(_Writer(table, shape).all())


def refresh(before: Table, after: Table, old_shape: int, shape: int) -> str:
    """Logs rows again that were changed while the triggers knew fewer columns; their key has not changed."""
    old_width = len(before.columns)
    places = [before.names.index(column) for column in before.key]
    keys = [f"key{number}" for number in range(len(places))]

    def changed(op: str, offset: int) -> str:
        # Of an update the row after it counts, which stands behind the one before.
        named = [f"v{place + offset} AS {key}" for place, key in zip(places, keys, strict=True)]
        return f"SELECT {', '.join(named)} FROM {CHANGES} WHERE shape = {old_shape} AND op = '{op}'"

    columns = [f"now.{quoted(name)}" for name in after.names]
    earlier = columns[:old_width] + ["NULL"] * (len(columns) - old_width)
    row = f"now.{after.rowid}" if after.rowid is not None else "NULL"
    found = " AND ".join(
        f"now.{quoted(name)} = changed.{key}" for name, key in zip(before.key, keys, strict=True)
    )
    return (
        f"INSERT INTO {CHANGES} ({', '.join([*HEAD[1:], *values(2 * len(columns))])}) "
        f"SELECT {', '.join([str(shape), repr('u'), _NOW, row, row, *earlier, *columns])} "
        f"FROM ({changed('c', 0)} UNION {changed('u', old_width)}) AS changed "
        f"JOIN {quoted(after.name)} AS now ON {found}"
    )


class _Writer:
    def __init__(self, table: Table, shape: int) -> None:
        self.table, self.shape = table, shape
        self.name = quoted(table.name)
        self.columns = [quoted(name) for name in table.names]
        self.identity = [quoted(name) if name != table.rowid else name for name in table.identity]
        kept = values(len(table.columns))
        # Where REPLACED keeps the identity.
        self.kept_identity = (
            ["place"] if table.rowid is not None else [kept[table.names.index(name)] for name in table.key]
        )

    def all(self) -> Iterable[tuple[str, str]]:
        yield self._trigger("before_insert", "BEFORE INSERT", self._in_the_way(), self._set_aside(""))
        yield self._trigger("insert", "AFTER INSERT", "", [*self._gone(""), self._log("c", after="new")])
        others = f" AND NOT ({self._equal('other', 'old')})"
        yield self._trigger(
            "before_update", "BEFORE UPDATE", self._newly_in_the_way(), self._set_aside(others)
        )
        is_other = f"NOT ({self._same('kept', 'old')}) AND "
        moved = (
            f"DELETE FROM {REPLACED} WHERE shape = {self.shape} AND {self._same(REPLACED, 'old')} "
            f"AND NOT ({self._equal('new', 'old')})"
        )
        log = self._log("u", before="old", after="new")
        yield self._trigger("update", "AFTER UPDATE", "", [*self._gone(is_other), moved, log])
        forget = f"DELETE FROM {REPLACED} WHERE shape = {self.shape} AND {self._same(REPLACED, 'old')}"
        yield self._trigger("delete", "AFTER DELETE", "", [forget, self._log("d", before="old")])

    def _trigger(self, what: str, moment: str, condition: str, body: Sequence[str]) -> tuple[str, str]:
        name = f"{OURS}{self.shape}_{what}"
        when = f" WHEN {condition}" if condition else ""
        return name, f"CREATE TRIGGER {name} {moment} ON {self.name}{when} BEGIN {'; '.join(body)}; END"

    def _log(self, op: str, before: str = "", after: str = "") -> str:
        of_rows = [row for row in (before, after) if row]
        row_ids = [
            f"{row}.{self.table.rowid}" if row and self.table.rowid else "NULL" for row in (before, after)
        ]
        given = [f"{row}.{column}" for row in of_rows for column in self.columns]
        kept = values(len(given))
        return (
            f"INSERT INTO {CHANGES} ({', '.join([*HEAD[1:], *kept])}) "
            f"VALUES ({', '.join([str(self.shape), repr(op), _NOW, *row_ids, *given])})"
        )

    # -- rows that a new one replaces --------------------------------------------------------------

    def _conflicts(self, among: str) -> list[str]:
        """Conditions under which a row of the table is in the way of ``new``."""
        found = [
            " AND ".join(
                f"{among}.{quoted(name)} = new.{quoted(name)} COLLATE {quoted(rule)}" for name, rule in each
            )
            for each in self.table.uniques
        ]
        if self.table.rowid is not None:
            found.append(f"{among}.{self.table.rowid} = new.{self.table.rowid}")
        return found

    def _in_the_way(self) -> str:
        return " OR ".join(
            f"EXISTS (SELECT 1 FROM {self.name} AS other WHERE {condition})"
            for condition in self._conflicts("other")
        )

    def _newly_in_the_way(self) -> str:
        """Only a value that changes can come into conflict: most updates are through with a comparison."""
        sets = [[quoted(name) for name, _ in each] for each in self.table.uniques]
        if self.table.rowid is not None:
            sets.append([self.table.rowid])
        return " OR ".join(
            f"(({' OR '.join(f'new.{name} IS NOT old.{name}' for name in names)}) AND "
            f"EXISTS (SELECT 1 FROM {self.name} AS other WHERE {condition}))"
            for names, condition in zip(sets, self._conflicts("other"), strict=True)
        )

    def _set_aside(self, but: str) -> list[str]:
        condition = " OR ".join(f"({each})" for each in self._conflicts("other"))
        source = f"FROM {self.name} AS other WHERE ({condition}){but}"
        kept = values(len(self.columns))
        place = f"other.{self.table.rowid}" if self.table.rowid is not None else "NULL"
        given = [str(self.shape), place, *(f"other.{name}" for name in self.columns)]
        return [
            f"DELETE FROM {REPLACED} WHERE shape = {self.shape}",
            f"INSERT INTO {REPLACED} ({', '.join(['shape', 'place', *kept])}) SELECT {', '.join(given)} {source}",
        ]

    def _gone(self, further: str) -> list[str]:
        """Logs the rows set aside that are gone, or have been replaced at their place, and forgets them."""
        kept = values(len(self.columns))
        condition = (
            f"kept.shape = {self.shape} AND {further}({self._same('kept', 'new')} OR NOT EXISTS "
            f"(SELECT 1 FROM {self.name} AS other WHERE {self._same('kept', 'other')}))"
        )
        place = "kept.place" if self.table.rowid is not None else "NULL"
        return [
            f"INSERT INTO {CHANGES} ({', '.join([*HEAD[1:], *kept])}) "
            f"SELECT {', '.join([str(self.shape), repr('d'), _NOW, place, 'NULL', *kept])} "
            f"FROM {REPLACED} AS kept WHERE {condition}",
            f"DELETE FROM {REPLACED} WHERE rowid IN (SELECT kept.rowid FROM {REPLACED} AS kept WHERE {condition})",
        ]

    def _same(self, kept: str, row: str) -> str:
        """Whether a row set aside is this one."""
        return " AND ".join(
            f"{kept}.{kept_as} = {row}.{name}"
            for kept_as, name in zip(self.kept_identity, self.identity, strict=True)
        )

    def _equal(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{name} = {other}.{name}" for name in self.identity)
