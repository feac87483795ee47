"""Spark's own Kafka connector, behind the same interface as our source."""

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.client.connection import addresses
from headwater.errors import InvalidConfig
from headwater.streams.sources.positions import PIECE, flat, nested
from headwater.streams.sources.reading import fetcher_of
from headwater.streams.sources.topic_read import HEADERS, Offsets, TopicRead

FORMAT = "kafka"
_EARLIEST = -2  # as an offset, in the connector's words

# What the Java client calls otherwise than librdkafka, or has as a text where librdkafka has a file.
_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "socket.timeout.ms": "request.timeout.ms",
}
_SAME = ("security.protocol", "sasl.", "client.id", "client.rack", "fetch.", "request.timeout.ms")
_JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def connector_stream(spark: SparkSession, read: TopicRead) -> DataFrame:
    """The topics as a stream of raw values."""
    options = _options(read)
    position = read.start_position()
    if isinstance(position, dict):
        named = flat(position)
        places = fetcher_of(read).partitions(read.topics)
        options["startingOffsets"] = json.dumps(
            nested({place: named.get(place, _EARLIEST) for place in places})
        )
    elif isinstance(position, int):
        options |= {"startingTimestamp": str(position), "startingOffsetsByTimestampStrategy": "latest"}
    else:
        options["startingOffsets"] = position
    if read.max_rows is not None:
        options["maxOffsetsPerTrigger"] = str(read.max_rows)
    return _columns(spark.readStream.format(FORMAT).options(**options).load(), read)


def connector_range(spark: SparkSession, read: TopicRead, start: Offsets, end: Offsets) -> DataFrame:
    """The records between two positions, with raw values."""
    stop = flat(end)
    first = {place: at for place, at in flat(start).items() if place in stop and at <= stop[place]}
    begin = nested({place: first.get(place, _EARLIEST) for place in stop})
    options = _options(read) | {"startingOffsets": json.dumps(begin), "endingOffsets": json.dumps(end)}
    del options["subscribe"]
    options["assign"] = json.dumps({topic: [int(n) for n in numbers] for topic, numbers in end.items()})
    return _columns(spark.read.format(FORMAT).options(**options).load(), read)


def _options(read: TopicRead) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": ",".join(f"{host}:{port}" for host, port in addresses(read.bootstrap)),
        "kafka.isolation.level": "read_committed",
        "subscribe": ",".join(read.topics),
        "failOnDataLoss": "true" if read.on_gap == "fail" else "false",
        "includeHeaders": str(HEADERS in read.columns).lower(),
        # By the ranges alone, as ours: a batch that is run again is cut into the same tasks.
        "maxRecordsPerPartition": str(PIECE),
        **{f"kafka.{name}": value for name, value in java_properties(read.properties).items()},
    }


def _columns(raw: DataFrame, read: TopicRead) -> DataFrame:
    return raw.select(*(F.col(name) for name in read.columns))


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Client properties by librdkafka's names, as the Java client has them. Others do not reach it.

    >>> java_properties({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "linger.ms": "5"})
    {'security.protocol': 'SASL_PLAINTEXT', 'sasl.mechanism': 'PLAIN'}
    """
    translated: dict[str, str] = {}
    for name, value in properties.items():
        if name in ("sasl.username", "sasl.password"):
            continue
        java = _RENAMED.get(name, name)
        if java.startswith(_SAME):
            translated[java] = value
    if "sasl.username" in properties:
        translated["sasl.jaas.config"] = _jaas(properties, translated.get("sasl.mechanism", ""))
    return translated | _tls(properties)


def _jaas(properties: Mapping[str, str], mechanism: str) -> str:
    module = _JAAS.get(mechanism.upper())
    if module is None:
        cause = f"{mechanism or 'no mechanism'} cannot be handed to Spark's Kafka connector"
        raise InvalidConfig("use", "sasl.mechanism", cause, f"Use one of {', '.join(_JAAS)}.")
    user, password = (
        properties.get(name, "").replace("\\", "\\\\").replace('"', '\\"')
        for name in ("sasl.username", "sasl.password")
    )
    return f'{module} required username="{user}" password="{password}";'


def _tls(properties: Mapping[str, str]) -> dict[str, str]:
    translated: dict[str, str] = {}
    authorities = _pem(properties, "ssl.ca")
    if authorities:
        translated |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    chain, key = _pem(properties, "ssl.certificate"), _pem(properties, "ssl.key")
    if chain and key:
        translated |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": key,
        }
    if "ssl.key.password" in properties:
        translated["ssl.key.password"] = properties["ssl.key.password"]
    if properties.get("ssl.endpoint.identification.algorithm", "https") == "none":
        translated["ssl.endpoint.identification.algorithm"] = ""
    return translated


def _pem(properties: Mapping[str, str], name: str) -> str | None:
    """A PEM that librdkafka takes as a text or from a file."""
    if f"{name}.pem" in properties:
        return properties[f"{name}.pem"]
    location = properties.get(f"{name}.location")
    if location is None:
        return None
    try:
        return Path(location).read_text()
    except OSError as error:
        cause = error.strerror or str(error)
        raise InvalidConfig("read", f"{name}.location {location}", cause, "Name a PEM file.") from error
