"""Publication and slot: made, checked, and what it means when they are not as they were left."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from headwater.connect.cdc.postgres.catalog import TableInfo, address, ask, do, identifier
from headwater.connect.cdc.postgres.lsn import lsn_number, lsn_text
from headwater.connect.cdc.postgres.replication import open_replication, run
from headwater.errors import CaptureImpossible, ConnectionLost

_LONGEST_NAME = 63
NO_PUBLICATION = (
    "the publication was dropped: what the slot has from before it is made again cannot be decoded any more"
)
_FREE_WITHIN = 8.0  # seconds for the server to notice that the last user of a slot has gone


def slot_name(name: str) -> str:
    """The slot (and the publication) of a source.

    >>> slot_name("Shop-2.eu")
    'headwater_shop_2_eu'
    """
    return ("headwater_" + re.sub(r"[^a-z0-9_]", "_", name.lower()))[:_LONGEST_NAME]


@dataclass(frozen=True)
class Server:
    """Which server answers. A standby that was promoted has the same system and another timeline."""

    system: str
    timeline: int
    database: str
    switches: tuple[tuple[int, int], ...]  # (timeline, the position at which it was left)


def identify(url: str) -> Server:
    """Asks a server who it is."""
    connection = open_replication(url)
    try:
        [[system, timeline, _, database]] = run(connection, "IDENTIFY_SYSTEM", "identify")
        assert system is not None and timeline is not None and database is not None
        switches: list[tuple[int, int]] = []
        if int(timeline) > 1:
            [[_, history]] = run(connection, f"TIMELINE_HISTORY {int(timeline)}", "read the history of")
            for line in (history or b"").decode("utf-8", "replace").splitlines():
                parts = line.split("\t")
                if len(parts) >= 2 and parts[0].strip().isdigit():
                    switches.append((int(parts[0]), lsn_number(parts[1].strip())))
        return Server(system.decode(), int(timeline), database.decode(), tuple(switches))
    finally:
        connection.finish()


@dataclass(frozen=True)
class SlotState:
    """A slot as pg_replication_slots has it."""

    plugin: str
    database: str
    active_pid: int | None
    confirmed: int
    wal_status: str | None  # reserved, extended, unreserved, lost
    retained: int | None  # bytes of log that the server keeps for it
    safe: int | None  # bytes that may yet be written before it is lost; None without max_slot_wal_keep_size


def slot_state(connection: psycopg.Connection[Any], name: str) -> SlotState | None:
    rows = ask(
        connection,
        """SELECT plugin::text, database::text, active_pid, coalesce(confirmed_flush_lsn, '0/0')::text, wal_status,
                  pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
                                       ELSE pg_current_wal_lsn() END, restart_lsn)::int8, safe_wal_size
           FROM pg_replication_slots WHERE slot_name = %s""",
        name,
    )
    if not rows:
        return None
    plugin, database, pid, confirmed, status, retained, safe = rows[0]
    return SlotState(plugin or "", database or "", pid, lsn_number(confirmed), status, retained, safe)


def missed(state: SlotState | None, server: Server, position: Mapping[str, Any]) -> str | None:
    """Why changes after a position cannot be had any more; None if they can."""
    lsn = lsn_number(position["lsn"])
    if server.system != position["system"]:
        return "this is another server than before (its system identifier differs)"
    if server.timeline != position["timeline"]:
        left = dict(server.switches).get(position["timeline"])
        if left is None or lsn > left:
            return (
                f"the server was replaced by a standby or a copy that lacks the end of what was captured "
                f"(timeline {position['timeline']} became {server.timeline})"
            )
    if state is None:
        return "the replication slot is not there any more: it was dropped, or did not follow to a promoted standby"
    if state.wal_status == "lost" or (state.wal_status is None and not state.confirmed):
        return "the server has discarded the log that the slot needs (max_slot_wal_keep_size)"
    if state.confirmed > lsn:
        return (
            f"somebody else has read from the slot: it is at {lsn_text(state.confirmed)}, "
            f"and capture had only come to {lsn_text(lsn)}"
        )
    return None


def has_publication(connection: psycopg.Connection[Any], name: str) -> bool:
    return bool(ask(connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", name))


def lacks_publication(cause: str, name: str) -> bool:
    """Whether this is why a stream has ended: the publication, made again, was not there yet at that place.

    >>> lacks_publication('ERROR:  publication "headwater_shop" does not exist', "headwater_shop")
    True
    """
    return f'"{name}"' in cause and "publication" in cause and "exist" in cause


def ensure_publication(
    connection: psycopg.Connection[Any], name: str, tables: Sequence[TableInfo]
) -> list[TableInfo]:
    """Makes the publication, or adds and removes tables; returns those that were added.

    It is never made anew: the stream is decoded with the catalogue of its time, in which it has to be there.
    """
    url = "the database"
    rows = ask(
        connection,
        """SELECT puballtables, pubviaroot, pubinsert AND pubupdate AND pubdelete AND pubtruncate
           FROM pg_publication WHERE pubname = %s""",
        name,
    )
    try:
        if not rows:
            what = f" FOR TABLE {_names(tables)}" if tables else ""
            do(
                connection,
                f"CREATE PUBLICATION {identifier(name)}{what} WITH (publish_via_partition_root = true)",
            )
            return list(tables)
        for_all, via_root, all_kinds = rows[0]
        if not via_root:
            do(connection, f"ALTER PUBLICATION {identifier(name)} SET (publish_via_partition_root = true)")
        if not all_kinds:  # somebody has changed it, and changes were left out
            kinds = "insert, update, delete, truncate"
            do(connection, f"ALTER PUBLICATION {identifier(name)} SET (publish = '{kinds}')")
        if for_all:
            return [] if all_kinds else list(tables)
        added = [table for table in tables if not table.published]
        in_part = [table for table in tables if table.published_in_part and table.ours]
        with connection.transaction():
            if in_part:
                do(connection, f"ALTER PUBLICATION {identifier(name)} DROP TABLE {_names(in_part)}")
            if added or in_part:
                do(connection, f"ALTER PUBLICATION {identifier(name)} ADD TABLE {_names([*added, *in_part])}")
        added += in_part
        wanted = {table.oid for table in tables}
        published = ask(
            connection,
            """SELECT c.oid::int8, n.nspname::text, c.relname::text FROM pg_publication_rel r
               JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c ON c.oid = r.prrelid
               JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s""",
            name,
        )
        for oid, schema, table in published:
            if oid not in wanted:
                quoted = f"{identifier(schema)}.{identifier(table)}"  # children that inherit stay
                do(connection, f"ALTER PUBLICATION {identifier(name)} DROP TABLE ONLY {quoted}")
        return added if all_kinds else list(tables)
    except psycopg.errors.InsufficientPrivilege as error:
        raise CaptureImpossible("publish", f"tables of {url}", str(error).strip()) from error
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        raise CaptureImpossible("publish", f"tables of {url}", str(error).strip()) from error


def _names(tables: Iterable[TableInfo]) -> str:
    return ", ".join(table.published_as for table in tables)


def create_slot(url: str, name: str) -> int:
    """Makes the slot and returns where it begins. Waits for transactions that write while it is made."""
    connection = open_replication(url)
    try:
        rows = run(connection, f'CREATE_REPLICATION_SLOT "{name}" LOGICAL pgoutput NOEXPORT_SNAPSHOT', "make")
        found = rows[0][1]
        assert found is not None
        return lsn_number(found.decode())
    except ConnectionLost as error:
        if "wal_level" in error.cause or "must be" in error.cause or "slots are in use" in error.cause:
            raise CaptureImpossible("make a replication slot at", address(url), error.cause) from error
        raise
    finally:
        connection.finish()


def drop_slot(connection: psycopg.Connection[Any], name: str) -> None:
    """Removes a slot, if it is there."""
    release_slot(connection, name)
    ask(
        connection,
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
        name,
    )


def release_slot(connection: psycopg.Connection[Any], name: str) -> None:
    """Waits until nobody uses the slot, and ends who still does.

    Whoever comes later is the one that counts: the log fences the worker that was there before.
    """
    end = time.monotonic() + _FREE_WITHIN
    asked = 0
    while True:
        state = slot_state(connection, name)
        if state is None or state.active_pid is None:
            return
        if time.monotonic() > end:
            raise ConnectionLost(
                "take over", f"slot {name}", f"process {state.active_pid} of the server holds it"
            )
        asked += 1
        if asked >= 10:
            try:
                ask(connection, "SELECT pg_terminate_backend(%s)", state.active_pid)
            except psycopg.errors.InsufficientPrivilege:
                pass
        time.sleep(0.05)


def removal(name: str) -> list[str]:
    """How to remove what a source has made in the database.

    >>> removal("shop")[1]
    'DROP PUBLICATION IF EXISTS "headwater_shop"'
    """
    slot = slot_name(name)
    return [
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'",
        f"DROP PUBLICATION IF EXISTS {identifier(slot)}",
    ]
