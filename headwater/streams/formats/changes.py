"""A record of a topic as a change of a table: a row that is there now, a key that is gone, or all rows gone. Pure.

Three kinds of values are understood: Debezium's envelope (``op``, ``before``, ``after``, ``source``), plain rows as
JSON objects, and either of them with Connect's ``schema`` and ``payload`` around it. A record without a value
deletes its key.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson

from headwater.streams.formats.debezium_values import (
    UNENCODED,
    UNITS_BY_CONNECTOR,
    Converter,
    Meaning,
    converter,
    digits_reader,
    fields_named,
)
from headwater.streams.formats.places import place_for

Kind = Literal["upsert", "delete", "truncate"]
Shape = Literal["auto", "json", "debezium"]

# What Debezium writes for a value that the database did not send, because it had not changed.
UNAVAILABLE = "__debezium_unavailable_value"
_UNAVAILABLE_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
NO_KEY = b"null"  # of events about the whole table, in compacted topics, which take none without a key
_MARK = UNAVAILABLE.encode()
_MARK_BASE64 = _UNAVAILABLE_BASE64.encode()


class Change(NamedTuple):
    """What a record does. The row is a JSON object: of a delete, of the key's columns alone."""

    kind: Kind
    row: str = "{}"
    kept: tuple[str, ...] = ()  # columns that stay as they were: the topic does not have their values


