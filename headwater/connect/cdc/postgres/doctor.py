"""Whether a PostgreSQL database can be captured, point by point, each with how to mend it."""

from collections.abc import Iterator
from typing import Any

import psycopg

from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.postgres.catalog import TableInfo, ask, connect, identifier
from headwater.connect.cdc.postgres.plan import Names, key_of
from headwater.connect.cdc.postgres.slot import slot_name, slot_state
from headwater.connect.cdc.postgres.tables import Tables, split_name
from headwater.connect.cdc.postgres.types import Types
from headwater.connect.doctor import Check
from headwater.errors import ConnectionLost

OLDEST = 130000  # publish_via_partition_root, pg_current_snapshot, wal_status
_RESTART = "and restart the server"
_MANY_BYTES = 1 << 30


def examine(options: CdcOptions) -> list[Check]:
    """Looks at everything that capture needs; changes nothing."""
    try:
        with connect(options.url) as connection:
            checks = [Check("reachable", "fine", options.shown_url)]
            for group in (_server, _role, _room, _slot, _publication, _tables):
                checks.extend(group(connection, options))
            return checks
    except ConnectionLost as error:
        mend = "Check host, port, user, password and pg_hba.conf; the server's log says more."
        return [Check("reachable", "wrong", error.cause, mend)]


def _setting(connection: psycopg.Connection[Any], name: str) -> str:
    value: str = ask(connection, "SELECT current_setting(%s)", name)[0][0]
    return value


def _server(connection: psycopg.Connection[Any], options: CdcOptions) -> Iterator[Check]:
    version = connection.info.server_version
    shown = _setting(connection, "server_version")
    if version < OLDEST:
        yield Check("version", "wrong", f"PostgreSQL {shown}", "Upgrade to PostgreSQL 13 or later.")
    else:
        yield Check("version", "fine", f"PostgreSQL {shown}")
    if ask(connection, "SELECT pg_is_in_recovery()")[0][0]:
        yield Check("primary", "wrong", "this is a standby", "Name the primary: changes are captured there.")
    level = _setting(connection, "wal_level")
    if level == "logical":
        yield Check("wal_level", "fine", level)
    else:
        yield Check("wal_level", "wrong", level, f"ALTER SYSTEM SET wal_level = 'logical', {_RESTART}.")
    encoding = _setting(connection, "server_encoding")
    if encoding == "SQL_ASCII":
        mend = "Text that is not UTF-8 is passed on with escapes; better dump it into a database of encoding UTF8."
        yield Check("encoding", "warning", encoding, mend)


def _role(connection: psycopg.Connection[Any], options: CdcOptions) -> Iterator[Check]:
    [[user, is_super, replicates, may_create, database]] = ask(
        connection,
        """SELECT current_user::text, rolsuper, rolreplication,
                  has_database_privilege(current_database(), 'CREATE'), current_database()::text
           FROM pg_roles WHERE rolname = current_user""",
    )
    quoted = identifier(user)
    if is_super or replicates:
        yield Check("replication", "fine", f"{user} may replicate")
    elif ask(connection, "SELECT 1 FROM pg_roles WHERE rolname = 'rds_replication'"):
        yield Check("replication", "wrong", f"{user} may not", f"GRANT rds_replication TO {quoted}.")
    else:
        yield Check("replication", "wrong", f"{user} may not", f"ALTER ROLE {quoted} REPLICATION.")
    published = ask(
        connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", slot_name(options.logical_name)
    )
    if may_create or is_super or published:
        yield Check("create", "fine", f"{user} may make a publication")
    else:
        mend = f"GRANT CREATE ON DATABASE {identifier(database)} TO {quoted}."
        yield Check("create", "wrong", f"{user} may not make a publication in {database}", mend)


def _room(connection: psycopg.Connection[Any], options: CdcOptions) -> Iterator[Check]:
    """Slots and senders that are left. Our own slot takes one of each, and a sender for a moment."""
    has_slot = slot_state(connection, slot_name(options.logical_name)) is not None
    counts = (
        ("max_replication_slots", "SELECT count(*) FROM pg_replication_slots", 0 if has_slot else 1),
        ("max_wal_senders", "SELECT count(*) FROM pg_stat_get_wal_senders()", 1),
    )
    for name, query, needed in counts:
        most, used = int(_setting(connection, name)), ask(connection, query)[0][0]
        found = f"{used} of {most} in use"
        if most - used >= needed:
            yield Check(name, "fine", found)
        else:
            yield Check(name, "wrong", found, f"ALTER SYSTEM SET {name} = {most + 10}, {_RESTART}.")
    kept = _setting(connection, "max_slot_wal_keep_size")
    if kept == "-1":
        mend = (
            "A capture that stands still fills the server's disk. ALTER SYSTEM SET max_slot_wal_keep_size = '50GB' and "
            "SELECT pg_reload_conf() set a bound, at which the slot is lost and the tables are to be read again."
        )
        yield Check("max_slot_wal_keep_size", "warning", "without bound", mend)
    else:
        yield Check("max_slot_wal_keep_size", "fine", kept)


