"""The broker that the clients are tried on, and their driver processes."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.matrix import CONFLUENT, Client
from tests.clients.peer import Peer
from tests.clients.waiting import until
from tests.support.servers import ApacheKafka, Headwater, Server

collect_ignore = [
    "drivers",
    "more",
]  # programs, not tests: they import clients that this process does not need

# What makes the tests quick.
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
}
KAFKA_SETTINGS = {
    **SETTINGS,
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
}
RUN = f".{int(time.time())}" if os.environ.get("HEADWATER_TEST_BOOTSTRAP") else ""


def on_kafka() -> bool:
    """Whether the run checks the tests themselves, on Apache Kafka."""
    return os.environ.get("HEADWATER_TEST_SERVER") == "kafka"


def make_server() -> Server:
    """A broker that is not started yet."""
    if on_kafka():
        return ApacheKafka(config=KAFKA_SETTINGS)
    return Headwater(arguments=[part for pair in SETTINGS.items() for part in ("--set", "=".join(pair))])


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The broker under test."""
    with make_server() as server:
        yield server


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Its address; HEADWATER_TEST_BOOTSTRAP names one that runs already."""
    running = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
    if running:
        return running
    server: Server = request.getfixturevalue("server")
    return server.bootstrap


@pytest.fixture
def unique(unique: Callable[[str], str]) -> Callable[[str], str]:
    """Names that no other test uses, nor an earlier run on the same broker."""

    def name(purpose: str = "topic") -> str:
        return f"{unique(purpose)}{RUN}"

    return name


class Pool:
    """Driver processes, used again by later tests: a warm JVM is worth keeping."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._idle: dict[str, list[Peer]] = defaultdict(list)

    def take(self, client: Client) -> Peer:
        idle = self._idle[client.name]
        return idle.pop() if idle else Peer(client.name, client.command(), self._bootstrap)

    def give_back(self, peer: Peer) -> None:
        try:
            peer.ask("reset", timeout=20)
        except AssertionError:
            peer.kill()
            peer.close()
        else:
            self._idle[peer.client].append(peer)

    def close(self) -> None:
        for idle in self._idle.values():
            for peer in idle:
                peer.close()


@pytest.fixture(scope="session")
def pool(bootstrap: str) -> Iterator[Pool]:
    pool = Pool(bootstrap)
    yield pool
    pool.close()


@pytest.fixture
def peers(pool: Pool) -> Iterator[Callable[[Client], Peer]]:
    """Driver processes of any client, for the time of the test."""
    taken: list[Peer] = []

    def take(client: Client) -> Peer:
        taken.append(pool.take(client))
        return taken[-1]

    yield take
    for peer in taken:
        pool.give_back(peer)


@pytest.fixture
def reference(peers: Callable[[Client], Peer]) -> Peer:
    """The client that checks what the others did, and sets the stage for them."""
    return peers(CONFLUENT)


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> Any:
    """confluent-kafka's AdminClient in this process."""
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def make_topic(reference: Peer, unique: Callable[[str], str]) -> Callable[..., str]:
    """Create a topic that no other test uses: ``make_topic(partitions=3, config={...})``."""

    def make(partitions: int = 1, config: dict[str, str] | None = None, purpose: str = "topic") -> str:
        name = unique(purpose)
        reference.ask("create_topic", topic=name, partitions=partitions, config=config or {})
        # Apache Kafka's controller may answer before its broker knows the topic.
        until(lambda: name in reference.ask("topics"), lambda there: there, f"{name} is there")
        return name

    return make
