"""The shop's own database. It knows nothing of Headwater: changes are captured from it."""

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

TABLES = """
CREATE TABLE customers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL
);
CREATE TABLE products (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, category TEXT NOT NULL, cents INTEGER NOT NULL,
    stock INTEGER NOT NULL CHECK (stock >= 0), reorder_at INTEGER NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers, cents INTEGER NOT NULL,
    status TEXT NOT NULL, ordered_at TEXT NOT NULL
);
CREATE TABLE order_lines (
    id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES orders, product TEXT NOT NULL,
    category TEXT NOT NULL, quantity INTEGER NOT NULL, cents INTEGER NOT NULL, sold_at TEXT NOT NULL
);
"""  # a line has the product's name and price as they were when it was sold

PRODUCTS = (  # name, category, cents
    ("apples", "fruit", 349),
    ("bananas", "fruit", 199),
    ("oranges", "fruit", 299),
    ("berries", "fruit", 449),
    ("milk", "chilled", 129),
    ("butter", "chilled", 279),
    ("yoghurt", "chilled", 99),
    ("cheese", "chilled", 599),
    ("bread", "bakery", 259),
    ("rolls", "bakery", 59),
    ("cake", "bakery", 799),
    ("ice cream", "frozen", 499),
    ("peas", "frozen", 189),
    ("pizza", "frozen", 399),
)
FIRST_STOCK, REORDER_AT, DELIVERY = 30, 10, 40
CITIES = ("Bern", "Lyon", "Graz", "Turin", "Ghent")
CUSTOMERS = 50


class Shop:
    """What the shop does to its database, each in one transaction. For one thread."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None, timeout=30.0)
        self._database.execute("PRAGMA journal_mode = wal")

    @classmethod
    def open_anew(cls, file: Path) -> "Shop":
        """A shop with customers and a full store room; one that is there already goes on."""
        file.parent.mkdir(parents=True, exist_ok=True)
        shop = cls(file)
        database = shop._database
        if database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'products'").fetchone()[0]:
            return shop
        database.executescript(TABLES)
        with shop._transaction():
            database.executemany(
                "INSERT INTO customers (name, city) VALUES (?, ?)",
                [(f"customer {number}", CITIES[number % len(CITIES)]) for number in range(1, CUSTOMERS + 1)],
            )
            database.executemany(
                "INSERT INTO products (name, category, cents, stock, reorder_at) VALUES (?, ?, ?, ?, ?)",
                [(*product, FIRST_STOCK, REORDER_AT) for product in PRODUCTS],
            )
        return shop

    def order(self, customer: int, wanted: Sequence[tuple[int, int]]) -> int:
        """An order of so many pieces of products, as far as there are any; how many lines it has."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        database = self._database
        with self._transaction():
            lines = []
            for product, quantity in wanted:
                name, category, cents, stock = database.execute(
                    "SELECT name, category, cents, stock FROM products WHERE id = ?", [product]
                ).fetchone()
                pieces = min(quantity, stock)
                if pieces:
                    database.execute("UPDATE products SET stock = stock - ? WHERE id = ?", [pieces, product])
                    lines.append((name, category, pieces, cents))
            if lines:
                total = sum(pieces * cents for *_, pieces, cents in lines)
                order = database.execute(
                    "INSERT INTO orders (customer_id, cents, status, ordered_at) VALUES (?, ?, 'paid', ?)",
                    [customer, total, now],
                ).lastrowid
                database.executemany(
                    "INSERT INTO order_lines (order_id, product, category, quantity, cents, sold_at) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    [(order, *line, now) for line in lines],
                )
        return len(lines)

    def ship(self) -> None:
        """The oldest orders that are paid leave the house."""
        with self._transaction():
            self._database.execute(
                "UPDATE orders SET status = 'shipped' WHERE id IN "
                "(SELECT id FROM orders WHERE status = 'paid' ORDER BY id LIMIT 10)"
            )

    def deliver(self) -> None:
        """The supplier fills up what has run low."""
        with self._transaction():
            self._database.execute(
                "UPDATE products SET stock = stock + ? WHERE stock < reorder_at", [DELIVERY]
            )

    def rows(self, table: str) -> list[dict[str, object]]:
        """All rows of a table."""
        found = self._database.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def close(self) -> None:
        self._database.close()

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._database)


class _Transaction:
    """Takes the lock at the beginning: capture writes to the database as well, and so may others."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")
