"""Headwater: a log is the source; everything downstream is derived.

``import headwater as hw`` gives what applications are written with; each name is imported when it is first
used, so that the broker and the command line start without Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from headwater.connect.cdc.factory import cdc as cdc
    from headwater.connect.sinks.factory import parquet as parquet
    from headwater.connect.sinks.factory import redis as redis
    from headwater.connect.sinks.factory import search as search
    from headwater.serve.subscribing import subscribe as subscribe
    from headwater.streams import testing as testing
    from headwater.streams.app import App as App
    from headwater.streams.declarations import LOG_TIME as LOG_TIME
    from headwater.streams.declarations import PROCESSING_TIME as PROCESSING_TIME
    from headwater.streams.formats.avro import avro as avro
    from headwater.streams.formats.debezium import debezium as debezium
    from headwater.streams.formats.protobuf import protobuf as protobuf
    from headwater.streams.joins import join as join
    from headwater.streams.sliding import sliding as sliding
    from headwater.streams.times import corrected_time as corrected_time
    from headwater.streams.times import event_time as event_time
    from headwater.streams.unique import unique as unique
    from headwater.streams.windows import hopping as hopping
    from headwater.streams.windows import session as session
    from headwater.streams.windows import tumbling as tumbling

_HOMES = {
    "App": "streams.app",
    "LOG_TIME": "streams.declarations",
    "PROCESSING_TIME": "streams.declarations",
    "avro": "streams.formats.avro",
    "cdc": "connect.cdc.factory",
    "corrected_time": "streams.times",
    "event_time": "streams.times",
    "debezium": "streams.formats.debezium",
    "hopping": "streams.windows",
    "join": "streams.joins",
    "parquet": "connect.sinks.factory",
    "protobuf": "streams.formats.protobuf",
    "redis": "connect.sinks.factory",
    "search": "connect.sinks.factory",
    "session": "streams.windows",
    "sliding": "streams.sliding",
    "subscribe": "serve.subscribing",
    "testing": "streams",
    "tumbling": "streams.windows",
    "unique": "streams.unique",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    if name == "testing":
        return import_module("headwater.streams.testing")
    return getattr(import_module(f"headwater.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
