"""Reading tables in chunks: what is to be read, and how far it is. Pure.

A chunk is read in the same state of the database as the changes before it, and is written behind them: so every row
stands in the log as of one moment, and nothing has to be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from headwater.connect.cdc.sqlite.schema import Table, quoted
from headwater.connect.cdc.sqlite.values import NotText, pack, unpack
from headwater.connect.source import TableProgress

# `new`: its beginning is not in the log yet; `sweeping`: all rows are read, and what is left in the topic goes.
Stage = Literal["new", "reading", "sweeping"]


@dataclass(frozen=True)
class Job:
    """The reading of one table; kept in the position."""

    table: str
    initial: bool
    where: str | None = None
    stage: Stage = "new"
    after: tuple[Any, ...] | None = None  # the identity of the last row read
    rows: int = 0
    total: int | None = None
    version: int = 0  # of the schema: VACUUM changes it, and numbers rows anew
    ends: Mapping[str, int] | None = (
        None  # of the topic at the beginning; records before them are from earlier
    )

    def as_json(self) -> dict[str, Any]:
        """For the position."""
        document = {**self.__dict__, "after": None if self.after is None else pack(self.after)}
        return {key: value for key, value in document.items() if value not in (None, False)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Job":
        """The reverse of `as_json`.

        >>> job = Job("users", True, after=(b"x", 2), rows=7)
        >>> Job.from_json(job.as_json()) == job
        True
        """
        after = document.get("after")
        return cls(**{"initial": False, **document, "after": None if after is None else tuple(unpack(after))})

    def anew(self, version: int) -> "Job":
        """The same from the beginning."""
        return replace(self, stage="new", after=None, rows=0, version=version, ends=None)

    def progress(self, done: bool = False) -> TableProgress:
        """For people."""
        return TableProgress(self.table, self.rows, self.total, done)

    def covers(self, row: int | None) -> bool:
        """Whether a row, by its rowid, has been read already; for tables without a key."""
        return self.after is not None and row is not None and row <= self.after[0]


def chunk_query(table: Table, job: Job, limit: int) -> tuple[str, Sequence[Any]]:
    """The next rows, each with its identity in front."""
    identity = [quoted(name) if name != table.rowid else name for name in table.identity]
    conditions = [f"({job.where})"] if job.where else []
    parameters: list[Any] = []
    if job.after is not None:
        places = ", ".join("CAST(? AS TEXT)" if isinstance(each, NotText) else "?" for each in job.after)
        conditions.append(f"({', '.join(identity)}) > ({places})")
        parameters += job.after
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join([*identity, *(quoted(name) for name in table.names)])
    order = ", ".join(identity)
    return (
        f"SELECT {columns} FROM {quoted(table.name)}{where} ORDER BY {order} LIMIT {limit}",
        parameters,
    )


def estimate_query(table: Table) -> str:
    """About how many rows there are, without reading them where that is possible."""
    name = quoted(table.name)
    if table.rowid is None:
        return f"SELECT count(*) FROM {name}"
    # Two look-ups; each of them alone is answered from the end of the tree.
    return f"SELECT (SELECT max({table.rowid}) FROM {name}) - (SELECT min({table.rowid}) FROM {name}) + 1"


def marker(job: Job, begins_table: bool, is_first: bool, ends_table: bool, is_last: bool) -> bytes:
    """Debezium's mark of a snapshot's row.

    >>> marker(Job("t", True), begins_table=True, is_first=True, ends_table=False, is_last=False)
    b'first'
    """
    if not job.initial:
        return b"incremental"
    if ends_table:
        return b"last" if is_last else b"last_in_data_collection"
    if begins_table:
        return b"first" if is_first else b"first_in_data_collection"
    return b"true"
