"""The captured tables as they are at the point of the log that has been read; pure but for a look-up it is given.

A server knows its tables as they are now; rows in its log may be older. So tables are followed through the DDL in the
log, and what is known is checked against each TABLE_MAP. With ``binlog_row_metadata=FULL`` the log has the names.
"""

import base64
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import orjson

from headwater.connect.cdc.mysql import ddl
from headwater.connect.cdc.mysql import tablemap as log
from headwater.connect.cdc.mysql.alterations import changes_rows
from headwater.connect.cdc.mysql.schema import Column, Filter, Table
from headwater.connect.cdc.mysql.tablemap import TableMap, WrittenColumn
from headwater.connect.cdc.mysql.types import fits
from headwater.errors import CaptureImpossible

Name = tuple[str, str]
Lookup = Callable[[Name], Table | None]  # a table as the server has it now

_SEQUENCE = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size",
    "cycle_option", "cycle_count",
)  # fmt: skip


class Consequence(NamedTuple):
    """What a statement means for a captured table besides its new columns."""

    name: Name
    emptied: Table | None = None  # all rows that it had are gone
    reload: bool = False  # its rows have to be read again
    fresh: bool = False  # it begins empty: all its rows will be in the log


class History:
    """Tables at the place in the log where the reader is."""

    def __init__(
        self, chosen: Filter, tables: dict[Name, Table], lookup: Lookup, charsets: dict[int, str]
    ) -> None:
        self.chosen, self.tables = chosen, tables
        self._lookup, self._charsets = lookup, charsets
        self._encoded: str | None = None
        self.notes: list[str] = []
        self.found_now: set[Name] = set()  # known from the server only: the log may have yet to create them

    @classmethod
    def decoded(cls, text: str) -> dict[Name, Table]:
        """Tables from a position."""
        parts = orjson.loads(zlib.decompress(base64.b64decode(text)))
        tables = [Table.from_json(part) for part in parts]
        return {(table.database, table.name): table for table in tables}

    def encoded(self) -> str:
        """All tables for a position: written with each, so it is kept short and made once a change."""
        if self._encoded is None:
            plain = orjson.dumps([table.to_json() for _, table in sorted(self.tables.items())])
            self._encoded = base64.b64encode(zlib.compress(plain, 9)).decode()
        return self._encoded

    def keep(self, table: Table) -> None:
        """A table as it is from here on."""
        if self.tables.get((table.database, table.name)) != table:
            self.tables[table.database, table.name] = table
            self._encoded = None

    def _forget(self, name: Name) -> Table | None:
        self._encoded = None
        return self.tables.pop(name, None)

    # -- DDL

    def apply(self, effects: Iterable[ddl.Effect]) -> list[Consequence]:
        """Follows a statement; what it means for captured tables."""
        found: list[Consequence] = []
        for effect in effects:
            found += self._apply(effect)
        return found

    def _apply(self, effect: ddl.Effect) -> list[Consequence]:
        if isinstance(effect, ddl.Unclear):
            return self._look_again(effect.text)
        if isinstance(effect, ddl.DatabaseDropped):
            names = [name for name in self.tables if name[0] == effect.database]
            return [Consequence(name, emptied=self._forget(name)) for name in names]
        if isinstance(effect, ddl.Renamed):
            return self._renamed(effect)
        if not self.chosen.captures(*effect.name):
            return []
        known = self.tables.get(effect.name)
        if isinstance(effect, ddl.Truncated):
            return [Consequence(effect.name, emptied=known)] if known else []
        if isinstance(effect, ddl.Dropped):
            return [Consequence(effect.name, emptied=self._forget(effect.name))] if known else []
        if isinstance(effect, ddl.Created):
            return self._created(effect, known)
        return self._altered(effect, known)

    def _created(self, effect: ddl.Created, known: Table | None) -> list[Consequence]:
        if known is not None and effect.if_not_exists:
            return []
        table = effect.table
        if effect.like is not None and effect.like in self.tables:
            table = self.tables[effect.like].renamed(*effect.name)
        table = table or self._lookup(effect.name)
        if known is not None:
            self._forget(effect.name)
        if table is not None:
            self.keep(table)
        if effect.name in self.found_now:
            self.found_now.discard(effect.name)
            known = None
        return [Consequence(effect.name, emptied=known, fresh=True)]

    def _altered(self, effect: ddl.Altered, known: Table | None) -> list[Consequence]:
        table = effect.change(known) if known is not None else None
        freed = {name.lower() for name in effect.freed}
        is_freed = known is not None and not freed.isdisjoint(name.lower() for name in known.key)
        if table is not None and (effect.asks_key or is_freed):
            table = replace(table, key=self._key_now(table))
        table = table or self._lookup(effect.name) or known
        if table is None:
            return []
        came_back = False
        if known is not None:
            names = {column.name for column in table.columns}
            gone = {*known.dropped, *(column.name for column in known.columns)}
            came_back = not names.isdisjoint(known.dropped)
            table = replace(table, dropped=tuple(sorted(gone - names)))
        self.keep(table)
        rekeyed = known is not None and known.key != table.key
        reload = rekeyed or came_back or effect.touches_rows
        reload = reload or (known is not None and changes_rows(known, table))
        return [Consequence(effect.name, emptied=known if rekeyed else None, reload=reload)]

    def _key_now(self, table: Table) -> tuple[str, ...]:
        """The key as the server has it. Its columns may be later ones than those of the rows that come next."""
        now = self._lookup((table.database, table.name))
        names = {column.name for column in table.columns}
        return now.key if now is not None and names.issuperset(now.key) else table.key

    def _renamed(self, effect: ddl.Renamed) -> list[Consequence]:
        found = []
        table = self._forget(effect.old)
        if table is not None:
            found.append(Consequence(effect.old, emptied=table))
        if self.chosen.captures(*effect.new):
            moved = table.renamed(*effect.new) if table is not None else self._lookup(effect.new)
            before = self._forget(effect.new)
            if moved is not None:
                self.keep(moved)
                found.append(Consequence(effect.new, emptied=before, reload=True))
        return found

    def _look_again(self, text: str) -> list[Consequence]:
        """After a statement that was not understood, the tables that it names are as the server has them."""
        found = []
        for name in sorted(self.tables):
            if name[1].lower() in text.lower():
                table = self._lookup(name)
                if table is not None and table != self.tables[name]:
                    self.keep(table)
                    found.append(Consequence(name))
        return found

    # -- tables of rows

    def resolve(self, written: TableMap) -> Table | None:
        """The table that rows are of; None when it is not captured."""
        name = (written.database, written.table)
        if not self.chosen.captures(*name):
            return None
        if tuple(column.name for column in written.columns) == _SEQUENCE:
            return None  # logged like a table, which it is not: no snapshot has it, and CREATE TABLE does not make it
        known = self.tables.get(name)
        if written.has_names:
            return self._from_log(written, known)
        if known is not None and self._fits(known, written):
            return known
        now = self._lookup(name)
        if now is None and known is None:
            self._note(f"rows of {'.'.join(name)} left out: there is no such table any more")
            return None
        if now is not None and self._fits(now, written):
            if known is not None:
                self._note(f"columns of {'.'.join(name)} taken from the server as it is now")
            self.keep(now)
            return now
        raise CaptureImpossible(
            "read rows of",
            ".".join(name),
            "the log has other columns than are known, from before a change of the table",
            "Set binlog_row_metadata=FULL so that the log has their names, and read the table again by a snapshot.",
        )

    def _fits(self, table: Table, written: TableMap) -> bool:
        return len(table.columns) == len(written.columns) and all(
            fits(column, each) for column, each in zip(table.columns, written.columns, strict=True)
        )

    def _from_log(self, written: TableMap, known: Table | None) -> Table:
        """The log has the names; what it lacks (UUID, what is hidden) is known by name."""
        names = {column.name for column in written.columns}
        if known is None or not names <= {column.name for column in known.columns}:
            now = self._lookup((written.database, written.table))
            extra = now.columns if now is not None else ()
            known = known or now
        else:
            extra = ()
        by_name = {c.name: c for c in (*extra, *(known.columns if known is not None else ()))}
        columns = tuple(self._column(each, by_name.get(each.name or "")) for each in written.columns)
        key = tuple(columns[place].name for place in written.key) if written.key else ()
        if not key and known is not None and set(known.key) <= names:
            key = known.key
        row_end = known.row_end if known is not None and known.row_end in names else ""
        key = tuple(part for part in key if part != row_end)
        engine = known.engine if known is not None else ""
        dropped = known.dropped if known is not None else ()
        charset = known.charset if known is not None else None
        table = Table(written.database, written.table, columns, key, engine, row_end, dropped, charset)
        self.keep(table)
        return table

    def _column(self, written: WrittenColumn, known: Column | None) -> Column:
        charset = self._charset(written)
        if known is not None and fits(known, written):
            same_sign = written.unsigned is None or written.unsigned == ("unsigned" in known.type)
            if same_sign and (charset == known.charset or written.collation is None):
                return known
        hidden = known.hidden if known is not None else False
        return Column(written.name or "", _described(written, charset), charset, hidden)

    def _charset(self, written: WrittenColumn) -> str | None:
        if written.collation is None or written.collation == 63:
            return None
        return self._charsets.get(written.collation, "utf8mb4")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


