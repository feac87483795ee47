"""Where capture begins, and whether it can go on where it was."""

from headwater.connect.cdc.mysql.catalog import read_tables
from headwater.connect.cdc.mysql.connection import Database, StatementFailed
from headwater.connect.cdc.mysql.gtid import MariaGtids, MySQLGtids
from headwater.connect.cdc.mysql.schema import Filter, Table
from headwater.connect.cdc.mysql.snapshot import (
    executed_gtids,
    log_end,
    log_status,
    quoted_name,
    snapshot_place,
)
from headwater.connect.cdc.mysql.state import LogState, before
from headwater.connect.cdc.options import CdcOptions
from headwater.errors import CaptureImpossible, ChangesMissed

_TRIES = 20


def check_server(database: Database, options: CdcOptions) -> None:
    """Refuses a server whose log cannot be read as rows."""
    needed = {"log_bin": "ON", "binlog_format": "ROW"}
    for name, wanted in needed.items():
        found = database.variable(name)
        if (found or "").upper() != wanted:
            cause = f"{name} is {found}, not {wanted}"
            raise CaptureImpossible("capture", options.shown_url, cause)
    image = (database.variable("binlog_row_image") or "FULL").upper()
    if image != "FULL":
        cause = f"binlog_row_image is {image}, so that changes lack columns"
        raise CaptureImpossible("capture", options.shown_url, cause)


def server_identity(database: Database) -> str:
    """What tells a server from another one."""
    name = "server_id" if database.is_mariadb else "server_uuid"
    return database.variable(name) or ""


def place_to_begin(database: Database, chosen: Filter) -> tuple[LogState, dict[tuple[str, str], Table]]:
    """The end of the log as it is now, and the tables exactly as they are there.

    A consistent snapshot fixes the place; a look at each table keeps DDL out until all are known. When a table was
    changed between the two, the server says so, and it begins again.
    """
    database.query("set session transaction isolation level repeatable read")
    for _ in range(_TRIES):
        database.query("start transaction with consistent snapshot, read only")
        try:
            state = _state(database)
            tables = read_tables(database, chosen)
            for table in tables.values():
                database.query(
                    f"select 1 from {quoted_name(table.database)}.{quoted_name(table.name)} limit 0"
                )
            if read_tables(database, chosen) == tables:
                _check_named(chosen, tables)
                return state, tables
        except StatementFailed:
            pass  # changed or dropped between two statements
        finally:
            database.query("commit")
    cause = "its tables are changed all the time"
    raise CaptureImpossible("begin to capture", chosen.database, cause, "Try again when no DDL is running.")


def _check_named(chosen: Filter, tables: dict[tuple[str, str], Table]) -> None:
    for name in sorted(chosen.named):
        taken = chosen.taken_by(*name)
        if taken is not None:
            cause = f"the topic of {'.'.join(name)} would be that of {'.'.join(taken)}"
            step = "Capture one of them under another name, with an hw.cdc of its own: name=..."
            raise CaptureImpossible("capture", chosen.database, cause, step)
    missing = sorted(".".join(name) for name in chosen.named - set(tables))
    if missing:
        cause = f"there is no table {', '.join(missing)}"
        raise CaptureImpossible("capture", chosen.database, cause, "Correct the names, or create the tables.")


def _state(database: Database) -> LogState:
    server = server_identity(database)
    if database.is_mariadb:
        file, place = snapshot_place(database)
        text = database.value("select binlog_gtid_pos(%s, %s)", file, place)
        return LogState(True, MariaGtids.parse(text or ""), True, file, place, server)
    end = log_end(database)
    file, place = log_status(database)[:2]
    uses_gtids = isinstance(end, MySQLGtids)
    gtids = end if isinstance(end, MySQLGtids) else MySQLGtids()
    return LogState(False, gtids, uses_gtids, str(file), int(place), server)


def check_position(database: Database, state: LogState, options: CdcOptions) -> None:
    """Notices a server that no longer has what is yet to be read, or that is another one."""
    if database.is_mariadb:
        _check_maria(database, state, options)
    elif state.uses_gtids:
        executed = executed_gtids(database)
        purged = MySQLGtids.parse(database.value("select @@global.gtid_purged") or "")
        if not state.gtids <= executed:  # type: ignore[operator]
            raise _missed(options, "the server lacks transactions that were read: it was replaced or reset")
        if not purged <= state.gtids:  # type: ignore[operator]
            raise _missed(options, "the server has purged binary logs that were yet to be read")
    else:
        if state.server and state.server != server_identity(database):
            raise _missed(options, "it is another server, and without GTIDs no place in it is known")
        if state.file not in [row[0] for row in database.query("show binary logs")]:
            raise _missed(options, f"the server no longer has {state.file}")


def _check_maria(database: Database, state: LogState, options: CdcOptions) -> None:
    """The same server has our place in its log with our GTIDs, or it was reset. Another one is asked by GTIDs."""
    if state.server != server_identity(database):
        state.server = server_identity(database)
        state.file, state.place = "", 0
        return
    files = {row[0]: int(row[1]) for row in database.query("show binary logs")}
    if not state.file:
        return
    if state.file not in files:
        first = min(files, key=lambda name: (len(name), name), default="")
        purged = bool(first) and before((state.file, 0), (first, 0))
        cause = f"{state.file} is purged" if purged else f"{state.file} is not there: the server was reset"
        raise _missed(options, cause)
    there = database.value("select binlog_gtid_pos(%s, %s)", state.file, max(4, state.place))
    if state.place > files[state.file] or there is None or not _holds(MariaGtids.parse(there), state.gtids):
        cause = f"at {state.file}:{state.place} it has other transactions than were read ({there})"
        raise _missed(options, f"{cause}: the server was replaced or reset")


def _holds(there: MariaGtids, ours: object) -> bool:
    """Ours may know domains of another server's past besides."""
    return isinstance(ours, MariaGtids) and all(ours.last.get(d) == gtid for d, gtid in there.last.items())


def _missed(options: CdcOptions, cause: str) -> ChangesMissed:
    return ChangesMissed("go on with", options.shown_url, cause)
