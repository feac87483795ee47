"""A sink as a process of its own, to be killed: ``python -m tests.connect.sinks.sinking BROKER KIND WHERE TOPIC``."""

import signal
import sys
import threading
from pathlib import Path

from headwater.client.connection import Connection
from headwater.connect.sinks.factory import parquet, redis
from headwater.connect.sinks.worker import SinkWorker


def main(bootstrap: str, kind: str, where: str, topic: str) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    if kind == "redis":
        sink = redis(where, topic=topic, key="row:{id}").make(Path())
    else:
        sink = parquet(where, topic=topic, rows=3000, seconds=0.1).make(Path())
    SinkWorker(Connection(bootstrap), sink).run(stopping)


if __name__ == "__main__":
    main(*sys.argv[1:])
