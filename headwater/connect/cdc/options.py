"""What a capture is asked to do: plain data, checked when it is declared; no connection is made for it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote, urlsplit, urlunsplit

from headwater.errors import ApplicationInvalid

Database = Literal["postgres", "mysql", "sqlite"]
SnapshotMode = Literal["initial", "never"]
OnGap = Literal["fail", "snapshot"]

SCHEMES: Mapping[str, Database] = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
# With twice as many, a snapshot of MariaDB takes a third more memory, for a tenth more rows a second.
CHUNK_ROWS = 5_000
DATA = Path(".headwater")

UNFIT = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class CdcOptions:
    """The arguments of ``hw.cdc``.

    >>> options = CdcOptions("postgresql://app:secret@db/shop?sslmode=require", tables=("users",))
    >>> options.database, options.logical_name, options.topic("Order Line"), options.shown_url
    ('postgres', 'shop', 'shop.Order_Line', 'postgresql://app:***@db/shop?sslmode=require')
    """

    url: str
    tables: tuple[str, ...] | None = (
        None  # as the database names them, with a schema where it has one; None: all
    )
    name: str | None = (
        None  # in front of the topics, and the identity of the source; else the database's name
    )
    snapshot: SnapshotMode = "initial"
    transactions: bool = False  # Debezium's transaction metadata
    on_gap: OnGap = "fail"  # when the database no longer has changes that were yet to be read
    outbox: str | None = None  # a table whose rows are events for the topics outbox.event.<aggregatetype>
    chunk_rows: int = CHUNK_ROWS
    heartbeat: float | None = None  # seconds between records in <name>.heartbeat; None: no such topic
    settings: Mapping[str, Any] = field(default_factory=dict)  # what one kind of database alone knows
    data: Path = DATA  # for what can be rebuilt; set when the source is run

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            scheme = parts.scheme
            if SCHEMES.get(scheme) == "mysql":
                _ = parts.port  # PostgreSQL's own URLs may have several
        except ValueError as error:
            # Not as it is: nobody can tell where its password would be.
            shown = f"{self.url.partition('://')[0]}://..."
            step = "Write SCHEME://USER:PASSWORD@HOST:PORT/DATABASE."
            raise ApplicationInvalid("capture", shown, str(error).lower(), step) from error
        if scheme not in SCHEMES:
            raise self._wrong(f"{scheme or self.url!r} names no database that can be captured", _KNOWN)
        if not self.logical_name:
            raise self._wrong("the URL names no database", "End it with /DATABASE, or say name=...")
        if len(self.logical_name) > 200 or UNFIT.search(self.logical_name):
            cause = f"the name {self.logical_name!r} cannot stand in front of topics"
            raise self._wrong(cause, "Give it another with name=...: letters, digits, '.', '_' and '-'.")
        if self.tables is not None and (not self.tables or not all(self.tables)):
            raise self._wrong("tables names nothing", "Name tables, or leave it out for all of them.")
        _one_of(self, "snapshot", get_args(SnapshotMode))
        _one_of(self, "on_gap", get_args(OnGap))
        if not isinstance(self.chunk_rows, int) or self.chunk_rows < 1:
            raise self._wrong(f"chunk_rows is {self.chunk_rows!r}", "Let it be a whole number from 1 on.")
        if self.heartbeat is not None and not self.heartbeat > 0:
            raise self._wrong(f"heartbeat is {self.heartbeat!r}", "Give seconds, or leave it out.")

    @property
    def database(self) -> Database:
        """Which kind of database it is."""
        return SCHEMES[urlsplit(self.url).scheme]

    @property
    def path_name(self) -> str:
        """What the URL calls the database: for SQLite its file's name without the ending."""
        path = unquote(urlsplit(self.url).path)
        return Path(path).stem if self.database == "sqlite" else path.strip("/")

    @property
    def logical_name(self) -> str:
        """Debezium's logical name: in front of the topics, and the identity of the source."""
        return self.name or UNFIT.sub("_", self.path_name)

    @property
    def shown_url(self) -> str:
        """The URL without its password, for people."""
        parts = urlsplit(self.url)
        if not parts.password:
            return self.url
        userinfo, _, host = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{userinfo.partition(':')[0]}:***@{host}"))

    def topic(self, *parts: str) -> str:
        """The topic of a table: its name behind the logical one, with what Kafka does not allow replaced."""
        return UNFIT.sub("_", ".".join((self.logical_name, *parts)))

    @property
    def own_topics(self) -> dict[str, str]:
        """Topics that are no table's, with what they are for."""
        own = {"schema": "definitions of tables"}
        if self.transactions:
            own["transaction"] = "transactions"
        if self.heartbeat is not None:
            own["heartbeat"] = "heartbeats"
        if self.database == "postgres":
            own["message"] = "logical messages"
        return {self.topic(name): purpose for name, purpose in own.items()}

    def table_topic(self, home: str, *parts: str) -> str:
        """The topic of a table; with `home`, what it lies in, where its name alone is that of a topic of ours.

        >>> CdcOptions("sqlite:///shop.db").table_topic("main", "schema")
        'shop.main.schema'
        """
        topic = self.topic(*parts)
        return self.topic(home, *parts) if topic in self.own_topics else topic

    def setting(self, key: str, default: Any = None) -> Any:
        """One of the settings that this kind of database alone knows."""
        return self.settings.get(key, default)

    def know(self, *keys: str) -> None:
        """Refuses settings that the database at hand does not know: a typing error must not pass unseen."""
        if unknown := sorted(set(self.settings) - set(keys)):
            known = f"It knows {', '.join(sorted(keys))}." if keys else "It has none of its own."
            raise self._wrong(f"there is no option {', '.join(unknown)} for {self.database}", known)

    def _wrong(self, cause: str, step: str) -> ApplicationInvalid:
        return ApplicationInvalid("capture", self.shown_url, cause, step)


_KNOWN = "Use postgresql://, mysql://, mariadb:// or sqlite:///FILE."


def _one_of(options: CdcOptions, field_name: str, allowed: Iterable[str]) -> None:
    value = getattr(options, field_name)
    if value not in tuple(allowed):
        texts = " or ".join(repr(each) for each in allowed)
        raise options._wrong(f"{field_name} is {value!r}", f"Say {texts}.")
