"""The tables that are captured: which they are, what form they have, and what follows when it changes."""

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import orjson
import psycopg

from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.outbox import check_columns
from headwater.connect.cdc.postgres.catalog import TableInfo, address, all_tables, named_tables
from headwater.connect.cdc.postgres.forms import Form, described, must_read_again, schema_event
from headwater.connect.cdc.postgres.made import (
    Difference,
    TypeContents,
    difference,
    joined,
    make_of,
    mark_of,
    split,
)
from headwater.connect.cdc.postgres.pgoutput import Relation
from headwater.connect.cdc.postgres.plan import (
    Field,
    Names,
    Plan,
    fields_of,
    fields_of_relation,
    form,
    key_of,
    key_of_relation,
)
from headwater.connect.cdc.postgres.types import Types
from headwater.connect.source import Record
from headwater.errors import CaptureImpossible

_part = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^."]+))\s*(?:\.|$)')

Change = Literal["none", "new", "form", "read"]


def split_name(name: str) -> tuple[str, str]:
    """Schema and table.

    >>> split_name("users"), split_name("sales.orders"), split_name('"Order.Line"')
    (('public', 'users'), ('sales', 'orders'), ('public', 'Order.Line'))
    """
    parts = [(quoted or plain).replace('""', '"') for quoted, plain in _part.findall(name)]
    if not parts or len(parts) > 2:
        return "public", name
    return ("public", parts[0]) if len(parts) == 1 else (parts[0], parts[1])