class ChangeReader:
    """Reads the records of one table.

    >>> reader = ChangeReader({"id": "bigint", "name": "string"}, ("id",))
    >>> reader.read(b'{"id":1}', b'{"before":null,"after":{"id":1,"name":"Ada"},"source":{},"op":"c"}')
    Change(kind='upsert', row='{"id":1,"name":"Ada"}', kept=())
    >>> reader.read(b'{"id":1}', None)
    Change(kind='delete', row='{"id":1}', kept=())
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        key: Sequence[str],
        shape: Shape = "auto",
        timestamps: str | Mapping[str, str] | None = None,
        decimals: str = "precise",
        digits: Mapping[str, int | None] | None = None,
        misfits: Literal["refused", "null"] = "refused",
    ) -> None:
        """`columns` are the types by name, in Spark's words.

        `digits` are columns of texts whose values are decimals, with the scale where the column has one. `misfits` of
        change events, values that their column's type has no place for, are null unless they are part of the key.
        """
        self._columns, self._key, self._shape = dict(columns), tuple(key), shape
        self._timestamps, self._decimals = timestamps, decimals
        self._converters = {name: found for name, kind in columns.items() if (found := converter(kind))}
        self._converters |= {name: digits_reader(scale) for name, scale in (digits or {}).items()}
        free = set(columns) - set(key) if misfits == "null" else set()
        self._places = {name: place for name in free if (place := place_for(columns[name]))}
        self._free = free
        self._textual = {name for name, kind in columns.items() if kind in ("string", "binary")}
        self._meanings: dict[str | None, dict[str, Meaning]] = {}

    def read(self, key: bytes | None, value: bytes | None) -> Change | None:
        """The change, None for a record that changes nothing; ValueError says what is wrong with it."""
        document, schema = unwrapped(_parsed(value)) if value is not None else (None, None)
        if value is None or document is None:
            return None if key in (None, NO_KEY) else self._deleted(self._key_of(key))
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")
        if is_envelope(document, self._shape):
            return self._of_envelope(key, value, document, schema)
        if self._shape == "debezium":
            raise ValueError("it is not a change event: it has no op")
        if schema is not None:
            row = self._converted(document, fields_named(schema, ()), None)
            return self._upsert(key, row)
        # As it came: numbers keep their digits.
        text = value.decode().strip()
        missing = self._missing(document, key)
        if missing:
            text = f"{text[:-1]}{',' if document else ''}{orjson.dumps(missing).decode()[1:]}"
        return Change("upsert", text)

    def _of_envelope(
        self, key: bytes | None, value: bytes, document: Mapping[str, Any], schema: Any
    ) -> Change | None:
        op, source = document["op"], document.get("source")
        connector = source.get("connector") if isinstance(source, Mapping) else None
        if op in ("c", "u", "r"):
            after = document.get("after")
            if not isinstance(after, dict):
                raise ValueError(f"it has no row after the operation {op!r}")
            kept: tuple[str, ...] = ()
            if _MARK in value or _MARK_BASE64 in value:
                kept = tuple(name for name in self._textual if _is_unavailable(after.get(name)))
                after = {name: entry for name, entry in after.items() if name not in kept}
            row = self._converted(after, fields_named(schema, ("after", "before")), connector)
            return self._upsert(key, row, kept)
        if op == "d":
            before = document.get("before")
            if isinstance(before, dict) and all(before.get(name) is not None for name in self._key):
                named = {name: before[name] for name in self._key}
                fields = fields_named(schema, ("before", "after"))
                return self._deleted(self._converted(named, fields, connector))
            return self._deleted(self._key_of(key, connector))
        if op == "t":
            return Change("truncate")
        if op == "m":  # a message that the application wrote into the database's log
            return None
        raise ValueError(f"the operation {op!r} is not known")

    def _upsert(self, key: bytes | None, row: dict[str, Any], kept: tuple[str, ...] = ()) -> Change:
        row |= self._missing(row, key)
        return Change("upsert", orjson.dumps(row).decode(), kept)

    def _deleted(self, key: Mapping[str, Any]) -> Change:
        return Change("delete", orjson.dumps(key).decode())

    def _missing(self, row: Mapping[str, Any], key: bytes | None) -> dict[str, Any]:
        """The key's columns that a row lacks, from the record's key."""
        if all(row.get(name) is not None for name in self._key):
            return {}
        known = self._key_of(key)
        return {name: known[name] for name in self._key if row.get(name) is None}

    def _key_of(self, key: bytes | None, connector: str | None = None) -> dict[str, Any]:
        """The key's columns in the key of a record: a JSON object, or the value of the only column."""
        if key is None:
            raise ValueError(f"it has no key, and the table's is {', '.join(self._key)}")
        try:
            document, schema = unwrapped(_parsed(key))
        except ValueError:
            document, schema = key.decode(errors="replace"), None
        if isinstance(document, dict):
            lacking = [name for name in self._key if document.get(name) is None]
            if lacking:
                raise ValueError(f"its key has no {lacking[0]!r}: it has {', '.join(document) or 'nothing'}")
            named = {name: document[name] for name in self._key}
            return self._converted(named, fields_named(schema, ()), connector)
        if len(self._key) > 1 or document is None:
            raise ValueError(f"its key is not an object with {', '.join(self._key)}")
        if self._columns[self._key[0]] == "string" and not isinstance(document, str):
            document = key.decode(errors="replace")
        return {self._key[0]: document}

    def _converted(
        self, row: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]], connector: str | None
    ) -> dict[str, Any]:
        found = {name: entry for name, entry in row.items() if name in self._columns}
        if self._shape == "json" and not fields:
            return found
        for name, convert in self._converters.items():
            entry = found.get(name)
            if entry is None:
                continue
            meaning = (
                Meaning.of_field(fields[name]) if name in fields else self._without_schema(name, connector)
            )
            try:
                found[name] = convert(entry, meaning)
            except ValueError as error:
                if name not in self._free:
                    raise ValueError(f"{name}: {error}") from None
                found[name] = _converted_or_null(convert, entry, meaning)
        for name, place in self._places.items():
            if found.get(name) is not None:
                found[name] = place(found[name])
        return found

    def _without_schema(self, name: str, connector: str | None) -> Meaning:
        known = self._meanings.setdefault(connector, {})
        if name not in known:
            said = (
                self._timestamps if isinstance(self._timestamps, str | None) else self._timestamps.get(name)
            )
            known[name] = Meaning(
                unit=said or UNITS_BY_CONNECTOR.get(connector or ""),
                is_usual=said is None,
                decimals=self._decimals,
                encoded=connector not in UNENCODED,
            )
        return known[name]


def is_envelope(document: Mapping[str, Any], shape: Shape = "auto") -> bool:
    """Whether an object is a change event, and not a row.

    >>> is_envelope({"op": "d", "before": None, "source": {}}), is_envelope({"op": "plus", "id": 1})
    (True, False)
    """
    if shape != "auto":
        return shape == "debezium" and "op" in document
    return "op" in document and "source" in document and ("after" in document or "before" in document)


def _converted_or_null(convert: Converter, entry: Any, meaning: Meaning) -> Any:
    """What can be converted of a value that cannot be as a whole: of an array, its other elements."""
    if not isinstance(entry, list):
        return None
    found: list[Any] = []
    for element in entry:
        try:
            found += convert([element], meaning)
        except ValueError:
            found.append(None)
    return found


def _is_unavailable(value: Any) -> bool:
    return value in (UNAVAILABLE, _UNAVAILABLE_BASE64) if isinstance(value, str) else False


def _parsed(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None


def unwrapped(document: Any) -> tuple[Any, Any]:
    """The payload and its schema, where Connect's converter has put both into a record."""
    if isinstance(document, dict) and len(document) == 2 and "schema" in document and "payload" in document:
        return document["payload"], document["schema"]
    return document, None
