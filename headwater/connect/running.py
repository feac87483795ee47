"""Running a source or a sink in this process: its worker in a thread, its status in a file."""

import threading
import time
from collections import deque
from pathlib import Path

from headwater.client.connection import Connection
from headwater.connect.declaration import SourceDeclaration
from headwater.connect.sinks.declaration import SinkDeclaration
from headwater.connect.sinks.worker import SinkWorker, SinkWorkerStatus
from headwater.connect.status import SourceStatusFile
from headwater.connect.worker import Worker, WorkerStatus

STATUS_SECONDS = 0.5
RATE_SECONDS = 10.0


def run_source(
    application: str,
    declaration: SourceDeclaration | SinkDeclaration,
    connection: Connection,
    data: Path,
    stopping: threading.Event,
    on_status: "threading.Event | None" = None,
) -> None:
    """Runs it until `stopping` is set; raises what stopped it before. `on_status` is set once it is at work."""
    worker: Worker | SinkWorker
    if isinstance(declaration, SinkDeclaration):
        before = SourceStatusFile(data, declaration.name).read() or {}
        worker = SinkWorker(connection, declaration.make(data), before.get("at"))
    else:
        worker = Worker(connection, declaration.make(data))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            worker.run(stopping)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name=f"source {declaration.name}")
    thread.start()
    file, rates = SourceStatusFile(data, declaration.name), Rate()
    while thread.is_alive():
        status = worker.status()
        file.write(application, status, rates.after(status))
        if on_status is not None and status.state == "running":
            on_status.set()
        thread.join(STATUS_SECONDS)
    status = worker.status()
    file.write(application, status, 0.0)
    if failures:
        raise failures[0]


class Rate:
    """Records a second, over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def after(self, status: WorkerStatus | SinkWorkerStatus) -> float:
        """The rate, now that so many are written."""
        now = time.monotonic()
        self._seen.append((now, status.records))
        while now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        (since, before), seconds = self._seen[0], now - self._seen[0][0]
        return (status.records - before) / seconds if seconds > 0 and since else 0.0
