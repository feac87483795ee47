"""Reading tables: a chunk at a time, each in a short transaction with a database snapshot of its own."""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from headwater.connect.cdc.postgres.catalog import TableInfo, ask, do, identifier, literal, named_tables
from headwater.connect.cdc.postgres.chunk import Held, copied_rows, in_json
from headwater.connect.cdc.postgres.jobs import Job
from headwater.connect.cdc.postgres.lsn import Visibility, last_record_end, lsn_number
from headwater.connect.cdc.postgres.made import rows_of_parts
from headwater.connect.cdc.postgres.plan import Plan
from headwater.connect.cdc.postgres.questions import copy_lines, stop_copy

# A chunk ends here, however many rows it was to have: rows may be large.
CHUNK_BYTES = 32 << 20
_LOCK_MILLISECONDS = 1000
BAG_ROWS = 5000


class NotYet(Exception):
    """A table cannot be read at this moment: it is locked, or transactions are under way that have to end first."""


class TableGone(Exception):
    """The table was dropped or renamed."""


@dataclass(frozen=True)
class View:
    """A database snapshot in which a table is read."""

    info: TableInfo
    seen: Visibility
    mark: int  # where the log was after it was taken
    flushed: bool  # whether the log is on disk up to there: only then it is streamed


def open_view(
    connection: psycopg.Connection[Any],
    info: TableInfo,
    must_have_ended: int,
    must_be_shown: Collection[int],
) -> View:
    """Begins a transaction in which one snapshot is seen.

    The lock comes first: a table that is rewritten by DDL looks empty to older snapshots. Transactions up to
    `must_have_ended` (64 bits) may be told in part by the stream, those of `must_be_shown` (32 bits) it has brought.
    """
    if _still_runs(connection, must_have_ended):
        raise NotYet(f"transactions that write have to end before {info.full_name} is read")
    try:
        do(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        do(connection, f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}")
        do(connection, f"LOCK TABLE {info.read_from} IN ACCESS SHARE MODE")
        [[text, inserted, flushed]] = ask(connection, _NOW)
        seen = Visibility.parse(text)
        if not all(seen.shows(xid) for xid in must_be_shown):
            raise NotYet(f"changes of {info.full_name} are in the log and not yet visible")
        found = named_tables(connection, [(info.schema, info.name)])
        if not found or found[0].oid != info.oid:
            raise TableGone(info.full_name)
        mark = last_record_end(lsn_number(inserted))
        return View(found[0], seen, mark, lsn_number(flushed) >= mark)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        close_view(connection)
        raise NotYet(f"{info.full_name} is locked") from error
    except psycopg.errors.UndefinedTable as error:
        close_view(connection)
        raise TableGone(info.full_name) from error
    except (NotYet, TableGone):
        close_view(connection)
        raise


# Commits of sessions with synchronous_commit off are visible before they are on disk: so where it is written to.
_NOW = """
SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text
"""
_WRITERS = """
SELECT l.transactionid::text::int8 FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND coalesce(a.datname = current_database(), true)
"""


def _still_runs(connection: psycopg.Connection[Any], number: int) -> bool:
    """Whether a transaction of this database, up to a number, has not ended (or is prepared).

    Every transaction that writes holds a lock on its own number until others see it, or never will. Has it ended
    before a snapshot is taken, the snapshot shows it. Other databases of the server are of no interest.
    """
    return any((number - xid) & 0xFFFFFFFF < 0x80000000 for [xid] in ask(connection, _WRITERS))


def close_view(connection: psycopg.Connection[Any]) -> None:
    do(connection, "ROLLBACK")


def read_chunk(
    connection: psycopg.Connection[Any], view: View, plan: Plan, job: Job, limit: int
) -> tuple[Held, list[bytes]]:
    """The next rows of a table in the order of its key, and their lines."""
    # One row more than asked for tells whether there are more.
    query = _select(connection, view.info, plan, job)
    order = ", ".join(identifier(name) for name in plan.key)
    lines: list[bytes] = []
    size = 0
    early = False
    for line in copy_lines(connection, f"{query} ORDER BY {order} LIMIT {limit + 1}", view.info.full_name):
        lines.append(line)
        size += len(line)
        if size > CHUNK_BYTES and len(lines) > 1:
            stop_copy(connection)
            early = True
            break
    more = early or len(lines) > limit
    if more:
        lines.pop()
    rows = copied_rows(lines)
    fragments = in_json(rows, plan.all_converters) if rows else []
    objects = dict(zip(map(plan.shape.key, fragments), map(plan.shape.object, fragments), strict=True))
    names = [field.name for field in plan.fields]
    after = [(rows[-1][names.index(name)] or b"").decode() for name in plan.key] if rows else []
    held = Held(plan, view.seen, view.mark, objects, after, len(rows), more, time.time_ns())  # type: ignore[arg-type]
    return held, lines


def _select(connection: psycopg.Connection[Any], info: TableInfo, plan: Plan, job: Job) -> str:
    columns = ", ".join(identifier(field.name) for field in plan.fields)
    conditions = []
    if job.get("where"):
        conditions.append(f"({job['where']})")
    if job.get("after"):
        key = ", ".join(identifier(name) for name in plan.key)
        last = ", ".join(literal(connection, value) for value in job["after"])
        # Row comparison and ORDER BY use the same operators and collations: those of the columns.
        conditions.append(f"({key}) > ({last})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    parts = job.get("parts")
    source = info.read_from if parts is None else rows_of_parts(parts, columns)
    return f"SELECT {columns} FROM {source}{where}"


def read_bag(
    connection: psycopg.Connection[Any], view: View, plan: Plan, job: Job
) -> Iterator[list[list[bytes | None]]]:
    """All rows of a table without a key, in pieces."""
    lines: list[bytes] = []
    for line in copy_lines(connection, _select(connection, view.info, plan, job), view.info.full_name):
        lines.append(line)
        if len(lines) >= BAG_ROWS:
            yield copied_rows(lines)
            lines = []
    yield copied_rows(lines)
