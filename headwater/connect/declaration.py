"""What an application says of a source: plain data, from which the source is made where it runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from headwater.connect.columns import Column
from headwater.connect.source import Source


@runtime_checkable
class SourceDeclaration(Protocol):
    """What ``app.source`` takes; ``hw.cdc`` gives one."""

    @property
    def name(self) -> str:
        """Its identity in the log; two sources of an application have different ones."""

    def describe(self) -> str:
        """A few words for the graph: ``sqlite:///shop.db, tables users, orders``."""

    def feeds(self, topic: str) -> bool:
        """Whether it may write to a topic, as far as that is known without asking outside."""

    def make(self, data: Path) -> Source:
        """The source, not yet connected. `data` is a directory for what can be rebuilt."""


@runtime_checkable
class KnowsColumns(Protocol):
    """A source that can tell the columns of a topic's rows; one that cannot leaves this out."""

    def columns(self, topic: str) -> Sequence[Column] | None:
        """Asks outside for the columns of the table that becomes this topic; None when there is no such table."""