def _slot(connection: psycopg.Connection[Any], options: CdcOptions) -> Iterator[Check]:
    name = slot_name(options.logical_name)
    state = slot_state(connection, name)
    if state is None:
        yield Check("slot", "fine", f"{name} is not there yet; it is made when capture begins")
        return
    drop = f"SELECT pg_drop_replication_slot('{name}')"
    [[here]] = ask(connection, "SELECT current_database()::text")
    if state.plugin != "pgoutput" or state.database != here:
        found = f"{name} is a slot of {state.plugin or 'physical replication'} in {state.database or 'no database'}"
        yield Check("slot", "wrong", found, f"Say another name=..., or {drop}.")
    elif state.wal_status == "lost":
        mend = f"Say on_gap='snapshot', or {drop} and begin anew; raise max_slot_wal_keep_size."
        yield Check("slot", "wrong", f"{name} is lost: the server has discarded what it needs", mend)
    else:
        who = f"in use by process {state.active_pid}" if state.active_pid else "not in use"
        found = f"{name}, {who}, the server keeps {_size(state.retained or 0)} for it ({state.wal_status})"
        if state.wal_status == "unreserved" or (state.safe is not None and state.safe < 0):
            mend = "Start the capture at once: the slot is lost at the next checkpoint."
            yield Check("slot", "warning", found, mend)
        elif not state.active_pid and (state.retained or 0) > _MANY_BYTES:
            yield Check(
                "slot", "warning", found, f"Start the capture, or, if nobody needs it any more, {drop}."
            )
        else:
            yield Check("slot", "fine", found)


def _publication(connection: psycopg.Connection[Any], options: CdcOptions) -> Iterator[Check]:
    name = slot_name(options.logical_name)
    rows = ask(
        connection,
        """SELECT pubviaroot, pubinsert AND pubupdate AND pubdelete AND pubtruncate, puballtables,
                  pg_has_role(pubowner, 'MEMBER')
           FROM pg_publication WHERE pubname = %s""",
        name,
    )
    if not rows:
        has_slot = slot_state(connection, name) is not None
        if has_slot:
            found = f"{name} is not there, though the slot is"
            mend = f"SELECT pg_drop_replication_slot('{name}') and begin anew: the slot cannot be read without it."
            yield Check("publication", "wrong", found, mend)
        else:
            yield Check("publication", "fine", f"{name} is not there yet; it is made when capture begins")
        return
    via_root, all_kinds, all_tables, ours = rows[0]
    if not all_kinds:
        mend = f"ALTER PUBLICATION {identifier(name)} SET (publish = 'insert, update, delete, truncate')."
        yield Check("publication", "wrong", f"{name} leaves out some kinds of change", mend)
    elif not ours and not via_root:
        mend = f"ALTER PUBLICATION {identifier(name)} SET (publish_via_partition_root = true)."
        yield Check("publication", "wrong", f"{name} publishes parts instead of partitioned tables", mend)
    else:
        yield Check("publication", "fine", f"{name}{', all tables' if all_tables else ''}")


def _tables(connection: psycopg.Connection[Any], options: CdcOptions) -> Iterator[Check]:
    names = Names("", options.logical_name, "")
    publication = slot_name(options.logical_name)
    tables = Tables(connection, options, publication, names, Types(lambda oids: []), options.data, {})
    found = tables.look()
    by_name = {(info.schema, info.name): info for info in found}
    for name in options.tables or ():
        if split_name(name) not in by_name:
            yield Check(
                f"table {name}", "wrong", "there is no such table, or no right to see it", "Check its name."
            )
    if options.tables is None:
        for note in tables.notes.values():
            table, _, said = note.partition(" is left out: ")
            yield Check(f"table {table}", "warning", f"left out: {said}", said[said.find("(") + 1 : -1] + ".")
    for info in found:
        yield from _table(connection, info)


def _table(connection: psycopg.Connection[Any], info: TableInfo) -> Iterator[Check]:
    what = f"table {info.full_name}"
    [[may_read]] = ask(
        connection,
        """SELECT has_table_privilege(%s::oid, 'SELECT') AND has_schema_privilege(relnamespace, 'USAGE')
           FROM pg_class WHERE oid = %s::oid""",
        info.oid,
        info.oid,
    )
    [[hidden, quoted]] = ask(
        connection, "SELECT row_security_active(%s::oid), quote_ident(current_user)", info.oid
    )
    in_order = may_read and (info.ours or info.published) and not hidden
    if hidden:
        # An owner can lift it from himself; who is none has to be let past all policies.
        mend = (
            f"ALTER TABLE {info.quoted} NO FORCE ROW LEVEL SECURITY"
            if info.ours
            else f"ALTER ROLE {quoted} BYPASSRLS"
        )
        yield Check(what, "wrong", "policies for rows hide some of them", f"{mend}.")
    if not may_read:
        mend = f"GRANT SELECT ON {info.quoted} TO CURRENT_USER, and USAGE on its schema."
        yield Check(what, "wrong", "it cannot be read", mend)
    if not info.ours and not info.published:
        mend = (
            f"Make the role a member of the owner's, or let the owner add {info.quoted} to the publication."
        )
        yield Check(what, "wrong", "only its owner can publish it", mend)
    if not info.can_be_published:
        found = "no replica identity: its updates and deletes would fail once it is published"
        yield Check(
            what,
            "wrong",
            found,
            f"Give it a primary key, or ALTER TABLE {info.quoted} REPLICA IDENTITY FULL.",
        )
        return
    key = key_of(info)
    identity = {"d": "its primary key", "f": "full", "i": "an index", "n": "nothing"}[info.replica_identity]
    if not key:
        found = "no key: its topic is not compacted, and its snapshot cannot be resumed"
        yield Check(what, "warning", found, "Give it a primary key.")
    elif info.replica_identity == "i" and info.has_primary_key and info.identity_index != info.key:
        found = (
            f"its replica identity is the index on {', '.join(info.identity_index)}, which is the topic's key"
        )
        yield Check(
            what, "warning", found, f"ALTER TABLE {info.quoted} REPLICA IDENTITY DEFAULT for its primary key."
        )
    elif in_order:
        yield Check(what, "fine", f"key {', '.join(key)}; replica identity {identity}")


def _size(count: int) -> str:
    """
    >>> _size(352), _size(5 << 30)
    ('352 bytes', '5.0 GB')
    """
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
