"""Values in Avro, Protobuf and Debezium's envelope, by their functions and through the engine."""

import importlib
import io
import json
import math
import struct
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from grpc_tools import protoc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.errors import ApplicationInvalid, RequestFailed
from headwater.streams.formats import avro, debezium, protobuf, registry
from headwater.streams.sources.spark_json import decode_in_spark
from headwater.streams.sources.topic_read import PROBLEM
from headwater.streams.values import decoder, parsed, texts
from tests.streams.conftest import Bench, settle, wait_for

# -- Avro ------------------------------------------------------------------------------------------

CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "page", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "last", "type": "Kind"},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {
            "name": "place",
            "type": {"type": "record", "name": "P", "fields": [{"name": "x", "type": "double"}]},
        },
    ],
}
MOMENT = datetime(2026, 1, 5, 10, 0, 0, 123456, tzinfo=UTC)
VALUE = {
    "id": 7,
    "page": "/",
    "price": Decimal("12.50"),
    "at": MOMENT,
    "tags": ["a", "b"],
    "counts": {"x": 1},
    "kind": "OLD",
    "last": "NEW",
    "raw": b"\x00\xff",
    "place": {"x": 0.5},
}


def written(value: dict[str, Any], schema: Any = CLICK) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_the_columns_of_an_avro_record() -> None:
    assert avro.ddl(hw.avro(CLICK)) == (
        "`id` bigint, `page` string, `price` decimal(8,2), `at` timestamp, `tags` array<string>, "
        "`counts` map<string,int>, `kind` string, `last` string, `raw` binary, `place` struct<`x`:double>"
    )


def test_avro_values_arrive_as_they_were_written(spark: SparkSession) -> None:
    [row] = rows(spark, hw.avro(CLICK), [written(VALUE)])
    expected = VALUE | {"at": MOMENT.replace(tzinfo=None)}
    assert {**row, "raw": bytes(row["raw"])} == expected
    [empty] = rows(spark, hw.avro(CLICK), [written(VALUE | {"page": None, "tags": []})])
    assert (empty["page"], empty["tags"]) == (None, [])


def test_avro_numbers_that_are_none_and_times_of_day(spark: SparkSession) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "x", "type": {"type": "array", "items": "double"}},
            {"name": "t", "type": {"type": "long", "logicalType": "time-micros"}},
            {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    made = {"x": [0.5, math.inf, -math.inf], "t": time(10, 0, 0, 5), "u": UUID(int=7), "d": date(2026, 1, 5)}
    [row] = rows(spark, hw.avro(schema), [written(made, schema)])
    assert row == {**made, "t": "10:00:00.000005", "u": str(UUID(int=7))}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "it is not Avro of the schema"),
        (written(VALUE)[:-3], "it is not Avro of the schema"),
        (written(VALUE) + b"\x00", "it is longer than the schema says"),
        (b"\xff" * 40, "it is not Avro of the schema"),
    ],
)
def test_what_is_not_avro_has_a_problem(value: bytes, problem: str) -> None:
    assert problem in problem_of(hw.avro(CLICK), value)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{torn", "Expecting"),
        ('"string"', "has to be a record"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]}, "union"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "Unknown"}]}, "'Unknown'"),
    ],
)
def test_a_schema_without_columns_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(ApplicationInvalid, match=why):
        avro.ddl(hw.avro(schema))


class Registry:
    """A schema registry with two versions of a schema, which counts what it is asked."""

    def __init__(self) -> None:
        older = {**CLICK, "fields": [field for field in CLICK["fields"] if field["name"] != "page"]}
        self.schemas = {1: older, 2: CLICK}
        self.asked: list[int] = []
        self.broken = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                number = int(self.path.rsplit("/", 1)[-1])
                outer.asked.append(number)
                schema = outer.schemas.get(number)
                self.send_response(500 if outer.broken else 200 if schema else 404)
                self.end_headers()
                self.wfile.write(json.dumps({"schema": json.dumps(schema)}).encode())

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def value(self, number: int, value: dict[str, Any]) -> bytes:
        return struct.pack(">bI", 0, number) + written(value, self.schemas[number])


