"""The interface of a view store: where views are kept, changed once per batch, and read.

What every store promises:

- A batch is one transaction: its rows, its id, the input offsets and watermark it covers, and its entries
  in the outbox are there together or not at all. A batch id is applied once, however often it is given.
- Readers, in whatever thread or process, see whole batches only and keep no writer waiting. (In PostgreSQL
  ``drop`` waits for readers of that version, and ``activate`` for transactions that read the SQL view.)
- A view has versions side by side. Its name shows the one that serves; others are being built. Entries of
  the outbox are numbered without gaps from 1 on, and no number is used again: not by another version, not
  after a restart, not after all versions were dropped.

A store may be used from many threads.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from headwater.errors import BadInput
from headwater.views.database import Watch
from headwater.views.filters import Filter, Order
from headwater.views.model import Batch, Change, News, Progress, Reading, Snapshot, ViewInfo, ViewSchema


class ViewStore(ABC):
    """See the module's text for what holds of every store."""

    @abstractmethod
    def define(self, schema: ViewSchema, fingerprint: str) -> None:
        """Create this version of a view, or check that it is the same as the one that is there.

        ``fingerprint`` stands for how the rows are computed. ViewChanged when the version was built with
        another fingerprint or schema. The first version of a view serves at once; a later one when
        ``activate`` says so.
        """

    @abstractmethod
    def note(self, view: str, version: int, fingerprint: str) -> None:
        """Keep this fingerprint of a version, which says more of what it was built with."""

    @abstractmethod
    def apply(self, view: str, version: int, batch: Batch) -> bool:
        """Delete, then write rows. False, and no change, when this batch id or a later one was applied.

        A row that equals the stored one makes no change. Ids may skip ahead.
        """

    @abstractmethod
    def replace(self, view: str, version: int, batch: Batch) -> bool:
        """As ``apply``, but the batch's rows are the whole content: what is not among them is deleted."""

    @abstractmethod
    def restart(self, view: str, version: int, *, clear: bool = False) -> None:
        """Forget batch id, offsets and watermark, so that batches from 0 on are applied again.

        For a query that starts anew without its checkpoint. The rows stay, or go as deletes with ``clear``.
        """

    @abstractmethod
    def progress(self, view: str, version: int | None = None) -> Progress:
        """How far a version has come; without one, the version that serves."""

    @abstractmethod
    def views(self) -> list[ViewInfo]:
        """All views, by name."""

    @abstractmethod
    def activate(self, view: str, version: int) -> None:
        """Let the name show this version. The outbox gets the difference of the contents."""

    @abstractmethod
    def drop(self, view: str, version: int) -> None:
        """Remove a version. One that serves goes only as the last one; then the outbox gets its deletes."""

    @abstractmethod
    def get(self, view: str, key: Sequence[Any], version: int | None = None) -> dict[str, Any] | None:
        """The row with this key (values in the order of the key's columns), or None."""

    @abstractmethod
    def rows(
        self,
        view: str,
        *,
        where: Filter | None = None,
        order: Sequence[str | Order] = (),
        limit: int | None = None,
        offset: int = 0,
        version: int | None = None,
    ) -> list[dict[str, Any]]:
        """Rows in Python's types. They are in the order asked for, and among equals in the order of the key.

        ``order`` has names (``-n`` for the largest first) or ``Order``; the default is the key's columns.
        """

    @property
    @abstractmethod
    def reads_at_once(self) -> bool:
        """Whether ``look_up`` takes microseconds, so that an event loop may call it."""

    @abstractmethod
    def look_up(self, view: str, key: Callable[[ViewSchema], str]) -> Reading:
        """The row of a key, or none, in the version that serves.

        ``key`` gives the key's text (see ``encoding.encode_key``) for the schema of that version.
        """

    @abstractmethod
    def page(
        self,
        view: str,
        *,
        where: Callable[[ViewSchema], Filter] | None = None,
        order: Callable[[ViewSchema], Sequence[str | Order]] | None = None,
        limit: int,
        offset: int = 0,
    ) -> Reading:
        """As ``rows``, of the version that serves, as JSON. Condition and order are made for its schema."""

    @abstractmethod
    def snapshot(self, view: str) -> Snapshot:
        """The rows, progress and last change number of the version that serves, all of one moment."""

    @abstractmethod
    def changes(self, view: str, after: int, limit: int = 1000) -> list[Change]:
        """Entries of the outbox with numbers over ``after``, in order. Trimmed ones are not among them."""

    @abstractmethod
    def news(self, view: str, after: int, limit: int = 1000) -> News:
        """As ``changes``, with the version that serves, its progress and the last number, all of one moment."""

    @abstractmethod
    def snapshot_texts(
        self, view: str, each: Callable[[list[str]], None], *, where: Filter | None = None
    ) -> News:
        """The rows as JSON, the texts that changes have, a few thousand at a time; the view at that moment."""

    @abstractmethod
    def watch(self) -> Watch:
        """Something that tells cheaply whether anything was committed, by whichever process."""

    @abstractmethod
    def trim_changes(self, view: str, *, up_to: int | None = None, keep: int | None = None) -> int:
        """Remove entries with numbers up to ``up_to``, or all but the last ``keep``; how many went."""

    @abstractmethod
    def close(self) -> None:
        """Give back connections and files. What was applied is there without it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(url: str) -> ViewStore:
    """The store at ``sqlite:///relative/file.db``, ``sqlite:////absolute/file.db`` or ``postgresql://...``.

    A file and its directory are made when they are not there. In PostgreSQL everything is kept in the
    schema ``headwater``, or in the one that ``?schema=name`` says.

    >>> open_store("mysql://localhost")
    Traceback (most recent call last):
    headwater.errors.BadInput: cannot open the view store mysql://localhost: ...
    """
    from headwater.views.sql import SqlStore

    if url.startswith("sqlite:///"):
        from headwater.views.sqlite import SqliteDatabase

        return SqlStore(SqliteDatabase(url.removeprefix("sqlite:///")))
    if url.startswith(("postgresql://", "postgres://")):
        from headwater.views.postgres import PostgresDatabase

        return SqlStore(PostgresDatabase(url))
    cause = "the address is neither sqlite:///FILE nor postgresql://..."
    raise BadInput("open", f"the view store {url}", cause, "Correct HEADWATER_STORE.")
