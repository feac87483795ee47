"""The tables that are captured, as a server has them now."""

from collections import defaultdict

from headwater.connect.cdc.mysql.alterations import with_versioning
from headwater.connect.cdc.mysql.connection import Database
from headwater.connect.cdc.mysql.definitions import charset_of_collation
from headwater.connect.cdc.mysql.schema import Column, Filter, Table, parse_type


def read_tables(
    database: Database, chosen: Filter, only: tuple[str, str] | None = None
) -> dict[tuple[str, str], Table]:
    """The captured tables with their columns and keys."""
    found: dict[tuple[str, str], Table] = {}
    for schema in sorted({only[0]} if only else chosen.databases):
        narrow, values = ("", [schema]) if only is None else (" and table_name = %s", [schema, only[1]])
        keys = _keys(database, narrow, values)
        columns = _columns(database, narrow, values)
        for name, engine, kind, collation in database.query(
            "select table_name, engine, table_type, table_collation from information_schema.tables "
            "where table_schema = %s and table_type in ('BASE TABLE', 'SYSTEM VERSIONED')" + narrow,
            *values,
        ):
            if not chosen.captures(schema, name):
                continue
            made, row_end = columns[name]
            key = keys.get(name, ())
            if row_end:  # versions of a row share what people call its key
                key = tuple(part for part in key if part != row_end)
            charset = charset_of_collation(collation) if collation else None
            table = Table(schema, name, tuple(made), key, engine or "", row_end, charset=charset)
            found[schema, name] = with_versioning(table) if kind == "SYSTEM VERSIONED" else table
    return found


def _columns(database: Database, narrow: str, values: list[str]) -> dict[str, tuple[list[Column], str]]:
    found: dict[str, tuple[list[Column], str]] = defaultdict(lambda: ([], ""))
    for table, name, kind, charset, nullable, generated in database.query(
        "select table_name, column_name, column_type, character_set_name, is_nullable, generation_expression "
        f"from information_schema.columns where table_schema = %s{narrow} order by table_name, ordinal_position",
        *values,
    ):
        columns, row_end = found[table]
        if "/*" in kind and parse_type(kind).base not in ("enum", "set"):
            kind = kind.split("/*")[0].strip()
        columns.append(Column(name, kind, charset, False, nullable == "YES"))
        if (generated or "").upper() == "ROW END":
            row_end = name
        found[table] = (columns, row_end)
    return found


def _keys(database: Database, narrow: str, values: list[str]) -> dict[str, tuple[str, ...]]:
    """Of each table the primary key, else the first unique index whose columns cannot be NULL."""
    indexes: dict[tuple[str, str], list[tuple[str | None, bool]]] = defaultdict(list)
    for table, index, column, nullable in database.query(
        "select table_name, index_name, column_name, nullable from information_schema.statistics "
        f"where table_schema = %s{narrow} and non_unique = 0 "
        "order by table_name, index_name <> 'PRIMARY', index_name, seq_in_index",
        *values,
    ):
        indexes[table, index].append((column, nullable == "YES"))
    keys: dict[str, tuple[str, ...]] = {}
    for (table, _), parts in indexes.items():
        if table not in keys and all(column is not None and not nullable for column, nullable in parts):
            keys[table] = tuple(column for column, _ in parts if column is not None)
    return keys


def database_charset(database: Database, schema: str) -> str:
    """The character set of texts in new tables that name none."""
    found = database.value(
        "select default_character_set_name from information_schema.schemata where schema_name = %s", schema
    )
    return found or "utf8mb4"


def charsets_of_collations(database: Database) -> dict[int, str]:
    """Character sets by the collations' numbers, by which the log names them."""
    if database.is_mariadb and database.query(
        "select 1 from information_schema.columns where table_schema = 'information_schema' "
        "and table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' and column_name = 'ID'"
    ):
        rows = database.query(
            "select id, character_set_name from information_schema.collation_character_set_applicability"
        )
    else:
        rows = database.query("select id, character_set_name from information_schema.collations")
    return {int(number): charset for number, charset in rows if number is not None and charset is not None}