@pytest.fixture
def schemas() -> Iterator[Registry]:
    served = Registry()
    yield served
    served.server.shutdown()
    registry.schema_by_number.cache_clear()


def test_values_are_resolved_from_the_schema_they_were_written_with(schemas: Registry) -> None:
    read = decoder(hw.avro(CLICK, registry=schemas.url))
    older = {name: value for name, value in VALUE.items() if name != "page"}
    assert read(schemas.value(2, VALUE)) == VALUE
    for _ in range(5):
        assert read(schemas.value(1, older)) == {**VALUE, "page": None}
    assert sorted(schemas.asked) == [1, 2], "each schema is asked for once"


def test_what_the_registry_does_not_know_is_a_problem_and_its_silence_is_not(schemas: Registry) -> None:
    kind = hw.avro(CLICK, registry=schemas.url)
    assert problem_of(kind, struct.pack(">bI", 0, 99) + b"x") == "the registry has no schema 99"
    assert "does not begin with the number of a schema" in problem_of(kind, written(VALUE)[:3])
    schemas.broken = True
    with pytest.raises(RequestFailed, match="it answered 500"):
        problem_of(kind, schemas.value(2, VALUE))
    schemas.broken = False
    assert texts(pa.array([schemas.value(2, VALUE)]), decoder(kind)).to_pylist()[0]["problem"] is None


# -- Protobuf --------------------------------------------------------------------------------------

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";

enum Kind { NEW = 0; OLD = 1; }

message Place { double x = 1; }

message Order {
  int64 id = 1;
  string page_name = 2;
  repeated string tags = 3;
  map<string, int32> counts = 4;
  Kind kind = 5;
  bytes raw = 6;
  Place place = 7;
  google.protobuf.Timestamp at = 8;
  uint64 large = 9;
  optional int32 maybe = 10;
  oneof choice { string left = 11; int64 right = 12; }
  google.protobuf.Duration took = 13;
  repeated double numbers = 14;
  map<bool, Place> places = 15;
}

