"""Debezium as its users run it: a connector in Kafka Connect, standalone, one process a connector.

::

    with Debezium(broker.bootstrap, postgres_connector(server.port, "shop")) as connector:
        ...                       # its topics are in the broker
        connector.check()         # fails with Debezium's own words when it has stopped

The jars come from Maven Central, some 40 MB, when it is first asked for; ``make test`` needs none of them.
"""

import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support import jars
from tests.support.packages import require
from tests.support.servers import HOST, Server, ServerFailed

VERSION = "3.4.0.Final"
CONNECTORS = [
    f"io.debezium:debezium-connector-postgres:{VERSION}",
    f"io.debezium:debezium-connector-mariadb:{VERSION}",
]
_NAME = "debezium"


def postgres_connector(port: int, database: str, user: str = "headwater", **settings: str) -> dict[str, str]:
    """Settings for every table of a PostgreSQL database; a name's dots are written as two underscores."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": HOST,
        "database.port": str(port),
        "database.user": user,
        "database.password": "",
        "database.dbname": database,
        "topic.prefix": database,
        "slot.name": "debezium",
        "publication.name": "debezium",
        **_dotted(settings),
    }


def mariadb_connector(
    port: int, database: str, broker: str, user: str = "headwater", password: str = "secret", **settings: str
) -> dict[str, str]:
    """Settings for every table of a MariaDB database; its history of schemas goes to the broker."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.hostname": HOST,
        "database.port": str(port),
        "database.user": user,
        "database.password": password,
        "database.server.id": "5400",
        "database.include.list": database,
        "topic.prefix": database,
        "schema.history.internal.kafka.bootstrap.servers": broker,
        "schema.history.internal.kafka.topic": "debezium.history",
        **_dotted(settings),
    }


def _dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in settings.items()}


class Debezium(Server):
    """A Kafka Connect worker with one connector. Its offsets outlive it: ``start`` goes on where ``kill`` cut."""

    name = "debezium"
    start_timeout = 120.0

    def __init__(
        self,
        broker: str,
        connector: Mapping[str, str],
        *,
        worker: Mapping[str, str] | None = None,
        heap: Sequence[str] = ("-Xms256M", "-Xmx2G"),  # what Kafka's own script gives a worker
    ) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="debezium-")))
        self._own_data = True
        self.broker = broker
        self.connector = {"name": _NAME, "tasks.max": "1", **connector}
        self.worker = dict(worker or {})
        self.heap = list(heap)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it: a worker whose connector has failed may not end by itself."""
        if self.running:
            self.kill()
        self.discard()

    def prepare(self) -> None:
        json_without_schemas = {}
        for side in ("key", "value"):
            json_without_schemas[f"{side}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
            json_without_schemas[f"{side}.converter.schemas.enable"] = "false"
        worker = {
            "bootstrap.servers": self.broker,
            **json_without_schemas,
            "offset.storage.file.filename": str(self.data / "offsets"),
            "offset.flush.interval.ms": "1000",
            "listeners": f"http://{HOST}:{self.port}",
            "plugin.discovery": "service_load",
            **self.worker,
        }
        for name, settings in (("worker", worker), ("connector", self.connector)):
            lines = (f"{key}={value}\n" for key, value in settings.items())
            (self.data / f"{name}.properties").write_text("".join(lines))

    def command(self) -> Sequence[str]:
        debezium = jars.with_dependencies(f"debezium-{VERSION}", CONNECTORS)
        return [
            require("java"),
            *self.heap,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{jars.kafka_libs()}/*:{debezium}/*",  # Kafka's own jars come first: they are the newer ones
            "org.apache.kafka.connect.cli.ConnectStandalone",
            str(self.data / "worker.properties"),
            str(self.data / "connector.properties"),
        ]

    def is_ready(self) -> bool:
        return self.state() in ("RUNNING", "FAILED")

    def state(self) -> str:
        """``RUNNING``, ``FAILED``, or nothing while it starts."""
        tasks = self._status().get("tasks") or []
        return str(tasks[0]["state"]) if tasks else ""

    def failure(self) -> str | None:
        """Why its task has stopped, in Java's words; None while it runs."""
        for task in self._status().get("tasks") or []:
            if task["state"] == "FAILED":
                return str(task.get("trace", ""))
        return None

    def check(self) -> None:
        """Fail when the connector has stopped."""
        stopped = self.failure() if self.running else "the process has ended"
        if stopped is not None:
            raise ServerFailed(self._explain(f"has stopped: {stopped[-3000:]}"))

    def wait_failed(self, seconds: float) -> str:
        """Wait for it to stop; why it did."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            stopped = self.failure()
            if stopped is not None:
                return stopped
            time.sleep(0.2)
        raise ServerFailed(f"Debezium still runs after {seconds:.0f} s")

    def _status(self) -> dict[str, list[dict[str, str]]]:
        try:
            with urllib.request.urlopen(
                f"http://{HOST}:{self.port}/connectors/{_NAME}/status", timeout=5
            ) as said:
                status: dict[str, list[dict[str, str]]] = json.load(said)
                return status
        except (urllib.error.URLError, OSError, ValueError):
            return {}
