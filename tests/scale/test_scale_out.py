"""Applications of one file, unchanged, on Apache Kafka, a Spark cluster of two workers and PostgreSQL, told to
them by three variables. A worker and the Kafka node are killed in the middle; the result equals a recompute.

``make scale`` runs it; ``HEADWATER_SEED`` repeats the moments of the kills.
"""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater.views import ViewStore, open_store
from tests.faults.harness import chance, create_topic
from tests.faults.streams import feed as payments
from tests.faults.streams.driver import Driver
from tests.faults.streams.feed import Feed, Record
from tests.faults.streams.verdict import Verdict, committed, different
from tests.support.postgres import Postgres
from tests.support.servers import ApacheKafka
from tests.support.spark_cluster import SparkCluster

pytestmark = [
    pytest.mark.skipif("HEADWATER_SCALE" not in os.environ, reason="make scale"),
    pytest.mark.timeout(1200),
]

REPOSITORY = Path(__file__).resolve().parents[2]
RATE = 300  # records a second
RECOVERY_SECONDS = 240.0
# A node that was killed is let in again by itself as soon as its old session has ended.
KAFKA = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
TEXTS = (
    "In the beginning was the log, and the log was the source.",
    "What follows from the log can be computed again, and again!",
    "A view follows; a topic follows: nothing twice, nothing missing.",
    "Words are counted, and counted once.",
)


