"""What a sink is: something outside that takes the records of a topic and knows how far it has taken them.

A worker (headwater.connect.sinks.worker) reads the topic from the sink's own positions. A sink is in step when position
and effect agree: they are kept in one transaction (Redis), the effect shows the position (the names of Parquet files),
or effects carry versions, so that to repeat them changes nothing (a search index).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from headwater.client.bare_requests import Place
from headwater.client.columns import Columns
from headwater.client.connection import Connection
from headwater.errors import RecordsMissed

# What happens when records that were yet to be read are no longer in the log.
OnGap = Literal["fail", "continue"]


@dataclass(frozen=True)
class SinkCounts:
    """What a sink has done since the start of the process."""

    records: int = 0  # read from the topic
    bytes: int = 0  # of their values
    written: int = 0  # rows, documents or lines written outside
    deleted: int = 0
    dead: int = 0  # set aside in <topic>.dead
    commits: int = 0
    commit_seconds: float = 0.0  # of the last


class Sink(ABC):
    """Follows one topic. `name` is its identity; its positions are kept under it."""

    name: str
    topic: str
    topic_id: str = ""  # of the topic as it is now, told before `open`; "" where the broker knows none
    on_gap: OnGap = "fail"

    def attach(self, log: Connection) -> None:
        """The log that it follows, told before anything else."""
        return None

    @abstractmethod
    def open(self, places: Iterable[Place]) -> dict[Place, int]:
        """Connects, takes over from an older worker, and says where to go on; a place left out is new to it.

        What may pass is raised as ConnectionLost, here and below; the worker closes it then, and opens it again.
        """

    @abstractmethod
    def take(self, place: Place, columns: Columns, after: int) -> None:
        """Takes records of one partition, in their order; `after` is where the next ones begin."""

    def idle(self) -> None:
        """Called several times a second, between records: for what is due by time."""
        return None

    @abstractmethod
    def close(self, *, in_order: bool) -> None:
        """Lets go; `in_order` when it was told to stop, and may finish what it holds back."""

    @abstractmethod
    def counts(self) -> SinkCounts:
        """What it has done. May be called from another thread."""

    @abstractmethod
    def describe(self) -> str:
        """Where it writes to, in a few words."""

    def require_topic(self, followed: str, step: str) -> None:
        """Stops when what is outside was written from another topic of the name, whose offsets mean nothing here."""
        if followed and self.topic_id and followed != self.topic_id:
            cause = f"it was deleted and made anew, and {self.describe()} has what was in the former one"
            raise RecordsMissed("follow", self.topic, cause, step)


def shown(positions: Mapping[Place, int]) -> str:
    """Positions for people: of one partition the offset, else each.

    >>> shown({("users", 0): 12}), shown({("users", 0): 12, ("users", 1): 7})
    ('12', '0: 12, 1: 7')
    """
    if len(positions) == 1:
        return str(next(iter(positions.values())))
    return ", ".join(f"{number}: {at}" for (_, number), at in sorted(positions.items()))
