"""A column of a captured table: the type that reads its values out of change events, in Spark's words. Pure.

Change events are JSON, in which a date is a number of days and a decimal a text of bytes. Who captures a database
knows what its columns became there, and so which type reads them.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Scale = int | Literal["any"]


class Reading(NamedTuple):
    """How the values of a column are read.

    `type` is a type of Spark. `unit` is what a timestamp counts that is a number. Numbers that no decimal of Spark can
    hold are strings of their digits: `scale` says where the point is in Debezium's bytes, or that each value says it.
    """

    type: str
    unit: str | None = None
    scale: Scale | None = None


@dataclass(frozen=True)
class Column:
    """One column, in the order of the table."""

    name: str
    reading: Reading

    @property
    def type(self) -> str:
        """Its type in Spark's words."""
        return self.reading.type


MOST_DIGITS = 38  # of a decimal in Spark

STRING = Reading("string")
BIGINT = Reading("bigint")
DOUBLE = Reading("double")
BOOLEAN = Reading("boolean")
BINARY = Reading("binary")
DATE = Reading("date")
MOMENT = Reading("timestamp")
POINT = Reading("struct<x:double,y:double,wkb:binary,srid:bigint>")
GEOMETRY = Reading("struct<wkb:binary,srid:bigint>")


def decimal(precision: int, scale: int) -> Reading:
    """A decimal of the database: one of Spark where that has room for it, else its digits.

    >>> decimal(10, 2), decimal(2, 5), decimal(50, 10)
    (Reading(type='decimal(10,2)', unit=None, scale=None), Reading(type='decimal(5,5)', unit=None, scale=None), \
Reading(type='string', unit=None, scale=10))
    """
    digits = max(precision, scale)
    if scale < 0 or digits > MOST_DIGITS:
        return Reading("string", scale=scale)
    return Reading(f"decimal({digits},{scale})")


def local_timestamp(digits: int) -> Reading:
    """A timestamp without a zone: milliseconds up to three digits of a second, else microseconds.

    >>> local_timestamp(6).unit
    'micros'
    """
    return Reading("timestamp_ntz", unit="millis" if digits <= 3 else "micros")
