"""What the database says about its tables and types, and the connection that asks it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import pq

from headwater.connect.cdc.postgres.types import TypeRow, is_built_in
from headwater.errors import CaptureImpossible, ConnectionLost

# Values are text; their text must not depend on what an administrator set for server, database or role.
SESSION = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "synchronous_commit": "local",
    # Rows that a policy hides would be missing without a word; so the server refuses instead.
    "row_security": "off",
    "default_transaction_read_only": "off",
    "search_path": "pg_catalog",
}
_OPTIONS = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
CONNECT_SECONDS = 10


def connection_string(url: str, **more: str) -> str:
    """The address with the settings of our sessions; what the address says itself about options is kept."""
    said = psycopg.conninfo.conninfo_to_dict(url)
    options = f"{said.get('options') or ''} {_OPTIONS}".strip()
    defaults: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "application_name": "headwater"}
    # A connection whose server has vanished must not hang for the two hours of the operating system.
    defaults |= {
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    settings = {**defaults, **said, **more, "options": options, "client_encoding": "UTF8"}
    return psycopg.conninfo.make_conninfo("", **settings)


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection for questions, each in a transaction of its own."""
    with lost("connect to", url):
        return psycopg.connect(connection_string(url), autocommit=True, prepare_threshold=None)


@contextmanager
def lost(operation: str, url: str) -> Iterator[None]:
    """Turns what libpq says about a server that has gone into the catalogue's error."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise CaptureImpossible(operation, address(url), str(error).strip().rstrip(".")) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise ConnectionLost(operation, address(url), str(error).strip().rstrip(".")) from error


def address(url: str) -> str:
    """Where a database is, without its password.

    >>> address("postgresql://me:secret@db:5432/shop")
    'db:5432/shop'
    """
    said = psycopg.conninfo.conninfo_to_dict(url)
    host = said.get("host") or said.get("hostaddr") or "localhost"
    return f"{host}:{said.get('port') or 5432}/{said.get('dbname') or ''}"


def literal(connection: psycopg.Connection[Any], text: bytes | str) -> str:
    """A value of any type as an SQL literal of unknown type, which takes the type of what it is compared with."""
    raw = text.encode() if isinstance(text, str) else text
    return pq.Escaping(connection.pgconn).escape_literal(raw).decode()


def identifier(name: str) -> str:
    """
    >>> identifier("Order Line")
    '"Order Line"'
    """
    return '"' + name.replace('"', '""') + '"'


def ask(connection: psycopg.Connection[Any], query: str, *parameters: object) -> list[tuple[Any, ...]]:
    return connection.execute(query, parameters or None).fetchall()


def do(connection: psycopg.Connection[Any], statement: str) -> None:
    connection.execute(statement)


@dataclass(frozen=True)
class TableColumn:
    number: int  # attnum, which a renamed column keeps
    name: str
    type_oid: int
    modifier: int
    required: bool
    generated: str | None  # the expression, with the cast to the column's type that the server makes unseen
    default: str | None
    identity: bool
    stored_apart: bool  # may be (TOAST)
    filled_in: bool  # rows that were there before the column was added show a value
    described_by: str  # the transaction that changed its description last


@dataclass(frozen=True)
class TableInfo:
    """A table as it is now."""

    oid: int
    schema: str
    name: str
    partitioned: bool
    replica_identity: str  # d, n, f, i
    estimate: int | None
    columns: tuple[TableColumn, ...]
    # Of the primary key, else of a unique index whose columns are all required. One that is checked at the end of the
    # transaction alone is none: the server does not take it as a replica identity, and two rows may have it meanwhile.
    key: tuple[str, ...]
    has_primary_key: bool
    identity_index: tuple[str, ...]  # REPLICA IDENTITY USING INDEX
    file: int  # its number; another one after TRUNCATE, and when its rows were written anew
    partitions: tuple[tuple[int, int], ...]  # each with the number of its file, another one after TRUNCATE
    published: bool = False
    published_in_part: bool = False  # only some columns, or rows that fit a condition
    ours: bool = True  # the role is the owner, who alone can publish a table, or one of its members

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{identifier(self.schema)}.{identifier(self.name)}"

    @property
    def read_from(self) -> str:
        """What to read: a partitioned table's rows lie in its parts; children that inherit are tables of their own."""
        return self.quoted if self.partitioned else f"ONLY {self.quoted}"

    @property
    def published_as(self) -> str:
        return self.quoted if self.partitioned else f"ONLY {self.quoted}"

    @property
    def can_be_published(self) -> bool:
        """Whether updates and deletes still work in a published table: they need a replica identity."""
        if self.replica_identity == "d":
            return self.has_primary_key
        return self.replica_identity in "fi"

    @property
    def streamed_columns(self) -> tuple[TableColumn, ...]:
        return tuple(column for column in self.columns if column.generated is None)


