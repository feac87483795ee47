"""The ground itself: servers keep their port and data over a kill, and a failure shows the server's log."""

import socket
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.packages import ComponentMissing, require
from tests.support.servers import ApacheKafka, Headwater, ServerFailed, answers_metadata, free_port


def test_a_killed_broker_comes_back_on_its_port_with_its_data() -> None:
    with Headwater() as server:
        port, first = server.port, server.pid
        producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all"})
        producer.produce("kept", b"one")
        assert producer.flush(20) == 0
        server.kill()
        assert not answers_metadata(port)
        server.start()
        assert (server.port, server.pid != first) == (port, True)
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("kept", 0, 0)])
        message = consumer.poll(20)
        consumer.close()
        assert message is not None and message.value() == b"one"


def test_sigterm_ends_the_broker_with_success_and_discards_its_data() -> None:
    server = Headwater()
    with server:
        assert server.stop() == 0
        assert not server.running
    assert not server.data.exists()


def test_a_server_that_cannot_start_shows_its_log() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", free_port()))
        holder.listen()
        server = Headwater(port=holder.getsockname()[1])
        with pytest.raises(ServerFailed, match=r"(?s)ended while starting.*in use"):
            server.start()
        server.discard()


def test_a_port_stays_with_the_process_that_got_it() -> None:
    port = free_port()
    question = (
        f"from tests.support.servers import _reserve; print(_reserve({port}), _reserve({port + 20_000}))"
    )
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "True"]


def test_apache_kafka_answers(kafka: ApacheKafka) -> None:
    assert kafka.running and answers_metadata(kafka.port)


def test_a_missing_program_fails_with_the_way_to_get_it() -> None:
    with pytest.raises(ComponentMissing, match="no-such-program: it is not on PATH"):
        require("no-such-program")