class Tables:
    """What is captured, as the catalogue has it now and as the topics have it so far.

    `known` (in the position) has marks of each table's form and make; what they were lies in a file that can be
    lost: a table that has changed and of which nobody knows from what is read again.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        options: CdcOptions,
        publication: str,
        names: Names,
        types: Types,
        directory: Path,
        known: Mapping[str, str],
    ) -> None:
        self._connection, self._options, self._publication = connection, options, publication
        self.names, self.types = names, types
        self.known: Mapping[str, str] = known
        self._file = directory / "tables.json"
        self._forms: dict[str, Form] = self._load_forms()
        self._unsaved = False
        self.infos: dict[str, TableInfo] = {}  # by full name
        self.notes: dict[str, str] = {}
        self._listed = None if options.tables is None else [split_name(name) for name in options.tables]
        self.outbox = ".".join(split_name(options.outbox)) if options.outbox else None
        if self._listed is not None and options.outbox and split_name(options.outbox) not in self._listed:
            self._listed.append(split_name(options.outbox))

    # -- which -------------------------------------------------------------------------------------

    def look(self) -> list[TableInfo]:
        """The tables to capture, as they are now."""
        if self._listed is None:
            found = all_tables(self._connection, self._publication)
            reasons = {info.full_name: _left_out(info) for info in found}
            # Of tables that would share a topic the one is captured that was there first.
            first: dict[str, TableInfo] = {}
            for info in sorted(found, key=lambda each: each.full_name not in self.known):
                if reasons[info.full_name] is None:
                    taken = first.setdefault(self.topic(info.schema, info.name), info)
                    reasons[info.full_name] = None if taken is info else _shared(taken)
            usable = [info for info in found if reasons[info.full_name] is None]
            self.notes = {name: f"{name} is left out: {reason}" for name, reason in reasons.items() if reason}
        else:
            usable = named_tables(self._connection, self._listed, self._publication)
            self.notes = {}
        return usable

    def check(self, found: Sequence[TableInfo]) -> None:
        """Refuses what cannot be captured, before anything is made in the database."""
        where = address(self._options.url)
        names = {info.full_name for info in found}
        for schema, table in self._listed or ():
            if f"{schema}.{table}" not in names and f"{schema}.{table}" not in self.known:
                cause = "there is no such table (or no right to see it)"
                raise CaptureImpossible(
                    "capture", f"{schema}.{table} of {where}", cause, "Check the name and the schema."
                )
        topics: dict[str, TableInfo] = {}
        for info in found:
            taken = topics.setdefault(self.topic(info.schema, info.name), info)
            if taken is not info:
                step = "Capture one of them under another name, with an hw.cdc of its own: name=..."
                cause = f"its topic would be that of {taken.full_name}"
                raise CaptureImpossible("capture", f"{info.full_name} of {where}", cause, step)
            if not info.can_be_published:
                cause = "it has no replica identity, so that its updates and deletes would fail once it is published"
                step = f"Give it a primary key, or ALTER TABLE {info.quoted} REPLICA IDENTITY FULL."
                raise CaptureImpossible("capture", f"{info.full_name} of {where}", cause, step)
            if info.full_name == self.outbox:
                check_columns(info.full_name, {column.name: None for column in info.columns})

    def is_wanted(self, schema: str, table: str) -> bool:
        if self._listed is None:
            return f"{schema}.{table}" in self.infos or f"{schema}.{table}" in self.known
        return (schema, table) in self._listed

    def set(self, found: Sequence[TableInfo]) -> None:
        self.infos = {info.full_name: info for info in found}

    def topic(self, schema: str, table: str) -> str:
        return topic_of(self._options, schema, table)

    def is_keyed(self, info: TableInfo) -> bool:
        """Whether it is read in chunks. The outbox is not: each of its rows is an event, to be written once."""
        return bool(key_of(info)) and info.full_name != self.outbox

    # -- plans -------------------------------------------------------------------------------------

    def plan(self, info: TableInfo) -> Plan:
        """The plan of a table as it is now."""
        return self._plan(info.oid, info.schema, info.name, fields_of(info), key_of(info))

    def _plan(self, oid: int, schema: str, table: str, fields: Sequence[Field], key: Sequence[str]) -> Plan:
        return Plan(oid, schema, table, self.topic(schema, table), fields, key, self.types, self.names)

    def plan_of(self, relation: Relation) -> tuple[Plan, TableInfo | None]:
        """The plan of a table as it was at this place of the stream."""
        info = self.infos.get(f"{relation.schema}.{relation.table}")
        if info is None or not _fits(relation, info):
            self.types.forget()
            found = named_tables(self._connection, [(relation.schema, relation.table)], self._publication)
            info = found[0] if found and found[0].oid == relation.oid else None
            if info is not None:
                self.infos[info.full_name] = info
        fields, key = fields_of_relation(relation, info), key_of_relation(relation, info)
        return self._plan(relation.oid, relation.schema, relation.table, fields, key), info

    # -- forms -------------------------------------------------------------------------------------

    def changed(
        self,
        schema: str,
        table: str,
        fields: Sequence[Field],
        key: Sequence[str],
        info: TableInfo | None,
        lsn: int,
        out: list[Record],
    ) -> Change:
        """Notes the form of a table; writes an event if it is another than before."""
        name = f"{schema}.{table}"
        mark = form(fields, key)
        before, make = split(self.known.get(name))
        if before == mark:
            return "none"
        now = described(fields, key)
        was = self._forms.get(name)
        if was is not None and before is not None and was.get("mark") != before:
            was = None  # the file is of another time
        out.append(
            schema_event(
                self._options.topic("schema"),
                self.names,
                schema,
                table,
                fields,
                key,
                self.types,
                lsn,
                time.time_ns(),
            )
        )
        # Rows in the topic may have columns that were dropped; when one comes back, its old values must not.
        names = {column[0] for column in now["columns"]}
        older = (
            {column[0] for column in was["columns"]} | set(was.get("dropped", ()))
            if was is not None
            else set()
        )
        came_back = was is not None and not names.isdisjoint(was.get("dropped", ()))
        dropped = {"dropped": sorted(older - names)}
        self.known = {**self.known, name: joined(mark, make)}
        self._forms[name] = {**self._forms.get(name, {}), **now, **dropped, "mark": mark}
        self._save_forms()
        if before is None:
            return "new"
        return "read" if came_back or must_read_again(was, now, info, self.types) else "form"

    def remade(self, info: TableInfo, types: TypeContents) -> Difference:
        """Notes what a table is made of; whether it is another one than before though it may look the same."""
        name = info.full_name
        form, before = split(self.known[name])
        now = make_of(info, types)
        mark = mark_of(now)
        if before == mark:
            return "none"
        was = self._forms.get(name, {})
        # Positions of earlier versions have no mark.
        found = difference(was.get("make") if was.get("made") == before else None, now) if before else "none"
        self.known = {**self.known, name: joined(form or "", mark)}
        if was.get("made") == before and "make" in was:
            was = {**was, "older": {"made": before, "table": was["make"]["table"]}}
        self._forms[name] = {**was, "make": now, "made": mark}
        self._unsaved = True
        return found

    def is_another(self, info: TableInfo) -> bool:
        """Whether a table is known not to be the one that had its name before, by the position."""
        was = self._forms.get(info.full_name, {})
        _, made = split(self.known.get(info.full_name))
        if was.get("made") == made:
            return bool(was["make"]["table"] != info.oid) if "make" in was else False
        older = was.get("older", {})  # a kill came between the file and the position
        return bool(older.get("made") == made and older["table"] != info.oid)

    def save(self) -> None:
        """Keeps what `remade` has noted."""
        if self._unsaved:
            self._save_forms()

    def forget(self, name: str) -> None:
        self.known = {table: mark for table, mark in self.known.items() if table != name}

    def _load_forms(self) -> dict[str, Form]:
        try:
            loaded: dict[str, Form] = orjson.loads(self._file.read_bytes())
            return loaded
        except (OSError, ValueError):
            return {}

    def _save_forms(self) -> None:
        self._unsaved = False
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            new = self._file.with_suffix(".new")
            new.write_bytes(orjson.dumps(self._forms))
            new.replace(self._file)


def topic_of(options: CdcOptions, schema: str, table: str) -> str:
    """The topic of a table: `public` is left out of its name."""
    return options.table_topic(schema, *((table,) if schema == "public" else (schema, table)))


def _left_out(info: TableInfo) -> str | None:
    """Why a table is not among those that are captured when all are; in brackets what to do about it."""
    if not info.can_be_published:
        remedy = f"ALTER TABLE {info.quoted} REPLICA IDENTITY FULL"
        return f"it has neither a primary key nor a replica identity ({remedy})"
    if not info.ours and not info.published:
        return "only its owner can publish it (Make the role a member of the owner's)"
    return None


def _shared(taken: TableInfo) -> str:
    return f"its topic would be that of {taken.full_name} (Capture it under another name, with an hw.cdc of its own)"


def _fits(relation: Relation, info: TableInfo) -> bool:
    # A full identity marks all columns, and says nothing of the key.
    key = {column.name for column in relation.columns if column.identity}
    if relation.identity != info.replica_identity or (relation.identity in "di" and key != set(key_of(info))):
        return False
    return info.oid == relation.oid and [
        (column.name, column.type_oid, column.modifier) for column in relation.columns
    ] == [(column.name, column.type_oid, column.modifier) for column in info.streamed_columns]
