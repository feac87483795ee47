"""What a SQLite database needs for capture."""

import os
import sqlite3

from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.sqlite.database import Database, file_of
from headwater.connect.cdc.sqlite.schema import describe, table_names
from headwater.connect.doctor import Check
from headwater.errors import HeadwaterError

OLDEST = (3, 37, 0)  # knows pragma_table_list


def examine(options: CdcOptions) -> list[Check]:
    """All checks, the most important first."""
    path = file_of(options.url)
    checks = [_library()]
    if not path.is_file():
        mend = "Name the file: sqlite:///shop.db, or with four slashes sqlite:////srv/shop.db."
        return [*checks, Check("file", "wrong", f"there is no file {path.absolute()}", mend)]
    try:
        database = Database(path, read_only=True)
    except HeadwaterError as error:
        return [*checks, Check("file", "wrong", error.cause, error.next_step)]
    try:
        with database.explained("examine"):
            checks += [_file(path), _writable(path), _journal(database)]
            checks += _tables(database, options)
            checks += _captures(database)
    except HeadwaterError as error:
        checks.append(Check("file", "wrong", error.cause, error.next_step))
    finally:
        database.close()
    return checks


def _library() -> Check:
    if sqlite3.sqlite_version_info < OLDEST:
        mend = f"Use a Python with SQLite {'.'.join(map(str, OLDEST))} or later."
        return Check("library", "wrong", f"SQLite {sqlite3.sqlite_version}", mend)
    return Check("library", "fine", f"SQLite {sqlite3.sqlite_version}")


def _file(path: os.PathLike[str]) -> Check:
    return Check("file", "fine", f"{os.fspath(path)}, {os.stat(path).st_size:,} bytes")


def _writable(path: os.PathLike[str]) -> Check:
    folder = os.path.dirname(os.path.abspath(path))
    if os.access(path, os.W_OK) and os.access(folder, os.W_OK):
        return Check("permissions", "fine", "file and directory may be written to")
    mend = f"Let this user write to {os.fspath(path)} and {folder}: triggers and a changelog are made in it."
    return Check("permissions", "wrong", "the file or its directory may not be written to", mend)


def _journal(database: Database) -> Check:
    if database.is_wal():
        return Check("journal", "fine", "a write-ahead log: capture and writers do not wait for each other")
    mend = "Run once: PRAGMA journal_mode = wal"
    return Check("journal", "warning", "a rollback journal: writers wait while capture reads", mend)


def _tables(database: Database, options: CdcOptions) -> list[Check]:
    present = table_names(database.connection)
    wanted = present if options.tables is None else list(options.tables)
    checks = []
    first: dict[str, str] = {}
    for name in sorted(wanted):
        if name not in present:
            mend = "Create it, or correct tables=[...]; it is captured from when it is there."
            checks.append(Check(f"table {name}", "warning", "there is no such table", mend))
            continue
        if (taken := first.setdefault(options.table_topic("main", name), name)) != name:
            mend = "Capture it under another name, with an hw.cdc of its own."
            found = f"left out: its topic would be that of {taken}"
            checks.append(Check(f"table {name}", "warning", found, mend))
            continue
        try:
            checks.append(_table(database, name))
        except HeadwaterError as error:
            checks.append(Check(f"table {name}", "wrong", error.cause, error.next_step))
    return checks


def _table(database: Database, name: str) -> Check:
    table = describe(database.connection, name)
    what = f"table {name}"
    if not table.key:
        mend = "Give it a primary key; without one its topic has no keys and is not compacted."
        return Check(what, "warning", "it has no primary key", mend)
    nullable = {column.name for column in table.columns if column.nullable}
    if table.rowid is not None and not table.has_stable_rowid and nullable.intersection(table.key):
        mend = "Say NOT NULL for the columns of its primary key: rows with NULL there would share a key."
        return Check(what, "warning", "its primary key lets NULL in, as SQLite allows", mend)
    expressions = [
        index
        for index, unique in database.connection.execute(
            'SELECT name, "unique" FROM pragma_index_list(?)', (name,)
        ).fetchall()
        if unique
        and database.number("SELECT count(*) FROM pragma_index_xinfo(?) WHERE key AND name IS NULL", index)
    ]
    if expressions:
        mend = "Do not use REPLACE on it, or say PRAGMA recursive_triggers = on in the writers."
        found = f"the unique index {expressions[0]} is over an expression: what REPLACE deletes for it is not seen"
        return Check(what, "warning", found, mend)
    return Check(what, "fine", f"key {', '.join(table.key)}")


def _captures(database: Database) -> list[Check]:
    if not database.has_changelog():
        return [Check("changelog", "fine", "none yet; it is made when capture begins")]
    rows = database.connection.execute("SELECT name, acknowledged FROM _headwater_captures").fetchall()
    last = database.last_sequence()
    return [
        Check(
            f"capture {name}",
            "fine" if last - acknowledged < 1_000_000 else "warning",
            f"{last - acknowledged:,} changes are yet to be read",
            ""
            if last - acknowledged < 1_000_000
            else f"Run it, or remove it: `headwater connect remove`, name {name}.",
        )
        for name, acknowledged in rows
    ]
