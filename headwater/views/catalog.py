"""The store's own tables: which views there are, which version of each serves, and how far each has come."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from headwater.errors import StoreFailed, UnknownView
from headwater.views.database import Connection, Database
from headwater.views.model import Batch, Progress, VersionInfo, ViewInfo, ViewSchema
from headwater.views.values import utc
from headwater.views.writer import VersionWriter, table_name

FORMAT = 1  # of the tables; a store of a later one is not touched

_META = (
    "CREATE TABLE IF NOT EXISTS headwater_store (format INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS headwater_views "
    "(name TEXT PRIMARY KEY, serving INTEGER, last_change BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS headwater_versions (view TEXT NOT NULL, version INTEGER NOT NULL, "
    "definition TEXT NOT NULL, fingerprint TEXT NOT NULL, batch BIGINT, offsets TEXT NOT NULL, "
    "watermark TEXT, committed TEXT, rows BIGINT NOT NULL, PRIMARY KEY (view, version))",
)
PROGRESS = "version, batch, offsets, watermark, committed, rows"


@dataclass(frozen=True)
class Held:
    """A version whose row the transaction holds."""

    definition: str
    batch: int | None
    rows: int
    serving: int | None
    last_change: int


class Catalog:
    """Reads and writes these tables inside the transactions of others."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Definitions by view and version. They are checked against the store inside each transaction,
        # since another process may have dropped a version and defined it anew.
        self._schemas: dict[tuple[str, int], ViewSchema] = {}

    def ready(self, connection: Connection) -> bool:
        """Whether these tables are there and of a format that we know."""
        if not self._database.has_table(connection, "headwater_store"):
            return False
        (found,) = connection.execute("SELECT max(format) FROM headwater_store").fetchone()
        if found is not None and found > FORMAT:
            cause = f"it has the format {found}, and this Headwater knows {FORMAT}"
            raise StoreFailed("open", "the view store", cause, "Use the later Headwater that wrote it.")
        return found is not None

    def prepare(self, connection: Connection) -> None:
        """Make these tables when they are not there."""
        self._database.prepare(connection)
        if not self.ready(connection):
            for statement in _META:
                connection.execute(statement)
            connection.execute(f"INSERT INTO headwater_store (format) VALUES ({FORMAT})")

    def views(self, connection: Connection) -> list[ViewInfo]:
        """All views with their versions, by name."""
        found = connection.execute("SELECT name, serving, last_change FROM headwater_views").fetchall()
        serving = {name: version for name, version, _ in found}
        versions: dict[str, list[VersionInfo]] = {name: [] for name in serving}
        for view, definition, fingerprint, *rest in connection.execute(
            f"SELECT view, definition, fingerprint, {PROGRESS} FROM headwater_versions ORDER BY version"
        ).fetchall():
            progress = progress_of(rest)
            schema = ViewSchema.from_json(view, progress.version, definition)
            state: Literal["serving", "building"] = (
                "serving" if serving[view] == progress.version else "building"
            )
            versions[view].append(VersionInfo(schema, fingerprint, state, progress))
        return [ViewInfo(name, version, last, tuple(versions[name])) for name, version, last in sorted(found)]

    def remember(self, schema: ViewSchema) -> None:
        """Keep a definition at hand."""
        self._schemas[schema.name, schema.version] = schema

    def forget(self, view: str, version: int) -> None:
        """The reverse of ``remember``."""
        self._schemas.pop((view, version), None)

    def keep_batch(
        self, connection: Connection, view: str, version: int, batch: Batch, writer: VersionWriter
    ) -> None:
        """Note that a batch was applied, what it covers, and what it left."""
        mark = self._database.mark
        offsets = orjson.dumps(batch.offsets, option=orjson.OPT_NON_STR_KEYS).decode()
        watermark = None if batch.watermark is None else _moment(batch.watermark)
        connection.execute(
            f"UPDATE headwater_versions SET batch = {mark}, offsets = {mark}, watermark = {mark}, "
            f"committed = {mark}, rows = {mark} WHERE view = {mark} AND version = {mark}",
            (batch.id, offsets, watermark, _moment(datetime.now(UTC)), writer.rows, view, version),
        )
        if writer.last_change is not None:
            self.keep_last_change(connection, view, writer.last_change)

    def forget_batch(self, connection: Connection, view: str, version: int, rows: int) -> None:
        """Note that no batch was applied, and how many rows there are all the same."""
        mark = self._database.mark
        connection.execute(
            f"UPDATE headwater_versions SET batch = NULL, offsets = '{{}}', watermark = NULL, rows = {mark} "
            f"WHERE view = {mark} AND version = {mark}",
            (rows, view, version),
        )

    def lock_versions(self, connection: Connection, view: str) -> list[int]:
        """Lock all versions of a view, which comes before locking the view."""
        sql = f"SELECT version FROM headwater_versions WHERE view = {self._database.mark} ORDER BY version"
        return [row[0] for row in connection.execute(sql + self._database.lock, (view,)).fetchall()]

    def hold(
        self, connection: Connection, operation: str, view: str, version: int, *, with_view: bool = False
    ) -> Held:
        """Lock a version, and its view when the version's changes are recorded.

        A version that is being built leaves the view alone, so that its batches and those of the one that
        serves do not wait for each other.
        """
        mark, lock = self._database.mark, self._database.lock
        row = connection.execute(
            "SELECT definition, batch, rows FROM headwater_versions "
            f"WHERE view = {mark} AND version = {mark}{lock}",
            (view, version),
        ).fetchone()
        if row is None:
            raise UnknownView(operation, f"{view} version {version}", "it was not defined")
        sql = f"SELECT serving, last_change FROM headwater_views WHERE name = {mark}"
        serving, last = connection.execute(sql, (view,)).fetchone()
        if lock and (with_view or serving == version):
            serving, last = connection.execute(sql + lock, (view,)).fetchone()
        definition, batch, rows = row
        return Held(definition, batch, rows, serving, last)

    def keep_last_change(self, connection: Connection, view: str, last: int) -> None:
        """Note the number of the newest entry of the outbox."""
        mark = self._database.mark
        connection.execute(
            f"UPDATE headwater_views SET last_change = {mark} WHERE name = {mark}", (last, view)
        )

    def last_change(self, connection: Connection, operation: str, view: str) -> int:
        """The number of the newest entry of the outbox, trimmed or not."""
        sql = f"SELECT last_change FROM headwater_views WHERE name = {self._database.mark}"
        row = connection.execute(sql, (view,)).fetchone()
        if row is None:
            raise UnknownView(operation, view, "there is no such view")
        return int(row[0])

    def show(self, connection: Connection, schema: ViewSchema) -> None:
        """Let the name show this version."""
        quote, mark = self._database.quote, self._database.mark
        columns = ", ".join(quote(column.name) for column in schema.columns)
        connection.execute(f"DROP VIEW IF EXISTS {quote(schema.name)}")
        connection.execute(
            f"CREATE VIEW {quote(schema.name)} AS SELECT {columns} "
            f"FROM {quote(table_name(schema.name, schema.version))}"
        )
        connection.execute(
            f"UPDATE headwater_views SET serving = {mark} WHERE name = {mark}", (schema.version, schema.name)
        )

    def schema(self, connection: Connection, view: str, version: int) -> ViewSchema:
        """The definition of a version, as it is now."""
        mark = self._database.mark
        row = connection.execute(
            f"SELECT definition FROM headwater_versions WHERE view = {mark} AND version = {mark}",
            (view, version),
        ).fetchone()
        if row is None:
            raise UnknownView("read", f"{view} version {version}", "there is no such version")
        known = self._schemas.get((view, version))
        if known is None or known.to_json() != row[0]:
            known = self._schemas[view, version] = ViewSchema.from_json(view, version, row[0])
        return known

    def known_schema(self, view: str, version: int) -> ViewSchema:
        """The definition of a version, as it was when we last looked."""
        known = self._schemas.get((view, version))
        if known is not None:
            return known
        return self._database.read("read", view, lambda connection: self.schema(connection, view, version))

    def chosen(self, connection: Connection, view: str, version: int | None) -> ViewSchema:
        """The schema of a version, or of the one that serves."""
        if version is None:
            mark = self._database.mark
            row = connection.execute(
                f"SELECT serving FROM headwater_views WHERE name = {mark}", (view,)
            ).fetchone()
            if row is None or row[0] is None:
                raise UnknownView("read", view, "there is no such view")
            version = row[0]
        return self.schema(connection, view, version)

    def progress(self, connection: Connection, schema: ViewSchema) -> Progress:
        """How far a version has come."""
        mark = self._database.mark
        return progress_of(
            connection.execute(
                f"SELECT {PROGRESS} FROM headwater_versions WHERE view = {mark} AND version = {mark}",
                (schema.name, schema.version),
            ).fetchone()
        )


def progress_of(row: Sequence[Any]) -> Progress:
    """What the columns of ``PROGRESS`` say."""
    version, batch, offsets, watermark, committed, rows = row
    return Progress(
        version,
        batch,
        orjson.loads(offsets),
        None if watermark is None else utc(watermark),
        None if committed is None else utc(committed),
        rows,
    )


def _moment(moment: datetime) -> str:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
