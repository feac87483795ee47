"""What a capture of SQLite remembers. Pure.

The position::

    {"sequence": 1042, "tokens": ["6f..", "a1.."], "shapes": {"users": 3}, "jobs": [...], "paused": true}

`sequence` is the last change written. `tokens` tell whether the database is the one that was read: one of them is in
it, and is replaced by the other from time to time, so that a copy from earlier has none of them. `shapes` are the
definitions of tables that the topics know, `jobs` the readings of tables that are not done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.connect.cdc.sqlite.jobs import Job
from headwater.connect.source import Position


@dataclass
class State:
    """Changed by assignment only: what a position was made of stays as it was."""

    sequence: int = 0
    tokens: tuple[str, ...] = ()
    known: Mapping[str, int] = field(default_factory=dict)  # table -> the shape that its topic knows
    jobs: tuple[Job, ...] = ()
    paused: bool = False

    def position(self) -> Position:
        """For the log."""
        position: dict[str, Any] = {
            "sequence": self.sequence,
            "tokens": list(self.tokens),
            "shapes": dict(self.known),
            "jobs": [job.as_json() for job in self.jobs],
        }
        if self.paused:
            position["paused"] = True
        return position

    @classmethod
    def of(cls, position: Position) -> "State":
        """The reverse of `position`.

        >>> state = State(7, ("a", "b"), {"users": 1}, (Job("users", True, rows=3),), True)
        >>> State.of(state.position()) == state
        True
        """
        return cls(
            sequence=position["sequence"],
            tokens=tuple(position["tokens"]),
            known=dict(position["shapes"]),
            jobs=tuple(Job.from_json(job) for job in position["jobs"]),
            paused=bool(position.get("paused")),
        )

    def job(self, table: str) -> Job | None:
        """The reading of a table, if there is one."""
        return next((job for job in self.jobs if job.table == table), None)

    def without(self, table: str) -> tuple[Job, ...]:
        """The other jobs."""
        return tuple(job for job in self.jobs if job.table != table)

    def put(self, changed: Job) -> None:
        """Replaces the job of the same table."""
        self.jobs = tuple(changed if job.table == changed.table else job for job in self.jobs)

    def follow_version(self, before: int, after: int, stable: Mapping[str, bool]) -> None:
        """The schema's version went from one to another; `before` is the one that our own change began with.

        It may be VACUUM that changed it, which numbers the rows of tables anew that have no INTEGER PRIMARY KEY:
        such a table is read from its beginning again.
        """
        self.jobs = tuple(
            replace(job, version=after)
            if job.version == before or stable.get(job.table, False)
            else job.anew(after)
            for job in self.jobs
        )
