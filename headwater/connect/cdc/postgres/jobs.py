"""Tables that are being read: the part of a position that says how far each of them is. No I/O.

A job is JSON, by the table's full name, in the order in which tables are read::

    {"kind": "initial", "rows": 20000, "total": 1000000, "after": ["20000"]}

`kind` is ``initial`` for a first read, ``again`` for another, for which `where` may choose rows, and `parts` parts of a
partitioned table (their quoted names). `after` is the key of the last row done. `since` says where the table's topic
ended when the job began: keys whose last record lies before it when all rows were read are not in the table any more;
`clears` stands for it until it is known.

A table without a key cannot be read in pieces: no later read could tell which rows it has seen. It is read in one
database snapshot, and its changes are kept back (`state` ``waiting``) until they are known to be newer. ``reading`` in
a position that is gone on from means that the read was cut off: the topic is told to forget the rows (an event ``t``),
and the read begins anew. ``cut`` keeps back what the snapshot (`seen`) shows until the stream is past `mark`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.connect.cdc.postgres.lsn import Visibility
from headwater.connect.source import TableProgress

Job = Mapping[str, Any]


@dataclass(frozen=True)
class Hidden:
    """What is kept back of the changes of a table without a key: all, or what its read has shown."""

    seen: Visibility | None = None

    def hides(self, xid: int) -> bool:
        return self.seen is None or self.seen.shows(xid)


class Jobs:
    """The jobs of a source. Every change makes a new dictionary, so that positions can share the old one."""

    def __init__(self, jobs: Mapping[str, Job] | None = None) -> None:
        self.all: Mapping[str, Job] = jobs or {}
        self.finished: dict[str, TableProgress] = {}  # for people; forgotten at a restart

    def __bool__(self) -> bool:
        return bool(self.all)

    def put(self, table: str, job: Job) -> None:
        self.all = {**self.all, table: job}
        self.finished.pop(table, None)

    def update(self, table: str, **changes: Any) -> None:
        job = {**self.all[table], **changes}
        self.put(table, {key: value for key, value in job.items() if value is not None})

    def remove(self, table: str, done: bool = True) -> None:
        job = self.all.get(table)
        if job is None:
            return
        self.all = {name: other for name, other in self.all.items() if name != table}
        if done:
            self.finished[table] = TableProgress(table, job.get("rows", 0), job.get("rows", 0), True)

    def next(self) -> str | None:
        """The table to read from next."""
        return next((table for table, job in self.all.items() if job.get("state") != "cut"), None)

    def that_clear(self) -> list[str]:
        """Tables whose topic's end is to be noted before the first row is read."""
        return [table for table, job in self.all.items() if job.get("clears")]

    def hidden(self, table: str) -> Hidden | None:
        state = self.all.get(table, {}).get("state")
        if state is None:
            return None
        return Hidden(Visibility.parse(self.all[table]["seen"])) if state == "cut" else Hidden()

    def passed(self, reached: int) -> list[str]:
        """Tables without a key whose read the stream has passed."""
        return [
            table for table, job in self.all.items() if job.get("state") == "cut" and job["mark"] <= reached
        ]

    def is_last(self, table: str) -> bool:
        return all(name == table or job.get("state") == "cut" for name, job in self.all.items())

    def progress(self) -> tuple[TableProgress, ...]:
        running = [
            TableProgress(table, job.get("rows", 0), job.get("total"), job.get("state") == "cut")
            for table, job in self.all.items()
        ]
        return (*self.finished.values(), *running)


def begin(kind: str, keyed: bool, total: int | None, *, clears: bool = False, **more: Any) -> Job:
    """A job that has not begun. `clears`: what the topic has from before and the table has not is to go.

    >>> begin("again", True, 100, clears=True, where=None)
    {'kind': 'again', 'rows': 0, 'total': 100, 'clears': True}
    """
    job: dict[str, Any] = {"kind": kind, "rows": 0, "total": total, "clears": clears or None, **more}
    if not keyed:
        job["state"] = "waiting"
    return {name: value for name, value in job.items() if value is not None}


def named(wanted: Iterable[str], tables: Iterable[str], topics: Mapping[str, str]) -> list[str]:
    """The tables that a signal names: ``users``, ``public.users``, or the topic; all when it names none.

    >>> named(["users"], ["public.users", "public.orders"], {})
    ['public.users']
    """
    asked = set(wanted)
    return [
        table
        for table in tables
        if not asked or table in asked or table.removeprefix("public.") in asked or topics.get(table) in asked
    ]
