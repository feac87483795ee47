"""Traffic for the shop: a database that is written to, a web page that sends clicks, a gateway of sensors.

Each has a thread of its own, follows its schedule, and falls behind rather than send more than that when something
downstream is slow. What it has begun it finishes: `stop` comes back when everything sent has been acknowledged.
"""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Producer

from examples.shop import schedule
from examples.shop.database import Shop

STEP_SECONDS = 0.2
AT_ONCE = 200  # events of a request
PATIENCE = 60.0  # for a server that is away


@dataclass
class Counts:
    """What was sent."""

    orders: int = 0
    lines: int = 0
    clicks: int = 0
    refused: int = 0  # of the clicks: they do not fit the schema
    repeated: int = 0  # requests that had to be sent again
    readings: int = 0
    failures: list[str] = field(default_factory=list)


class Traffic:
    """Starts with `start`, ends with `stop`."""

    def __init__(self, database: Path, url: str, bootstrap: str, seed: int, rate: float = 1.0) -> None:
        self._file, self._url, self._bootstrap = database, url, bootstrap
        self._seed, self._rate = seed, rate
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._began = datetime.now(UTC)
        self.counts = Counts()

    def start(self) -> None:
        self._began = datetime.now(UTC)
        for work in (self._trade, self._browse, self._measure):
            thread = threading.Thread(target=self._run, args=(work,), name=work.__name__, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """No more is begun; returns when what was begun is done."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # whatever it is, the demo has to tell of it
            self.counts.failures.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _due(self, happenings: Iterator[Any], most: int = AT_ONCE) -> Iterator[list[Any]]:
        """What is due, a little at a time, until it is time to stop."""
        begin = time.monotonic()
        following = next(happenings)
        while not self._stopping.wait(STEP_SECONDS):
            now = time.monotonic() - begin
            due: list[Any] = []
            while following.due <= now and len(due) < most:
                due.append(following)
                following = next(happenings)
            if due:
                yield due

    def _moment(self, at: float) -> str:
        return (self._began + timedelta(seconds=at)).isoformat(timespec="milliseconds")

    # -- the three -----------------------------------------------------------------------------------

    def _trade(self) -> None:
        shop = Shop(self._file)
        try:
            for due in self._due(schedule.deeds(self._seed, self._rate)):
                for deed in due:
                    if deed.what == "order":
                        self.counts.lines += shop.order(deed.customer, deed.wanted)
                        self.counts.orders += 1
                    elif deed.what == "ship":
                        shop.ship()
                    else:
                        shop.deliver()
        finally:
            shop.close()

    def _browse(self) -> None:
        numbers = itertools.count(1)
        with httpx.Client(base_url=self._url, timeout=PATIENCE) as client:
            for due in self._due(schedule.clicks(self._seed, self._rate)):
                lines = [json.dumps({**event.content, "at": self._moment(event.at)}) for event in due]
                # A key for each request: it can be repeated until there is an answer, and is written once.
                key = f"{self._began.timestamp():.6f}-{next(numbers)}"
                receipt = self._post(client, "\n".join(lines), key)
                self.counts.clicks += receipt["taken"]
                self.counts.refused += receipt["refused"]

    def _post(self, client: httpx.Client, lines: str, key: str) -> dict[str, Any]:
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        end = time.monotonic() + PATIENCE
        while True:
            cause = ""
            try:
                answer = client.post("/topics/clicks?key=session", content=lines, headers=headers)
                if answer.status_code in (200, 207, 422):
                    receipt: dict[str, Any] = answer.json()
                    return receipt
                if answer.status_code not in (429, 503):
                    raise RuntimeError(answer.text)
                cause = answer.text
                pause = float(answer.headers.get("Retry-After", 1))
            except httpx.TransportError as error:
                cause, pause = str(error), 0.5
            if time.monotonic() > end:
                raise RuntimeError(f"no answer for {PATIENCE:.0f} s: {cause}")
            self.counts.repeated += 1
            time.sleep(pause)

    def _measure(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        for due in self._due(schedule.readings(self._seed)):
            for event in due:
                value = json.dumps({**event.content, "at": self._moment(event.at)})
                producer.produce("readings", value, event.content["sensor"])
            if producer.flush(PATIENCE):
                raise RuntimeError(f"readings were not acknowledged within {PATIENCE:.0f} s")
            self.counts.readings += len(due)