_TABLES = """
SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind = 'p', c.relreplident::text,
       CASE WHEN c.relkind = 'p' THEN (SELECT sum(p.reltuples)::int8 FROM pg_partition_tree(c.oid) t
                                       JOIN pg_class p ON p.oid = t.relid WHERE t.isleaf)
            ELSE c.reltuples::int8 END,
       (SELECT json_agg(json_build_array(a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.attnotnull,
                        a.attgenerated,
                        CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid)
                             ELSE format('CAST((%%s) AS %%s)', pg_get_expr(d.adbin, d.adrelid),
                                         format_type(a.atttypid, a.atttypmod)) END,
                        a.attidentity, a.attstorage, a.atthasmissing, a.xmin::text)
                        ORDER BY a.attnum)
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT json_agg(json_build_array(i.indisprimary, i.indisreplident,
                        (i.indkey::int2[])[0:i.indnkeyatts - 1]) ORDER BY i.indisprimary DESC, i.indexrelid)
        FROM pg_index i
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
          AND i.indimmediate),
       c.relfilenode::int8,
       (SELECT json_agg(json_build_array(t.relid::oid::int8, p.relfilenode::int8))
        FROM pg_partition_tree(c.oid) t JOIN pg_class p ON p.oid = t.relid WHERE t.isleaf AND c.relkind = 'p'),
       EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
               WHERE r.prrelid = c.oid AND p.pubname = %s),
       EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
               WHERE r.prrelid = c.oid AND p.pubname = %s
                 AND coalesce(to_jsonb(r) ->> 'prqual', to_jsonb(r) ->> 'prattrs') IS NOT NULL),
       pg_has_role(c.relowner, 'MEMBER')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""
_NOT_AN_EXTENSIONS = """
  AND NOT c.relispartition
  AND NOT EXISTS (SELECT FROM pg_depend d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
"""


def all_tables(connection: psycopg.Connection[Any], publication: str = "") -> list[TableInfo]:
    """Every table that can be captured: permanent, no part of another, nobody's extension."""
    rows = ask(connection, f"{_TABLES} {_NOT_AN_EXTENSIONS} ORDER BY 2, 3", publication, publication)
    return [_table(row) for row in rows]


def named_tables(
    connection: psycopg.Connection[Any], names: Sequence[tuple[str, str]], publication: str = ""
) -> list[TableInfo]:
    """The tables of these (schema, name), in this order; those that are not there are left out."""
    schemas, tables = [schema for schema, _ in names], [table for _, table in names]
    query = (
        f"{_TABLES} AND (n.nspname::text, c.relname::text) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
    )
    rows = ask(connection, query, publication, publication, schemas, tables)
    found = {(info.schema, info.name): info for info in map(_table, rows)}
    return [found[name] for name in names if name in found]


def _table(row: tuple[Any, ...]) -> TableInfo:
    (
        oid,
        schema,
        name,
        partitioned,
        identity,
        estimate,
        columns,
        indexes,
        file,
        partitions,
        published,
        in_part,
        ours,
    ) = row
    parsed = tuple(
        TableColumn(
            number, column, type_oid, modifier, required, default if generated else None,
            None if generated else default, bool(own), storage != "p", missing, by,
        )
        for number, column, type_oid, modifier, required, generated, default, own, storage, missing, by
        in columns or ()
    )  # fmt: skip
    names = {column.number: column.name for column in parsed}
    required = {column.number for column in parsed if column.required}
    key: tuple[str, ...] = ()
    identity_index: tuple[str, ...] = ()
    has_primary = False
    for primary, replica, numbers in indexes or ():
        here = tuple(names[number] for number in numbers)
        if replica:
            identity_index = here
        if primary:
            key, has_primary = here, True
        elif not key and required.issuperset(numbers):
            key = here
    if identity_index and not has_primary:
        key = identity_index
    return TableInfo(
        oid, schema, name, partitioned, identity, estimate if estimate is not None and estimate >= 0 else None,
        parsed, key, has_primary, identity_index, file, tuple(sorted(map(tuple, partitions or ()))), published,
        in_part, ours,
    )  # fmt: skip


_LABELS = """
SELECT enumtypid::int8, json_object_agg(oid::int8, enumlabel) FROM pg_enum WHERE enumtypid = ANY(%s::oid[]) GROUP BY 1
"""


def type_contents(
    connection: psycopg.Connection[Any], tables: Iterable[TableInfo]
) -> dict[int, dict[str, Any]]:
    """What the types of columns consist of that were made here: labels or attributes, of each that one leads to."""
    wanted = {
        column.type_oid for table in tables for column in table.columns if not is_built_in(column.type_oid)
    }
    rows: dict[int, TypeRow] = {}
    missing = set(wanted)
    while missing:
        rows |= {row.oid: row for row in look_up_types(connection, missing)}
        missing = {oid for row in rows.values() for oid in _led_to(row)} - rows.keys()
    enums = [oid for oid, row in rows.items() if row.kind == "e"]
    labels: dict[int, Any] = dict(ask(connection, _LABELS, enums)) if enums else {}
    own = {oid: labels.get(oid) or [list(field) for field in row.fields] for oid, row in rows.items()}

    def contents(oid: int, found: dict[str, Any]) -> dict[str, Any]:
        if str(oid) not in found and oid in rows:
            found[str(oid)] = own[oid]
            for other in _led_to(rows[oid]):
                contents(other, found)
        return found

    return {oid: {number: what for number, what in contents(oid, {}).items() if what} for oid in wanted}


def _led_to(row: TypeRow) -> set[int]:
    others = {row.element, row.base, *(oid for _, oid, _ in row.fields)}
    return {oid for oid in others if oid and not is_built_in(oid)}


def look_up_types(connection: psycopg.Connection[Any], oids: Iterable[int]) -> list[TypeRow]:
    """Rows of pg_type; the fields of composite types with them."""
    rows = ask(
        connection,
        """
        SELECT t.oid::int8, t.typname::text, t.typtype::text,
               CASE WHEN t.typsubscript = 0 THEN 0 ELSE t.typelem END::int8,
               t.typbasetype::int8, t.typtypmod, t.typdelim::text,
               (SELECT json_agg(json_build_array(a.attname, a.atttypid::int8, a.atttypmod) ORDER BY a.attnum)
                FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped),
               n.nspname::text
        FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = ANY(%s::oid[])
        """,
        list(oids),
    )
    return [
        TypeRow(oid, name, kind, element, base, modifier, delimiter, tuple(map(tuple, fields or ())), schema)
        for oid, name, kind, element, base, modifier, delimiter, fields, schema in rows
    ]
