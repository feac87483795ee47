"""What a table is made of, beyond the names and types of its columns. No I/O.

A table may look as before and hold other rows: another table took its name, a column was dropped and another one of
its name and type was added, a part was emptied (of which the stream says nothing where whole tables are published), a
type of its columns has other labels or attributes. The catalogue's numbers tell: of the table, of its columns, and of
the files that its parts lie in.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import orjson

from headwater.connect.cdc.postgres.catalog import TableInfo

# {"table": number, "file": number, "columns": {name: [number, expression]}, "described": {name: transaction},
# "parts": {number: file}, "types": {number: content}}
Make = Mapping[str, Any]
TypeContents = Mapping[
    int, Mapping[str, Any]
]  # of types that were made here, with those that they are made of
Difference = Literal["none", "read"] | tuple[int, ...]


def make_of(info: TableInfo, types: TypeContents) -> Make:
    """What is remembered of a table; plain data, the same after a detour through JSON."""
    return {
        "table": info.oid,
        "file": info.file,
        "columns": {column.name: [column.number, column.generated] for column in info.columns},
        "described": {column.name: column.described_by for column in info.columns},
        "parts": {str(number): file for number, file in info.partitions},
        "types": {
            str(number): content
            for column in info.columns
            for number, content in types.get(column.type_oid, {}).items()
        },
    }


def mark_of(make: Make) -> str:
    """A short mark by which another make is known."""
    return hashlib.blake2b(
        orjson.dumps(make, option=orjson.OPT_SORT_KEYS), digest_size=6, person=b"make"
    ).hexdigest()


def difference(before: Make | None, now: Make) -> Difference:
    """Whether rows that nobody touched are other rows; or the numbers of parts that have come, if that is all.

    What came and went with other names or types is told from the columns themselves (forms.py).

    >>> before = {"table": 7, "columns": {"id": [1, None], "a": [2, None]}, "parts": {}, "types": {}}
    >>> difference(before, {**before, "columns": {"id": [1, None], "a": [3, None]}})
    'read'
    >>> difference(before, {**before, "columns": {**before["columns"], "b": [3, None]}})
    'none'
    >>> difference(before, {**before, "parts": {"12": 12}})
    (12,)
    """
    if before is None or before["table"] != now["table"]:
        return "read"
    old, new = before["columns"], now["columns"]
    if any(old[name][0] != new[name][0] for name in old.keys() & new.keys()):
        return "read"
    if any(expression != old.get(name, [0, None])[1] for name, (_, expression) in new.items() if expression):
        return "read"
    if _was_computed_anew(before, now):
        return "read"
    if any(now["parts"].get(number) != file for number, file in before["parts"].items()):
        return "read"
    if any(
        _was_changed(before["types"][number], content)
        for number, content in now["types"].items()
        if number in before["types"]
    ):
        return "read"
    return tuple(int(number) for number in now["parts"] if number not in before["parts"]) or "none"


def _was_computed_anew(before: Make, now: Make) -> bool:
    """Whether ALTER COLUMN ... TYPE ... USING may have given rows other values, of the same type perhaps.

    Rows are in another file after VACUUM FULL as well, which describes no column anew. A make that was noted by an
    earlier version says neither.

    >>> before = {"file": 1, "described": {"a": "700", "b": "700"}}
    >>> _was_computed_anew(before, {"file": 2, "described": {"a": "700", "b": "701"}})
    True
    >>> _was_computed_anew(before, {**before, "file": 2})
    False
    """
    if "file" not in before or before["file"] == now["file"]:
        return False
    old = before["described"]
    return any(old.get(name, by) != by for name, by in now["described"].items())


def _was_changed(before: Any, now: Any) -> bool:
    """Labels by their numbers, which may be more than before; or attributes in their order."""
    if isinstance(before, dict) and isinstance(now, dict):
        return any(now.get(number, label) != label for number, label in before.items())
    return bool(before != now)


def joined(form: str, make: str) -> str:
    """Both marks of a table, for a position.

    >>> split(joined("c0ffee", "beef")), split("c0ffee")
    (('c0ffee', 'beef'), ('c0ffee', ''))
    """
    return f"{form}.{make}" if make else form


def split(marks: str | None) -> tuple[str | None, str]:
    """The marks of a table's form and make; positions of earlier versions have none of the latter."""
    if marks is None:
        return None, ""
    form, _, make = marks.partition(".")
    return form, make


def rows_of_parts(parts: Sequence[str], columns: str) -> str:
    """What is read when only parts have come, each by its quoted name.

    >>> rows_of_parts(['"public"."p1"', '"public"."p2"'], '"id"')
    '(SELECT "id" FROM "public"."p1" UNION ALL SELECT "id" FROM "public"."p2") AS parts'
    """
    return f"({' UNION ALL '.join(f'SELECT {columns} FROM {part}' for part in parts)}) AS parts"
