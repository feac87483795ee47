"""Both sources against an Apache Kafka that asks for a name and a password."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.client.connection import Connection
from headwater.errors import HeadwaterError
from headwater.streams.sources.opening import open_stream
from headwater.streams.sources.topic_read import TopicRead
from tests.streams.sources.conftest import ALL_COLUMNS, Source, TopicWriter, numbered, values_of
from tests.support.servers import HOST, ApacheKafka, free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ada",
    "sasl.password": 'quo"te\\',
}


class SecuredKafka(ApacheKafka):
    """With a second listener, which wants to know who speaks."""

    def __init__(self) -> None:
        super().__init__()
        self.secured_port = free_port()
        controller = f"CONTROLLER://{HOST}:{self._controller_port}"
        secured = f"SASL_PLAINTEXT://{HOST}:{self.secured_port}"
        self.config = {
            "listeners": f"PLAINTEXT://{HOST}:{self.port},{secured},{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            # Written into a properties file, where a backslash counts twice.
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                rf'{_MODULE} required username="broker" password="x" user_ada="quo\\"te\\\\";'
            ),
        }


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafka]:
    with SecuredKafka() as server:
        yield server


@pytest.mark.parametrize("connector", [False, True], ids=["ours", "connector"])
def test_a_name_and_a_password(
    spark: "SparkSession", secured: SecuredKafka, topic: str, tmp_path: Path, connector: bool
) -> None:
    writer = TopicWriter(secured.bootstrap)
    writer.create(topic, partitions=2)
    writer.write(topic, numbered(200), headers=[("a", b"1")], key=b"k")
    address = f"{HOST}:{secured.secured_port}"
    source = Source(spark, address, connector, tmp_path)
    read = TopicRead(
        address, (topic,), properties=PROPERTIES, connector=connector, columns=ALL_COLUMNS, max_rows=150
    )
    rows = source.run(read)
    assert values_of(rows) == numbered(200)
    assert [len(batch) for batch in source.batches] == [150, 50]
    assert {(bytes(row.key), row.headers[0].key, bytes(row.headers[0].value)) for row in rows} == {
        (b"k", "a", b"1")
    }
    assert values_of(source.range(read, {topic: {"0": 5}}, {topic: {"0": 9}})) == numbered(4, 5)
    source.stop()


def test_the_wrong_password(spark: "SparkSession", secured: SecuredKafka, topic: str) -> None:
    properties = PROPERTIES | {"sasl.password": "wrong"}
    read = TopicRead(f"{HOST}:{secured.secured_port}", (topic,), properties=properties)
    with pytest.raises(HeadwaterError, match="uthenticat"):
        open_stream(spark, read)
    assert read.connection == Connection(read.bootstrap, properties)
