"""Whether a MariaDB or MySQL server can be captured, point by point, each with how to mend it."""

from collections.abc import Iterator
from functools import partial

from headwater.connect.cdc.mysql.catalog import read_tables
from headwater.connect.cdc.mysql.changes import topic_of
from headwater.connect.cdc.mysql.connection import Database, StatementFailed
from headwater.connect.cdc.mysql.schema import Filter, Table
from headwater.connect.cdc.mysql.snapshot import quoted_name
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.doctor import Check
from headwater.errors import CaptureImpossible, ConnectionLost

_SHORT_DAYS = 1.0  # a log that is kept for less may be gone after a weekend
_OLDEST = {True: (10, 5), False: (5, 7)}
_NAMES_SHOWN = 5


def examine(options: CdcOptions) -> list[Check]:
    """Looks at everything that capture needs; changes nothing."""
    try:
        database = Database(options.url)
    except (ConnectionLost, CaptureImpossible) as error:
        mend = "Check host, port, user and password, and that the server listens there (bind-address)."
        return [Check("reachable", "wrong", error.cause, mend)]
    try:
        checks = [Check("reachable", "fine", options.shown_url)]
        for group in (_server, _rows, _gtids, _rights, _retention):
            checks.extend(group(database, options))
        checks.extend(_tables(database, options))
        return checks
    except (ConnectionLost, CaptureImpossible, StatementFailed) as error:
        cause = error.cause if isinstance(error, ConnectionLost | CaptureImpossible) else str(error)
        return [
            *checks,
            Check("questions", "wrong", cause, "Give the user the rights named in docs/connect.md."),
        ]
    finally:
        database.close()


def _server(database: Database, options: CdcOptions) -> Iterator[Check]:
    name = "MariaDB" if database.is_mariadb else "MySQL"
    number = tuple(int(part) for part in database.version.split("-")[0].split(".")[:2] if part.isdigit())
    oldest = _OLDEST[database.is_mariadb]
    shown = database.version if database.is_mariadb else f"MySQL {database.version}"
    if number < oldest:
        mend = f"Upgrade to {name} {oldest[0]}.{oldest[1]} or later."
        yield Check("version", "wrong", shown, mend)
    else:
        yield Check("version", "fine", shown)
    if database.variable("log_bin") == "ON":
        yield Check("log_bin", "fine", "ON")
    else:
        mend = "Put log_bin and a server_id under [mysqld] in the server's configuration, and restart it."
        yield Check("log_bin", "wrong", "OFF: the server writes no binary log", mend)
    server_id = database.variable("server_id") or "0"
    if server_id == "0":
        yield Check(
            "server_id", "wrong", "0", "SET GLOBAL server_id = 1, and write it into the configuration."
        )
    else:
        yield Check("server_id", "fine", server_id)
    logged = (database.variable("log_slave_updates"), database.variable("log_replica_updates"))
    if "OFF" in logged and _is_replica(database):
        mend = "Set log_slave_updates=ON and restart, or capture the primary."
        yield Check("replica", "wrong", "a replica that does not log what it replicates", mend)


def _is_replica(database: Database) -> bool:
    try:
        statement = "show all slaves status" if database.is_mariadb else "show replica status"
        return bool(database.query(statement))
    except (CaptureImpossible, StatementFailed):
        return False  # who may not ask will hear of the rights that are missing


def _rows(database: Database, options: CdcOptions) -> Iterator[Check]:
    wanted = {"binlog_format": "ROW", "binlog_row_image": "FULL"}
    why = {"binlog_format": "changes are logged as statements", "binlog_row_image": "changes lack columns"}
    for name, value in wanted.items():
        found = (database.variable(name) or "").upper()
        if found in (value, "") and (found or name != "binlog_format"):
            yield Check(name, "fine", found or value)
        else:
            mend = f"SET GLOBAL {name} = '{value}', and write it into the configuration; open sessions keep theirs."
            yield Check(name, "wrong", f"{found}: {why[name]}", mend)
    metadata = database.variable("binlog_row_metadata")
    if metadata is None:
        mend = "Columns are followed through DDL; upgrade (MariaDB 10.5, MySQL 8) to have names in the log."
        yield Check("binlog_row_metadata", "warning", "not known to this server", mend)
    elif metadata.upper() == "FULL":
        yield Check("binlog_row_metadata", "fine", "FULL")
    else:
        mend = (
            "SET GLOBAL binlog_row_metadata = 'FULL': then the log has the columns' names, also across DDL."
        )
        yield Check("binlog_row_metadata", "warning", f"{metadata}: names are followed through DDL", mend)
    options_of_values = database.variable("binlog_row_value_options")
    if options_of_values:
        mend = "SET GLOBAL binlog_row_value_options = ''."
        yield Check("binlog_row_value_options", "wrong", options_of_values, mend)
    if database.variable("mysql56_temporal_format") == "OFF":
        mend = "SET GLOBAL mysql56_temporal_format = ON; tables made before need ALTER TABLE ... FORCE."
        yield Check("mysql56_temporal_format", "warning", "OFF: fractions of a second are not captured", mend)


