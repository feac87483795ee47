"""What the SQL of the view store needs of a database, besides the SQL that all of them understand."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from headwater.views.values import Decoder

Result = TypeVar("Result")


class Cursor(Protocol):
    """The part of the database API that sqlite3 and psycopg share."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """A connection inside a transaction."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Cursor: ...


@dataclass(frozen=True)
class Operand:
    """A column in a condition or an order: its SQL, what is bound in it, and how a value for it is bound."""

    sql: str
    bound: tuple[Any, ...]
    bind: Callable[[pa.Array], Any]  # from an array of one value


class Watch(ABC):
    """Tells one thread whether something was committed to the store."""

    pause: float  # seconds between two looks that cost next to nothing

    @abstractmethod
    def changed(self) -> bool:
        """Whether something may have been committed since the last call; true at the first one."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds."""


class Database(ABC):
    """Connections to one database, and the dialect it speaks."""

    mark: str  # the place of a bound value
    lock: str  # what a SELECT ends with to lock its rows until the transaction ends
    temporary: str  # what follows the columns of a temporary table
    upserts_well: bool  # whether INSERT ... ON CONFLICT beats an UPDATE and an INSERT
    keeps_texts: bool  # whether times, dates and decimals are kept as the texts that JSON has of them
    keeps_nul: bool  # whether a text may have a NUL
    reads_at_once: bool  # whether reading a row takes microseconds, so that an event loop may do it
    table_options: str  # what follows the columns of a view's table

    @abstractmethod
    def read(self, operation: str, subject: str, work: Callable[[Connection], Result]) -> Result:
        """Run ``work`` in a transaction that sees one moment and changes nothing."""

    @abstractmethod
    def write(self, operation: str, subject: str, work: Callable[[Connection], Result]) -> Result:
        """Run ``work`` in a transaction and commit it; nothing of it stays when it raises.

        ``work`` may be run again when its connection turns out to be lost before anything was committed.
        """

    @abstractmethod
    def load(self, connection: Connection, table: str, columns: Mapping[str, pa.Array]) -> None:
        """Insert rows in bulk. The arrays have the types of the table's columns; nested values are texts."""

    @abstractmethod
    def stream(
        self, connection: Connection, sql: str, rows: int, values: Sequence[Any] = ()
    ) -> Iterator[list[Any]]:
        """The rows of a query, that many at a time, while the same connection writes other tables."""

    @abstractmethod
    def column_type(self, kind: pa.DataType) -> str:
        """The type of a column that keeps such values."""

    @abstractmethod
    def operand(self, column: str, path: tuple[str, ...], kind: pa.DataType) -> Operand:
        """A column, or a member of a struct, such that it compares and sorts as its values do."""

    @abstractmethod
    def decoder(self, kind: pa.DataType) -> Decoder | None:
        """What turns a stored value that is not null into Python's; None when it is that already."""

    @abstractmethod
    def watch(self) -> Watch:
        """See ``ViewStore.watch``."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""

    @abstractmethod
    def differ(self, left: str, right: str) -> str:
        """The condition that two row values differ, where nulls are equal."""

    @abstractmethod
    def has_table(self, connection: Connection, name: str) -> bool:
        """Whether there is a table of the store of this name."""

    @abstractmethod
    def prepare(self, connection: Connection) -> None:
        """What comes before the store's own tables are made or looked at."""

    def quote(self, name: str) -> str:
        """An identifier."""
        return '"' + name.replace('"', '""') + '"'