class Cluster:
    """Kafka, Spark and PostgreSQL, and a driver that knows them by their addresses."""

    def __init__(self, application: Path, topic: str, view: str, folder: Path, stack: ExitStack) -> None:
        self.topic, self.view = topic, view
        self.kafka = stack.enter_context(ApacheKafka(config=KAFKA))
        self.database = stack.enter_context(Postgres())
        self.spark = stack.enter_context(SparkCluster(workers=2))
        create_topic(self.kafka.bootstrap, topic, 2)
        environment = {
            "HEADWATER_BOOTSTRAP": self.kafka.bootstrap,
            "HEADWATER_SPARK_MASTER": self.spark.address,
            "HEADWATER_STORE": self.database.url(),
            "HEADWATER_DATA": str(folder / "data"),  # seen by driver and workers alike
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self.driver = Driver(application, [], folder / "driver.log", environment)
        stack.callback(self.driver.close)
        self._views: ViewStore | None = None
        stack.callback(self._close_views)

    def covered(self) -> int:
        """How many records of the input the view covers."""
        try:
            self._views = self._views or open_store(self.database.url())
            offsets = self._views.progress(self.view).offsets.get(self.topic, {})
        except HeadwaterError:
            return 0
        return sum(int(offset) for offset in offsets.values())

    def wait_until_covered(self, records: int, why: str) -> float:
        """How long it took until the view covered so many."""
        begin = time.monotonic()
        while self.covered() < records:
            assert self.driver.running, f"{why}: the driver ended\n{self.driver.tail()}"
            assert time.monotonic() - begin < RECOVERY_SECONDS, (
                f"{why}: the view covers {self.covered()} of {records}\n{self.driver.tail()}"
            )
            time.sleep(0.1)
        return time.monotonic() - begin

    def wait_until_level(self, folder: Path) -> None:
        """Waits until every output has everything that is in the log, and what it left out is kept aside."""
        begin = time.time()
        while True:
            assert time.time() - begin < RECOVERY_SECONDS, self.driver.tail()
            for path in (folder / "data" / "status").glob("*.json"):
                status = json.loads(path.read_text())
                if status["at"] > begin + 3 and self._is_level(status["outputs"]):
                    return
            time.sleep(0.2)

    def _is_level(self, outputs: list[dict[str, Any]]) -> bool:
        if any(output["lag"] for output in outputs):  # a view over a view reads no log, and has none
            return False
        if not self._is_kept_aside(f"{self.topic}.dead", max(output["dead"] for output in outputs)):
            return False
        return all(self._is_kept_aside(f"{output['name']}.late", output["late"]) for output in outputs)

    def _is_kept_aside(self, topic: str, count: int) -> bool:
        return not count or len(committed(self.kafka.bootstrap, topic)) >= count

    def _close_views(self) -> None:
        if self._views is not None:
            self._views.close()


def run(
    application: Path,
    topic: str,
    view: str,
    record: Callable[[int], Record],
    folder: Path,
    check: Callable[[Cluster, int], list[str]],
) -> None:
    """Runs the application through both kills, and checks what it has left."""
    dice = chance()
    with ExitStack() as stack:
        cluster = Cluster(application, topic, view, folder, stack)
        feed = stack.enter_context(Feed(cluster.kafka.bootstrap, RATE, topic, record))
        began = time.monotonic()
        cluster.driver.launch()
        cluster.driver.wait_ready()
        ready = time.monotonic() - began
        cluster.wait_until_covered(1, "the first batch")
        assert cluster.spark.cores_used() == 2, "the application does not use both workers"

        time.sleep(dice.uniform(1.0, 5.0))
        cluster.spark.kill_worker(dice.randrange(2))
        after_worker = cluster.wait_until_covered(feed.acknowledged, "after the kill of a worker")
        cluster.spark.start_worker(2)

        time.sleep(dice.uniform(1.0, 5.0))
        cluster.kafka.kill()
        time.sleep(dice.uniform(0.0, 3.0))
        cluster.kafka.start()
        after_kafka = cluster.wait_until_covered(feed.acknowledged + RATE, "after the kill of Kafka")

        sent = feed.finish()
        cluster.wait_until_covered(sent, "at the end")
        cluster.wait_until_level(folder)
        assert cluster.driver.stop() == 0, cluster.driver.tail()
        print(
            f"{application.name}: ready after {ready:.1f} s; level again {after_worker:.1f} s after the kill "
            f"of a worker, and {after_kafka:.1f} s after that of Kafka; {sent} records in all",
            flush=True,
        )
        faults = check(cluster, sent)
        assert not faults, "\n".join(faults)


def line(number: int) -> Record:
    return None, json.dumps({"text": f"{TEXTS[number % len(TEXTS)]} {number % 100}"}).encode()


def test_word_count(tmp_path: Path) -> None:
    def check(cluster: Cluster, sent: int) -> list[str]:
        words = Counter(
            word
            for number in range(sent)
            for word in re.split(r"\W+", json.loads(line(number)[1])["text"].lower())
            if word
        )
        with open_store(cluster.database.url()) as store:
            found = {row["word"]: row["count"] for row in store.rows("word_count")}
        return [] if found == words else [f"{set(found.items()) ^ set(words.items())}"]

    run(REPOSITORY / "examples" / "word_count.py", "lines", "word_count", line, tmp_path, check)


def trade(number: int) -> Record:
    """A trade, out of order by less than the lateness; its key is its number."""
    at = payments.BEGIN + number * timedelta(milliseconds=3) - timedelta(milliseconds=number * 7919 % 5000)
    value = {"symbol": f"S{number % 7}", "price": (number * 37 % 1000 + 1) / 4, "at": at.isoformat()}
    return str(number), json.dumps(value).encode()


def test_stock_statistics(tmp_path: Path) -> None:
    def check(cluster: Cluster, sent: int) -> list[str]:
        late = {int(message.key()) for message in committed(cluster.kafka.bootstrap, "ten_seconds.late")}
        prices: dict[tuple[int, str], list[float]] = {}
        for number in range(sent):
            value = json.loads(trade(number)[1])
            second = int(datetime.fromisoformat(value["at"]).timestamp())
            if number not in late:
                prices.setdefault((second - second % 10, value["symbol"]), []).append(value["price"])
        # Prices are quarters: their sums are exact in whatever order.
        right = {key: (min(all), max(all), sum(all) / len(all), len(all)) for key, all in prices.items()}
        with open_store(cluster.database.url()) as store:
            found = {
                (int(row["window"]["start"].timestamp()), row["symbol"]): (
                    row["low"],
                    row["high"],
                    row["average"],
                    row["trades"],
                )
                for row in store.rows("ten_seconds")
            }
        return different("ten_seconds", found, right)

    application = REPOSITORY / "examples" / "stock_statistics.py"
    run(application, "trades", "ten_seconds", trade, tmp_path, check)


def test_a_topic_and_a_view_of_windows(tmp_path: Path) -> None:
    application = REPOSITORY / "tests" / "faults" / "streams" / "ledger.py"

    def check(cluster: Cluster, sent: int) -> list[str]:
        return Verdict(cluster.kafka.bootstrap, cluster.database.url(), sent, tmp_path).faults()

    run(application, payments.TOPIC, "totals", payments.record_of, tmp_path, check)
