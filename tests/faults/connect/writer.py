"""Random writers: they keep nothing in mind, so that a server may take any transaction of theirs with it."""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from tests.faults.connect.databases import LOST, Database, Session

KEYS = 300
LONG_BODY = 6000  # characters: so long that PostgreSQL stores it apart


class Writer(threading.Thread):
    """One writer with keys of its own, `first` on: changes of two writers never wait for each other."""

    def __init__(self, database: Database, first: int, seed: int, pause: float, big: int) -> None:
        super().__init__(daemon=True)
        self.database, self.first, self.big = database, first, big
        self.pause = pause
        self.written: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._dice = random.Random(seed)
        self._versions = itertools.count(first * 1_000_000 + 1)
        self._names = itertools.count(1)
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    session = self.database.open()
                except LOST:
                    time.sleep(0.05)
                    continue
                try:
                    while not self._stopping.is_set():
                        self._transaction(session)
                        time.sleep(self.pause * self._dice.random())
                except LOST:
                    self.written["connections lost"] += 1
                finally:
                    session.close()
        except BaseException as error:
            self.failure = error
            raise

    def stop(self) -> None:
        """Ends it; raises what it died of."""
        self._stopping.set()
        self.join(30)
        if self.failure is not None:
            raise self.failure

    def _transaction(self, session: Session) -> None:
        kinds: dict[Callable[[Session], None], float] = {
            self._small: 60,
            self._change_key: 10,
            self._pairs: 10,
            self._bag: 10,
            self._scratch: 5,
            self._big: 1 if self.big else 0,
        }
        if self.first == 0:  # only one of them changes tables
            kinds |= {self._alter: 3, self._empty: 0.3}
        chosen = self._dice.choices(list(kinds), list(kinds.values()))[0]
        chosen(session)
        session.commit()
        self.written[chosen.__name__.strip("_")] += 1

    # -- kinds of transactions -------------------------------------------------------------------------

    def _key(self) -> int:
        return self.first + self._dice.randrange(KEYS)

    def _small(self, session: Session) -> None:
        upsert = self.database.upsert.format(key="id")
        for _ in range(self._dice.randint(1, 5)):
            kind = self._dice.random()
            if kind < 0.4:
                body = (
                    "b" * LONG_BODY if self._dice.random() < 0.2 else self._dice.choice(["", "short", None])
                )
                session.run(
                    f"insert into items (id, version, body) values (%s, %s, %s) {upsert}",
                    (self._key(), next(self._versions), body),
                )
            elif kind < 0.8:
                session.run(
                    "update items set version = %s where id = %s", (next(self._versions), self._key())
                )
            else:
                session.run("delete from items where id = %s", (self._key(),))

    def _change_key(self, session: Session) -> None:
        old, new = self._key(), self._key()
        if old != new:
            session.run("delete from items where id = %s", (new,))
            session.run(
                "update items set id = %s, version = %s where id = %s", (new, next(self._versions), old)
            )

    def _pairs(self, session: Session) -> None:
        a, b = self._key(), self._dice.choice(["x", "y"])
        upsert = self.database.upsert.format(key="b, a")
        session.run(
            f"insert into pairs (a, b, version) values (%s, %s, %s) {upsert}", (a, b, next(self._versions))
        )
        session.run("delete from pairs where a = %s and b = %s", (self._key(), "z"))
        if self._dice.random() < 0.3:
            session.run("delete from pairs where a = %s and b = 'z'", (a,))
            session.run(
                "update pairs set b = 'z', version = %s where a = %s and b = %s", (next(self._versions), a, b)
            )

    def _bag(self, session: Session) -> None:
        a = self._key()
        for b in range(self._dice.randint(1, 3)):
            session.run("insert into bag (a, b) values (%s, %s)", (a, b))
        session.run("update bag set b = b + 10 where a = %s and b < 3", (self._key(),))
        if self._dice.random() < 0.5:
            session.run("delete from bag where a = %s", (self._key(),))

    def _scratch(self, session: Session) -> None:
        upsert = self.database.upsert.format(key="id")
        session.run(f"insert into scratch values (%s, %s) {upsert}", (self._key(), next(self._versions)))

    def _big(self, session: Session) -> None:
        rows = ", ".join(f"({self.first + 10_000 + n}, {next(self._versions)})" for n in range(self.big))
        session.run(f"insert into items (id, version) values {rows} {self.database.upsert.format(key='id')}")
        if self._dice.random() < 0.5:
            session.run(
                "delete from items where id between %s and %s",
                (self.first + 10_000, self.first + 10_000 + self.big // 2),
            )

    def _alter(self, session: Session) -> None:
        """A column comes, goes, is renamed or made again, with or without a value for the rows that are there."""
        table = "items" if self._dice.random() < 0.8 else "bag"
        found = session.run(
            "select column_name from information_schema.columns where table_name = %s"
            " and column_name like 'extra%%' and table_schema in ('public', 'shop')",
            (table,),
        )
        name = f"extra_{next(self._names)}_{self._dice.randrange(10**6)}"
        present = self._dice.choice(found)[0] if found else None
        kinds = ["index", "add", "add"]
        if present is not None:
            kinds += ["rename", "again"] if len(found) < 4 else ["drop"] * 3
        chosen = self._dice.choice(kinds)
        if chosen == "index":
            self._index(session)
        elif chosen == "add":
            session.run(f"alter table {table} add column {name} {self._extra()}")
            self._fill(session, table, name)
        elif chosen == "rename":
            session.run(f"alter table {table} rename column {present} to {name}")
        elif chosen == "drop":
            session.run(f"alter table {table} drop column {present}")
        elif self._dice.random() < 0.5:
            session.run(f"alter table {table} drop column {present}, add column {present} {self._extra()}")
        else:
            session.run(f"alter table {table} drop column {present}")
            session.run(f"alter table {table} add column {present} {self._extra()}")
            self._fill(session, table, str(present))
        self.written[f"alter: {chosen}"] += 1

    def _extra(self) -> str:
        """A type, and what rows have that are there already."""
        value = self._dice.randrange(100)
        return self._dice.choice(
            [
                *("int", f"int default {value}", f"int not null default {value}"),
                f"varchar(20) not null default 'v{value}'",
            ]
        )

    def _fill(self, session: Session, table: str, name: str) -> None:
        if table == "bag":
            session.run(f"update bag set {name} = %s where a = %s", ("7", self._key()))
            return
        session.run(
            f"update items set {name} = %s, version = %s where id = %s",
            ("7", next(self._versions), self._key()),
        )

    def _index(self, session: Session) -> None:
        name = "items_by_version"
        catalogue = (
            "select 1 from pg_indexes where indexname = %s"
            if self.database.kind == "postgres"
            else "select 1 from information_schema.statistics where table_schema = 'shop' and index_name = %s"
        )
        if not session.run(catalogue, (name,)):
            session.run(f"create index {name} on items (version)")
        else:
            on = "" if self.database.kind == "postgres" else " on items"
            session.run(f"drop index {name}{on}")

    def _empty(self, session: Session) -> None:
        session.run("truncate table scratch")
