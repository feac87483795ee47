"""What an application says of a sink: plain data, from which the sink is made where it runs."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from headwater.connect.sinks.sink import Sink


@runtime_checkable
class SinkDeclaration(Protocol):
    """What ``app.sink`` takes; ``hw.redis``, ``hw.search`` and ``hw.parquet`` give one."""

    @property
    def name(self) -> str:
        """Its identity; sources and sinks of an application have different ones."""

    @property
    def topic(self) -> str:
        """The topic that it follows."""

    def describe(self) -> str:
        """A few words for the graph: ``redis://localhost:6379``."""

    def make(self, data: Path) -> Sink:
        """The sink, not yet connected. `data` is a directory for what can be rebuilt."""
