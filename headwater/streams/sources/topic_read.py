"""What is to be read of which topics, and how."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from headwater.client.connection import Connection
from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import OnGap

Offsets = dict[str, dict[str, int]]
"""The next offset to read of each partition, by topic and number, as the connector writes it, too."""

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
PROBLEM = "problem"


@dataclass(frozen=True)
class TopicRead:
    """Topics to read, from where, and what of them.

    >>> TopicRead("127.0.0.1:9092", ("clicks",), start="latest").start
    'latest'
    """

    bootstrap: str
    topics: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)  # of Kafka clients, by librdkafka's names
    # "earliest", "latest", an ISO timestamp, a datetime, or offsets by topic and partition. Partitions that
    # offsets do not name, and those that come later, are read from their start.
    start: str | datetime | Mapping[str, Mapping[Any, int]] = "earliest"
    max_rows: int | None = None  # at most so many offsets a batch
    on_gap: OnGap = "fail"
    columns: tuple[str, ...] = COLUMNS  # in this order; HEADERS is another one
    connector: bool = False  # Spark's own, which needs its jars in the session
    # How long a look for new records may wait for one. A query looks at its sources one after the other: with
    # several of them a long wait at a silent one delays the others.
    wait_seconds: float = 0.4

    def __post_init__(self) -> None:
        unknown = set(self.columns) - {*COLUMNS, HEADERS}
        if unknown or not self.columns:
            cause = f"there is no column {', '.join(sorted(unknown))}" if unknown else "no column is wanted"
            raise ApplicationInvalid(
                "read", ", ".join(self.topics), cause, f"Choose from {', '.join((*COLUMNS, HEADERS))}."
            )
        if not self.topics:
            raise ApplicationInvalid("read", "a stream", "it names no topic")
        self.start_position()

    @property
    def connection(self) -> Connection:
        return Connection(self.bootstrap, self.properties)

    @property
    def subject(self) -> str:
        return ", ".join(self.topics)

    def start_position(self) -> str | int | Offsets:
        """``earliest``, ``latest``, milliseconds since the epoch, or offsets.

        >>> TopicRead("k:9092", ("t",), start="1970-01-01T00:00:01+00:00").start_position()
        1000
        """
        if isinstance(self.start, Mapping):
            return {
                topic: {str(number): int(offset) for number, offset in partitions.items()}
                for topic, partitions in self.start.items()
            }
        if self.start in ("earliest", "latest"):
            return str(self.start)
        moment = self.start
        if isinstance(moment, str):
            try:
                moment = datetime.fromisoformat(moment)
            except ValueError:
                raise ApplicationInvalid(
                    "start reading",
                    self.subject,
                    f"{self.start!r} is no position in a log",
                    "Say earliest, latest, or a time such as 2026-11-16T09:00:00Z.",
                ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)

    def to_json(self) -> str:
        """The read as text, which options of a source are."""
        fields = asdict(self)
        if isinstance(self.start, datetime):
            fields["start"] = self.start.isoformat()
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> "TopicRead":
        """The read that `to_json` wrote.

        >>> read = TopicRead("k:9092", ("t",), start={"t": {0: 5}})
        >>> TopicRead.from_json(read.to_json()).start
        {'t': {'0': 5}}
        """
        fields = json.loads(text)
        return cls(**fields | {"topics": tuple(fields["topics"]), "columns": tuple(fields["columns"])})
