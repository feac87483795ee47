"""The columns of a table of MariaDB or MySQL, by the types that read them out of its change events."""

from collections.abc import Collection, Sequence
from typing import Any

from headwater.connect.cdc.mysql.catalog import read_tables
from headwater.connect.cdc.mysql.changes import Naming
from headwater.connect.cdc.mysql.connection import Database, StatementFailed
from headwater.connect.cdc.mysql.schema import GEOMETRIES, TEXTUAL, Filter, parse_type
from headwater.connect.cdc.mysql.schema import Column as TableColumn
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    GEOMETRY,
    MOMENT,
    POINT,
    STRING,
    Column,
    Reading,
    decimal,
    local_timestamp,
)
from headwater.errors import CaptureImpossible

_SIMPLE = {
    "tinyint": BIGINT,
    "smallint": BIGINT,
    "mediumint": BIGINT,
    "int": BIGINT,
    "bigint": BIGINT,
    "year": BIGINT,
    "time": BIGINT,
    "float": DOUBLE,
    "double": DOUBLE,
    "date": DATE,
    "timestamp": MOMENT,
    "point": POINT,
    "geometry": POINT,  # which may be a point
    "json": STRING,
    "uuid": STRING,
    "inet4": STRING,
    "inet6": STRING,
}


def reading(column: TableColumn) -> Reading:
    """How the values of a column are read.

    >>> [reading(TableColumn("c", kind)).type for kind in ("int(11)", "bigint(20) unsigned", "decimal(10,2)", "bit(1)")]
    ['bigint', 'decimal(20,0)', 'decimal(10,2)', 'boolean']
    >>> reading(TableColumn("c", "datetime(6)"))
    Reading(type='timestamp_ntz', unit='micros', scale=None)
    >>> reading(TableColumn("c", "varchar(20)", "utf8mb4")).type, reading(TableColumn("c", "varbinary(20)")).type
    ('string', 'binary')
    """
    declared = parse_type(column.type)
    base, numbers = declared.base, declared.numbers
    if base == "bigint" and declared.unsigned:
        return Reading("decimal(20,0)")
    if base in _SIMPLE:
        return _SIMPLE[base]
    if base == "decimal":
        return decimal(numbers[0] if numbers else 10, numbers[1] if len(numbers) > 1 else 0)
    if base == "datetime":
        return local_timestamp(numbers[0] if numbers else 0)
    if base == "bit":
        return BOOLEAN if (numbers or [1])[0] == 1 else BINARY
    if base in GEOMETRIES:
        return GEOMETRY
    if base in ("enum", "set"):
        return STRING
    return BINARY if column.charset in (None, "binary") else STRING


def reading_of(declared: str, values: Collection[Any]) -> Reading:
    """By the type of a column in a schema event, which leaves the character set out: what has none is no text.

    >>> reading_of("varchar(20)", []).type, reading_of("varbinary(20)", []).type
    ('string', 'binary')
    """
    return reading(TableColumn("", declared, "utf8mb4" if parse_type(declared).base in TEXTUAL else None))


def read_columns(options: CdcOptions, topic: str) -> Sequence[Column] | None:
    """The columns of the table that becomes a topic; None when there is no such table."""
    database = Database(options.url)
    try:
        naming = Naming(options, "mariadb" if database.is_mariadb else "mysql")
        tables = read_tables(database, Filter(options.path_name, options.tables)).values()
        table = next((each for each in tables if naming.topic(each) == topic), None)
        return None if table is None else [Column(each.name, reading(each)) for each in table.visible]
    except StatementFailed as error:
        raise CaptureImpossible("ask", database.subject, str(error)) from error
    finally:
        database.close()
