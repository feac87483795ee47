"""A small view that most tests of the store use."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.views import Batch, Column, ViewSchema, ViewStore

COLUMNS = (Column("word", "string"), Column("n", "bigint"))


def words(version: int = 1) -> ViewSchema:
    return ViewSchema("words", version, COLUMNS, ("word",))


def table(rows: Mapping[str, int] | Sequence[tuple[str, int]]) -> pa.Table:
    pairs = list(rows.items()) if isinstance(rows, Mapping) else list(rows)
    return pa.table(
        {
            "word": pa.array([w for w, _ in pairs], pa.string()),
            "n": pa.array([n for _, n in pairs], pa.int64()),
        }
    )


def batch(number: int, rows: Any, deleted: Sequence[str] = (), **more: Any) -> Batch:
    keys = pa.table({"word": pa.array(deleted, pa.string())}) if deleted else None
    return Batch(number, table(rows), keys, **more)


def content(store: ViewStore, version: int | None = None) -> dict[str, int]:
    return {row["word"]: row["n"] for row in store.rows("words", version=version)}


def replayed(store: ViewStore, start: Mapping[str, int] | None = None, after: int = 0) -> dict[str, int]:
    """What the entries of the outbox make of the content at ``after``; they have to be without gaps."""
    rows = dict(start or {})
    number = after
    while found := store.changes("words", number, limit=7):
        for change in found:
            number += 1
            assert change.number == number
            if change.op == "delete":
                assert change.row is None
                del rows[_word(change.key)]
            else:
                assert change.row is not None
                assert _word(change.key) == change.row["word"]
                rows[change.row["word"]] = change.row["n"]
    return rows


def _word(key: str) -> str:
    word: str = json.loads(key)["word"]
    return word
