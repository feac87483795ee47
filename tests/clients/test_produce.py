"""Every client writes records of every shape in every codec; it and the reference read them back whole."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError

from tests.clients.matrix import Client, clients
from tests.clients.peer import Peer
from tests.clients.records import null_header, numbered, samples

Peers = Callable[[Client], Peer]
CODECS = [
    pytest.param(client, codec, id=f"{client}-{codec}")
    for client in clients(every_version=True)
    for codec in client.codecs
]


@pytest.mark.parametrize(("client", "codec"), CODECS)
def test_records_of_every_shape(
    client: Client, codec: str, peers: Peers, reference: Peer, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    records = [
        record
        for partition in (0, 1)
        for record in [*samples(partition, seed=partition), null_header(partition)]
        if client.can_write(record)
    ]
    writer = peers(client)
    sent = writer.produce(topic, records, codec=codec, idempotent=client.idempotent)
    offsets = [record.offset for record in sent]
    assert offsets == [*range(len(records) // 2)] * 2
    ends = dict.fromkeys((0, 1), len(records) // 2 - 1)
    assert writer.read(topic, last=ends) == sent
    assert reference.read(topic, last=ends) == sent


@pytest.mark.parametrize("client", clients(), ids=str)
@pytest.mark.parametrize("acks", ["1", "0"])
def test_weaker_acknowledgements(
    client: Client, acks: str, peers: Peers, reference: Peer, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    records = numbered(100, partitions=2)
    peers(client).produce(topic, records, acks=acks)
    # acks=0 is answered before there are offsets, so they are taken from what was read.
    read = reference.read(topic, last={0: 49, 1: 49})
    expected = [
        record.at(i) for p in (0, 1) for i, record in enumerate(r for r in records if r.partition == p)
    ]
    assert read == expected


@pytest.mark.parametrize("client", clients(), ids=str)
def test_reading_from_the_middle_of_a_batch(
    client: Client, peers: Peers, reference: Peer, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    sent = reference.produce(topic, numbered(50), codec="gzip")
    assert peers(client).read(topic, first={0: 17}, last={0: 40}) == sent[17:41]


@pytest.mark.parametrize("client", clients(), ids=str)
def test_a_topic_is_made_by_writing_to_it(
    client: Client, peers: Peers, reference: Peer, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    sent = peers(client).produce(topic, numbered(10))
    assert [record.offset for record in sent] == list(range(10))
    assert reference.read(topic, last={0: 9}) == sent
    assert reference.ask("partitions", topic=topic) == 1


def test_a_topic_is_not_made_when_the_client_forbids_it(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    config = {"bootstrap.servers": bootstrap, "group.id": topic, "allow.auto.create.topics": False}
    consumer = Consumer(config)
    error = consumer.list_topics(topic, timeout=10).topics[topic].error
    assert error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in consumer.list_topics(timeout=10).topics
    consumer.close()
