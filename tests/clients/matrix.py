"""The clients and what each of them can do: the tests of "every client" run for each line of this table."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.clients import jvm
from tests.clients.records import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Client:
    """A client library, and the parts of Kafka that it implements."""

    name: str
    command: Callable[[], Sequence[str]]  # builds the driver when it must be built
    codecs: Sequence[str] = CODECS
    idempotent: bool = True
    null_headers: bool = True  # whether it can write a header without a value
    null_records: bool = True  # whether it can write a record with neither key nor value
    empties: bool = True  # whether its reader tells an empty key, value or header from none
    header_order: bool = True  # whether it keeps the order of headers when a name comes back
    transactions: bool = True
    groups: Sequence[tuple[str, str]] = ()  # protocol and assignor; the first of each protocol in every run
    static: Sequence[str] = ("classic", "consumer")  # protocols in which it has group.instance.id
    fenced: Sequence[str] = ()  # its names for "a newer producer has this transactional.id"
    lacks: frozenset[str] = field(default_factory=frozenset)  # commands that it cannot do

    def __str__(self) -> str:
        return self.name

    def can_write(self, record: Record) -> bool:
        """Whether the library's producer takes such a record, and its consumer gives it back."""
        if record.key is None and record.value is None and not self.null_records:
            return False
        if not self.empties and b"" in (record.key, record.value, *(value for _, value in record.headers)):
            return False
        names = [name for name, _ in record.headers]
        if not self.header_order and len(set(names)) < len(names):
            return False
        return self.null_headers or all(value is not None for _, value in record.headers)


def _python(module: str) -> Callable[[], Sequence[str]]:
    return lambda: [sys.executable, "-m", f"tests.clients.drivers.{module}"]


CONFLUENT = Client(
    "confluent-kafka",
    _python("confluent"),
    groups=[
        ("classic", "cooperative-sticky"),
        ("classic", "range"),
        ("classic", "roundrobin"),
        ("consumer", "uniform"),
        ("consumer", "range"),
    ],
    fenced=["_FENCED"],
)

KAFKA_PYTHON = Client(
    "kafka-python",
    _python("kafka_python"),
    groups=[("classic", "roundrobin"), ("classic", "cooperative-sticky")],
    null_headers=False,
    null_records=False,
    fenced=["ProducerFencedError", "InvalidProducerEpochError"],
)

AIOKAFKA = Client(
    "aiokafka",
    _python("aiokafka"),
    null_records=False,
    groups=[("classic", "range"), ("classic", "sticky")],
    fenced=["ProducerFenced"],
    # Its alter_configs replaces all settings, and groups cannot be deleted.
    lacks=frozenset({"set_config", "delete_group"}),
)


def _java(version: str, groups: Sequence[tuple[str, str]], codecs: Sequence[str] = CODECS) -> Client:
    return Client(
        f"java-{version}",
        lambda: jvm.program("Driver", version),
        codecs=codecs,
        groups=groups,
        fenced=["ProducerFencedException", "InvalidProducerEpochException"],
    )


JAVA = [
    _java(
        "4.1.1",
        [
            ("classic", "sticky"),
            ("classic", "cooperative-sticky"),
            ("consumer", "uniform"),
            ("consumer", "range"),
        ],
    ),
    _java("4.3.0", [("consumer", "uniform")], ["lz4"]),
    _java("3.9.2", [("classic", "range")], ["snappy"]),
]

USUAL = [CONFLUENT, KAFKA_PYTHON, AIOKAFKA, JAVA[0]]
EVERY_VERSION = [*USUAL, *JAVA[1:]]


def clients(*, every_version: bool = False) -> list[Client]:
    """The clients of this run: a library once, unless ``make clients`` or the test wants each of its versions."""
    chosen = os.environ.get("HEADWATER_TEST_CLIENTS")
    if chosen == "more":
        from tests.clients.more.matrix import MORE

        return MORE
    return EVERY_VERSION if chosen == "all" or every_version else USUAL


def groups_of(client: Client) -> list[tuple[str, str]]:
    """Protocols and assignors to try: one a protocol, or all of them in ``make clients``."""
    if os.environ.get("HEADWATER_TEST_CLIENTS"):
        return list(client.groups)
    first: dict[str, str] = {}
    for protocol, assignor in client.groups:
        first.setdefault(protocol, assignor)
    return list(first.items())


def able(*commands: str) -> list[Client]:
    """The clients that have all of the commands."""
    return [client for client in clients() if not client.lacks.intersection(commands)]