message Tree { Tree left = 1; }
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The classes that protoc makes, and its descriptors beside them."""
    folder = tmp_path_factory.mktemp("protobuf")
    (folder / "hw_shop.proto").write_text(SHOP)
    include = str(Path(protoc.__file__).parent / "_proto")
    arguments = ["protoc", f"-I{folder}", f"-I{include}", f"--python_out={folder}"]
    arguments += [f"--descriptor_set_out={folder / 'shop.desc'}", "--include_imports", "hw_shop.proto"]
    assert protoc.main(arguments) == 0
    sys.path.insert(0, str(folder))
    module = importlib.import_module("hw_shop_pb2")
    module.descriptors = folder / "shop.desc"  # type: ignore[attr-defined]
    yield module
    sys.path.remove(str(folder))


def order(generated: Any) -> Any:
    made = generated.Order(id=2**60, page_name="/", tags=["a"], counts={"x": 1}, kind=1, raw=b"\x00\xff")
    made.place.x, made.large = 0.5, 2**64 - 1
    made.at.FromDatetime(MOMENT)
    made.right, made.took.seconds = -5, 90
    made.numbers.extend([1.5, -math.inf])
    made.places[True].x = 2.0
    return made


def ways(generated: Any) -> list[Any]:
    """The same message, named in each way."""
    return [
        hw.protobuf(generated.Order),
        hw.protobuf("hw_shop_pb2:Order"),
        hw.protobuf("shop.Order", descriptors=generated.descriptors),
    ]


def test_the_columns_of_a_message(generated: Any) -> None:
    for kind in ways(generated):
        assert protobuf.ddl(kind) == (
            "`id` bigint, `page_name` string, `tags` array<string>, `counts` map<string,int>, `kind` string, "
            "`raw` binary, `place` struct<`x`:double>, `at` timestamp, `large` decimal(20,0), `maybe` int, "
            "`left` string, `right` bigint, `took` struct<`seconds`:bigint,`nanos`:int>, "
            "`numbers` array<double>, `places` map<string,struct<`x`:double>>"
        )


def test_messages_arrive_as_they_were_written(spark: SparkSession, generated: Any) -> None:
    for kind in ways(generated):
        full, empty = rows(
            spark, kind, [order(generated).SerializeToString(), generated.Order(id=1).SerializeToString()]
        )
        assert {**full, "raw": bytes(full["raw"])} == {
            "id": 2**60,
            "page_name": "/",
            "tags": ["a"],
            "counts": {"x": 1},
            "kind": "OLD",
            "raw": b"\x00\xff",
            "place": {"x": 0.5},
            "at": MOMENT.replace(tzinfo=None),
            "large": Decimal(2**64 - 1),
            "maybe": None,
            "left": None,
            "right": -5,
            "took": {"seconds": 90, "nanos": 0},
            "numbers": [1.5, -math.inf],
            "places": {"true": {"x": 2.0}},
        }
        # What is not set has its default, or nothing where the message says that it may be missing.
        assert (empty["page_name"], empty["kind"], empty["large"]) == ("", "NEW", 0)
        assert (empty["place"], empty["at"], empty["maybe"]) == (None, None, None)


def test_what_is_not_a_message_has_a_problem(generated: Any) -> None:
    kind = hw.protobuf(generated.Order)
    assert "it is not a hw_shop_pb2:Order" in problem_of(kind, b"\xff\xff\xff")
    whole = order(generated).SerializeToString()
    assert "it is not a hw_shop_pb2:Order" in problem_of(kind, whole[:-1])
    never = generated.Order()
    never.at.seconds = 2**60
    assert "seconds is out of range" in problem_of(kind, never.SerializeToString())


def test_the_registrys_header_is_passed_over(generated: Any) -> None:
    kind = hw.protobuf(generated.Order, registry=True)
    whole = order(generated).SerializeToString()
    read = decoder(kind)
    for places in (b"\x00", b"\x02\x00", b"\x04\x02\x80\x01"):  # the first message; the same; a nested one
        assert read(b"\x00" + struct.pack(">I", 7) + places + whole)["page_name"] == "/"
    assert "does not begin with the number of a schema" in problem_of(kind, whole)
    assert "it ends within its header" in problem_of(kind, b"\x00\x00\x00\x00\x07\x04\x80")


def test_a_message_that_is_not_there_or_has_no_columns_is_refused(generated: Any) -> None:
    with pytest.raises(ApplicationInvalid, match="contains itself"):
        protobuf.ddl(hw.protobuf(generated.Tree))
    for missing in ("hw_shop_pb2:Nope", "no_such_module:Order"):
        with pytest.raises(ApplicationInvalid, match="Give a generated class"):
            protobuf.ddl(hw.protobuf(missing))
    with pytest.raises(ApplicationInvalid, match="it is not in the descriptors"):
        protobuf.ddl(hw.protobuf("shop.Nope", descriptors=generated.descriptors))


# -- Debezium --------------------------------------------------------------------------------------


def change(op: str, before: Any, after: Any) -> dict[str, Any]:
    source = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "users"}
    return {
        "before": before,
        "after": after,
        "op": op,
        "ts_ms": 1767607200000,
        "source": {**source, "ts_ms": 5, "lsn": 99, "sequence": "[1,2]"},
        "transaction": None,
    }


def test_change_events_in_both_shapes(spark: SparkSession) -> None:
    events = [
        change("c", None, {"id": 1, "name": "anna"}),
        {"schema": {"type": "struct"}, "payload": change("u", {"id": 1, "name": "anna"}, {"id": 1})},
        change("d", {"id": 1, "name": "x"}, None),
        {"id": 1, "name": "not a change"},
        {"schema": {}, "payload": {"after": {"id": 1}}},
    ]
    kind = hw.debezium("id long, name string")
    envelope = parsed(debezium.ddl(kind))
    raw = spark.createDataFrame([(json.dumps(event),) for event in events] + [(None,)], "value string")
    decoded = decode_in_spark(raw, debezium.both_shapes(envelope))
    found = debezium.unwrapped(decoded, envelope).collect()
    changes = [row["value"].asDict(recursive=True) if row["value"] else None for row in found]
    assert [each and (each["op"], each["before"], each["after"]) for each in changes] == [
        ("c", None, {"id": 1, "name": "anna"}),
        ("u", {"id": 1, "name": "anna"}, {"id": 1, "name": None}),
        ("d", {"id": 1, "name": "x"}, None),
        None,
        None,
        None,
    ]
    assert changes[0]["source"]["table"] == changes[1]["source"]["table"] == "users"  # type: ignore[index]
    assert [row[PROBLEM] for row in found] == [
        *[None] * 3,
        *["it is not a change event: it has no op"] * 2,
        None,  # a tombstone
    ]


# -- through the engine ----------------------------------------------------------------------------


def test_all_formats_through_the_engine(bench: Bench, generated: Any, schemas: Registry) -> None:
    app = hw.App("formats")
    app.stream("avros", format=hw.avro(CLICK, registry=schemas.url), time="at", lateness="1 minute")
    protos = hw.protobuf("shop.Order", descriptors=generated.descriptors)
    app.stream("protos", format=protos)
    app.stream("users", format=hw.debezium("id long, name string"))

    @app.view(key=["window", "kind"])
    def clicks(avros: DataFrame) -> DataFrame:
        return avros.groupBy(hw.tumbling("at", "1 minute"), "kind").agg(F.sum("price").alias("revenue"))

    @app.view(key="page_name")
    def pages(protos: DataFrame) -> DataFrame:
        return protos.groupBy("page_name").agg(F.max("large").alias("large"), F.count("*").alias("n"))

    @app.view(key="op")
    def changes(users: DataFrame) -> DataFrame:
        return users.groupBy("op").agg(F.max("after.name").alias("name"))

    message = order(generated).SerializeToString()
    with bench.running(app) as engine:
        bench.send("avros", [schemas.value(2, VALUE), b"bad", schemas.value(2, VALUE)])
        bench.send("protos", [message, message[:-1], message])
        bench.send("users", [change("c", None, {"id": 1, "name": "anna"}), b'{"id": 1}', None])
        settle(engine)
        [minute] = engine.store.rows("clicks")
        assert (minute["kind"], minute["revenue"]) == ("OLD", Decimal("25.00"))
        assert minute["window"]["start"] == MOMENT.replace(second=0, microsecond=0)
        assert engine.store.rows("pages") == [{"page_name": "/", "large": Decimal(2**64 - 1), "n": 2}]
        assert engine.store.rows("changes") == [{"op": "c", "name": "anna"}]
        wait_for(lambda: all(bench.messages(f"{name}.dead") for name in ("avros", "protos", "users")))
    for name, value, reason in (
        ("avros", b"bad", "it does not begin with the number of a schema"),
        ("protos", message[:-1], "it is not a shop.Order"),
        ("users", b'{"id": 1}', "it is not a change event: it has no op"),
    ):
        [dead] = bench.messages(f"{name}.dead")
        assert dead.value() == value
        headers = {key: bytes(held).decode() for key, held in dead.headers() or []}
        assert headers["headwater.offset"] == "1" and reason in headers["headwater.reason"]


def rows(spark: SparkSession, kind: Any, values: list[bytes]) -> list[dict[str, Any]]:
    """Values as the columns of a stream, decoded as the engine does it: to JSON in Python, by Spark from there."""
    module = avro if kind.name == "avro" else protobuf
    schema = parsed(module.ddl(kind))
    found = texts(pa.array(values, pa.binary()), decoder(kind)).to_pylist()
    assert [each["problem"] for each in found] == [None] * len(values)
    raw = spark.createDataFrame([(each["text"],) for each in found], "value string")
    decoded = decode_in_spark(raw, schema).collect()
    assert [row[PROBLEM] for row in decoded] == [None] * len(values)
    return [row["value"].asDict(recursive=True) for row in decoded]


def problem_of(kind: Any, value: bytes) -> str:
    [found] = texts(pa.array([value], pa.binary()), decoder(kind)).to_pylist()
    assert found["text"] is None
    return str(found["problem"])
