"""Fixtures that all tests share: one broker of ours and one Apache Kafka, started when first asked for."""

import itertools
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.support import java
from tests.support.mariadb import MariaDB
from tests.support.postgres import Postgres
from tests.support.servers import ApacheKafka, Headwater

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A runner in the background has SIGINT ignored, and its children inherit that; tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more about what else the machine does than about us.
hypothesis.settings.register_profile(
    "headwater", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("headwater")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def headwater() -> Iterator[Headwater]:
    """The embedded broker that tests share. A test that kills or fills a broker starts its own.

    Retention does not look: many tests write records of years ago, and want to read them.
    """
    with Headwater(arguments=["--set", "log.retention.check.interval.ms=86400000"]) as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[ApacheKafka]:
    """The Apache Kafka that tests share."""
    with ApacheKafka(options=[java.QUICK_OPTION]) as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The Spark session that tests share, with the settings of the engine and the jars of the connector."""
    from headwater.streams.engine.session import start_session
    from headwater.streams.settings import load_stream_settings
    from tests.support import jars

    os.environ |= java.QUICK
    settings = load_stream_settings(data=tmp_path_factory.mktemp("spark"), master="local[2]")
    # Else no test would last until Spark looks after its state.
    settings = replace(settings, spark={"spark.sql.streaming.stateStore.maintenanceInterval": "2s"})
    session = start_session(settings, "tests", jars=jars.spark_connector())
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL server that tests share, each with a schema of its own."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """The MariaDB server that tests share, each with a database of its own; its log has the columns' names."""
    with MariaDB({"binlog-row-metadata": "FULL"}) as server:
        yield server


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other test uses: ``unique("orders")`` is a topic or a group of this test alone."""
    test = re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.name)[:80].strip("-")

    def name(purpose: str = "topic") -> str:
        return f"{test}.{purpose}.{next(_numbers)}"

    return name


@pytest.fixture
def topic(unique: Callable[[str], str]) -> str:
    """The name of a topic that no other test uses; it is not created."""
    return unique("topic")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what has a target of its own, so that ``make test`` stays short.

    Commands and client are tried against both brokers by ``make commands``. Against Apache Kafka here: of the client
    what has one case and kills nobody. Tests marked as wide run in ``make test-wide``
    and where things are killed many times.
    """
    both = os.environ.get("HEADWATER_TEST_SERVERS") == "both"
    wide = any(os.environ.get(name) for name in ("HEADWATER_WIDE", "HEADWATER_KILLS"))
    left_out = [
        item
        for item in items
        if (not both and _is_for_both(item.nodeid)) or (not wide and item.get_closest_marker("wide"))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_for_both(test: str) -> bool:
    """Whether ``make commands`` is enough for this case of a test."""
    if not re.search(r"\[(kafka|ApacheKafka)\b", test):
        return False
    if test.startswith("tests/client/"):
        return "[kafka-" in test or "[ApacheKafka" in test  # one that is killed takes half a minute
    return test.startswith("tests/cli/")
