"""A workload: what is in a database before capture begins, and what happens to it afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# column -> (its type, SQL literals: one a row; rows beyond the last are NULL)
Columns = Mapping[str, tuple[str, Sequence[str]]]

STREAM_IDS = 100  # what is inserted while capture runs has the same values under ids from here on
END = "zz_end"  # its row with id 1 is the last that is written


@dataclass
class Workload:
    """Statements. Those of `stream` come in transactions, one list each."""

    setup: list[str] = field(default_factory=list)
    stream: list[list[str]] = field(default_factory=list)
    columns: dict[str, Columns] = field(default_factory=dict)  # of the tables made by `typed`

    def typed(self, table: str, columns: Columns, quote: str = '"') -> None:
        """A table with one column for each type: the same rows before and after, updated and deleted."""
        self.columns[table] = columns
        definitions = ", ".join(f"{quote}{name}{quote} {kind}" for name, (kind, _) in columns.items())
        self.setup.append(f"create table {table} (id int primary key, {definitions})")
        rows = _rows(columns)
        for number, row in enumerate(rows, 1):
            self.setup.append(f"insert into {table} values ({number}, {', '.join(row)})")
        self.stream.append(
            [
                f"insert into {table} values ({STREAM_IDS + number}, {', '.join(row)})"
                for number, row in enumerate(rows, 1)
            ]
        )
        first = ", ".join(
            f"{quote}{name}{quote} = {value}" for name, value in zip(columns, rows[0], strict=True)
        )
        last = len(rows)
        self.stream.append([f"update {table} set {first} where id = {last}"])
        self.stream.append([f"delete from {table} where id in (1, {STREAM_IDS + 1}) "])


def _rows(columns: Columns) -> list[list[str]]:
    """
    >>> _rows({"a": ("int", ["1", "2"]), "b": ("text", ["'x'"])})
    [['1', "'x'"], ['2', 'NULL'], ['NULL', 'NULL']]
    """
    most = max(len(values) for _, values in columns.values())
    return [[_value(kind, values, number) for kind, values in columns.values()] for number in range(most + 1)]


def _value(kind: str, values: Sequence[str], number: int) -> str:
    if number < len(values):
        return values[number]
    return values[0] if "not null" in kind else "NULL"