def _gtids(database: Database, options: CdcOptions) -> Iterator[Check]:
    if database.is_mariadb:
        yield Check(
            "gtid", "fine", f"at {database.value('select @@global.gtid_binlog_pos') or 'the beginning'}"
        )
        return
    mode = database.variable("gtid_mode") or "OFF"
    if mode == "ON":
        yield Check("gtid_mode", "fine", mode)
    else:
        mend = "Turn on enforce_gtid_consistency and gtid_mode: without GTIDs no other server can take over."
        yield Check("gtid_mode", "warning", mode, mend)


def _rights(database: Database, options: CdcOptions) -> Iterator[Check]:
    user = database.value("select current_user()") or ""
    account = "@".join(f"'{part}'" for part in user.rsplit("@", 1))
    granted = " ".join(row[0] for row in database.query("show grants")).upper()
    everything = "GRANT ALL PRIVILEGES ON *.*" in granted or "GRANT SUPER" in granted
    if everything or "REPLICATION SLAVE" in granted or "REPLICATION REPLICA" in granted:
        yield Check("replication", "fine", f"{user} may read the log")
    else:
        yield Check(
            "replication",
            "wrong",
            f"{user} may not read the log",
            f"GRANT REPLICATION SLAVE ON *.* TO {account};",
        )
    try:
        database.query("show binary logs")
        yield Check("monitor", "fine", f"{user} may ask about the log")
    except (CaptureImpossible, StatementFailed):
        right = "BINLOG MONITOR" if database.is_mariadb else "REPLICATION CLIENT"
        yield Check(
            "monitor", "wrong", f"{user} may not ask about the log", f"GRANT {right} ON *.* TO {account};"
        )


def _retention(database: Database, options: CdcOptions) -> Iterator[Check]:
    seconds = float(database.variable("binlog_expire_logs_seconds") or 0)
    seconds = seconds or float(database.variable("expire_logs_days") or 0) * 86_400
    days = seconds / 86_400
    if not seconds:
        yield Check("retention", "fine", "logs are kept until they are purged by hand")
    elif days < _SHORT_DAYS:
        mend = (
            "SET GLOBAL binlog_expire_logs_seconds = 604800: capture may stand still for no longer than it."
        )
        yield Check("retention", "warning", f"logs are kept for {days:.2g} days", mend)
    else:
        yield Check("retention", "fine", f"logs are kept for {days:.2g} days")


def _tables(database: Database, options: CdcOptions) -> Iterator[Check]:
    chosen = Filter(options.path_name, options.tables, partial(topic_of, options))
    found = read_tables(database, chosen)
    left_out = {name for name in sorted(chosen.named) if chosen.taken_by(*name) is not None}
    if chosen.notes:
        mend = "Capture one of them under another name, with an hw.cdc of its own: name=..."
        yield Check("topics", "wrong" if left_out else "warning", _some(list(chosen.notes)), mend)
    missing = sorted(".".join(name) for name in chosen.named - set(found) - left_out)
    if missing:
        mend = (
            "Correct the names, create the tables, or GRANT SELECT on them: what may not be read is not seen."
        )
        yield Check("tables", "wrong", f"not there: {_some(missing)}", mend)
    elif not found:
        yield Check(
            "tables", "warning", f"no table in {chosen.database} is seen", "GRANT SELECT on the tables."
        )
    else:
        yield Check("tables", "fine", f"{len(found)} found")
    unreadable = [name for name, table in found.items() if not _is_readable(database, table)]
    if unreadable:
        shown = _some(sorted(".".join(name) for name in unreadable))
        yield Check("select", "wrong", f"may not be read: {shown}", "GRANT SELECT on them to the user.")
    keyless = sorted(".".join(name) for name, table in found.items() if not table.key)
    if keyless:
        mend = (
            "Give them a primary key: without one a topic cannot be compacted, and a snapshot cannot resume."
        )
        yield Check("keys", "warning", f"without a key: {_some(keyless)}", mend)
    plain = sorted(".".join(name) for name, table in found.items() if not table.is_transactional)
    if plain:
        mend = (
            "ALTER TABLE ... ENGINE=InnoDB; else writers wait while a chunk is read (LOCK TABLES is needed)."
        )
        yield Check("engines", "warning", f"without transactions: {_some(plain)}", mend)


def _is_readable(database: Database, table: Table) -> bool:
    try:
        database.query(f"select 1 from {quoted_name(table.database)}.{quoted_name(table.name)} limit 0")
    except (CaptureImpossible, StatementFailed):
        return False
    return True


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