_NAMES = {
    log.TINY: "tinyint", log.SHORT: "smallint", log.INT24: "mediumint", log.LONG: "int", log.LONGLONG: "bigint",
    log.FLOAT: "float", log.DOUBLE: "double", log.YEAR: "year", log.DATE: "date", log.NEWDATE: "date",
    log.JSON: "json", log.GEOMETRY: "geometry", log.TIME: "time", log.DATETIME: "datetime",
    log.TIMESTAMP: "timestamp",
}  # fmt: skip
_MOMENTS = {log.TIME2: "time", log.DATETIME2: "datetime", log.TIMESTAMP2: "timestamp"}
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}


def _described(written: WrittenColumn, charset: str | None) -> str:
    """A type's name from how the log writes it, for a column that nobody else knows any more."""
    kind, metadata = written.type, written.metadata
    sign = " unsigned" if written.unsigned else ""
    if kind in _NAMES:
        return _NAMES[kind] + sign
    if kind in _MOMENTS:
        return f"{_MOMENTS[kind]}({metadata})" if metadata else _MOMENTS[kind]
    if kind == log.NEWDECIMAL:
        return f"decimal({metadata >> 8},{metadata & 0xFF}){sign}"
    if kind == log.BIT:
        return f"bit({(metadata >> 8) * 8 + (metadata & 0xFF)})"
    if kind in (log.ENUM, log.SET):
        labels = ",".join("'" + label.decode("utf-8", "replace") + "'" for label in written.labels or ())
        return f"{'enum' if kind == log.ENUM else 'set'}({labels})"
    if kind == log.STRING:
        return f"binary({metadata})" if charset is None else f"char({metadata})"
    if kind in (log.VARCHAR, log.VAR_STRING, log.VARCHAR_COMPRESSED):
        return f"varbinary({metadata})" if charset is None else f"varchar({metadata})"
    return _BLOBS.get(metadata, "") + ("blob" if charset is None else "text")
