"""Writes to a SQLite database at random until it is killed.

``python -m tests.connect.sqlite.random_writer FILE SEED``; several at once get in each other's way.
"""

import random
import sqlite3
import sys
import time
from pathlib import Path

TABLES = {
    "users": "CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY, name TEXT UNIQUE, n)",
    "pairs": "CREATE TABLE IF NOT EXISTS pairs (a, b, n, PRIMARY KEY (a, b)) WITHOUT ROWID",
    "words": "CREATE TABLE IF NOT EXISTS words (a TEXT PRIMARY KEY NOT NULL, b, n)",
    "bag": "CREATE TABLE IF NOT EXISTS bag (a, b, n)",
}


def make(path: Path, rows: int) -> None:
    """The tables, with so many rows each."""
    with sqlite3.connect(path, timeout=60) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        for name, statement in TABLES.items():
            connection.execute(statement)
            connection.executemany(
                f"INSERT INTO {name} VALUES (?, ?, 0)", ((n, f"{name} {n}") for n in range(rows))
            )
    connection.close()


def statement(chance: random.Random) -> tuple[str, tuple[object, ...]]:
    """Something that happens to a database."""
    table = chance.choice(list(TABLES))
    first, second = ("id", "name") if table == "users" else ("a", "b")
    key, other = chance.randrange(3000), f"{table} {chance.randrange(3000)}"
    kind = chance.randrange(9)
    if kind < 3:
        return f"INSERT OR REPLACE INTO {table} ({first}, {second}, n) VALUES (?, ?, ?)", (
            key,
            other,
            chance.random(),
        )
    if kind < 5:
        return f"UPDATE OR REPLACE {table} SET n = n + 1 WHERE {first} = ?", (key,)
    if kind < 6:
        return f"UPDATE OR REPLACE {table} SET {first} = ? WHERE {first} = ?", (key, chance.randrange(3000))
    if kind < 7:
        return f"INSERT OR IGNORE INTO {table} ({first}, {second}, n) VALUES (?, ?, ?)", (
            key,
            other,
            chance.randbytes(3),
        )
    if kind < 8:
        return f"DELETE FROM {table} WHERE {first} = ? OR {second} = ?", (key, other)
    return f"DELETE FROM {table} WHERE {first} BETWEEN ? AND ?", (key, key + 20)


def transaction(connection: sqlite3.Connection, chance: random.Random) -> None:
    """A few statements, or a change of a table."""
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(int(chance.paretovariate(1.2))):
        connection.execute(*statement(chance))
    connection.execute("ROLLBACK" if chance.random() < 0.1 else "COMMIT")
    table = chance.choice(list(TABLES))
    if chance.random() < 0.005:
        number = time.time_ns() % 10**9
        connection.execute(f"ALTER TABLE {table} ADD COLUMN c{number}")
        connection.execute(f"UPDATE {table} SET c{number} = 1 WHERE n > 5")
    if chance.random() < 0.002:
        connection.execute("VACUUM")
    if chance.random() < 0.005:
        # As people change a table where ALTER TABLE cannot.
        columns = "id, name, n" if table == "users" else "a, b, n"
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(TABLES[table].replace(f"EXISTS {table}", f"EXISTS new_{table}"))
        connection.execute(f"INSERT INTO new_{table} SELECT {columns} FROM {table} WHERE n < 1000")
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE new_{table} RENAME TO {table}")
        connection.execute("COMMIT")


def main() -> None:
    path, chance = sys.argv[1], random.Random(int(sys.argv[2]))
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    while True:
        try:
            transaction(connection, chance)
        except sqlite3.OperationalError:  # the other one has changed the table
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        time.sleep(chance.expovariate(1000))


if __name__ == "__main__":
    main()
