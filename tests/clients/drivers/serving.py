"""What the Python drivers share: the loop over commands, and records in JSON."""

import base64
import json
import queue
import sys
import threading
import traceback
from typing import Any

Json = dict[str, Any]


class Unsupported(Exception):
    """The client library cannot do this."""


class Driver:
    """A driver is a subclass with a method for each command; ``work`` runs whenever no command waits."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def busy(self) -> bool:
        """Whether ``work`` has something to do: a group member consumes in the background."""
        return False

    def work(self) -> None:
        """A short piece of background work."""

    def error_name(self, error: Exception) -> str:
        """The client's own name of the error."""
        return type(error).__name__

    def reset(self) -> None:
        """Leave the group and close the transactional producer."""


def serve(kind: type[Driver]) -> None:
    """Answer commands from standard input until it ends. The client's work is done in this thread alone."""
    driver = kind(sys.argv[1])
    commands: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(commands,), daemon=True).start()
    while True:
        try:
            line = commands.get(block=not driver.busy())
        except queue.Empty:
            driver.work()
            continue
        if line is None:
            break
        print(json.dumps(answer(driver, json.loads(line))), flush=True)
    driver.reset()


def answer(driver: Driver, command: Json) -> Json:
    """Run one command."""
    name = command.pop("do")
    method = getattr(driver, name, None)
    if method is None:
        return {"error": "Unsupported", "message": name}
    try:
        return {"ok": method(**command)}
    except Exception as error:
        traceback.print_exc()
        return {"error": driver.error_name(error), "message": str(error)}


def _read(commands: "queue.Queue[str | None]") -> None:
    for line in sys.stdin:
        commands.put(line)
    commands.put(None)


def encode(data: bytes | None) -> str | None:
    """Bytes as they stand in JSON."""
    return None if data is None else base64.b64encode(data).decode()


def decode(text: str | None) -> bytes | None:
    """The inverse of ``encode``."""
    return None if text is None else base64.b64decode(text)


def headers(record: Json) -> list[tuple[str, bytes | None]]:
    """The headers of a record to be sent."""
    return [(name, decode(value)) for name, value in record["h"]]


def record(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Any,
) -> Json:
    """A consumed record in JSON."""
    return {
        "topic": topic,
        "p": partition,
        "o": offset,
        "t": timestamp,
        "k": encode(key),
        "v": encode(value),
        "h": [[name, encode(content)] for name, content in headers or ()],
    }


class Reading:
    """Whether a read is done: the last offset of every partition was seen."""

    def __init__(self, last: dict[str, int]) -> None:
        self._left = {int(partition): offset for partition, offset in last.items()}
        self.records: list[Json] = []

    def add(self, record: Json) -> None:
        """Keep a record, unless it lies past the last one asked for."""
        partition, offset = record["p"], record["o"]
        if partition not in self._left:
            return
        if offset >= self._left[partition]:
            last = self._left.pop(partition)
            if offset > last:
                return
        self.records.append(record)

    @property
    def done(self) -> bool:
        return not self._left
