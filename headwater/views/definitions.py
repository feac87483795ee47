"""Whether a view can be kept as it is declared, and whether it is still what was built. Pure."""

import re

from headwater.errors import ApplicationInvalid, ViewChanged
from headwater.views.model import ViewSchema
from headwater.views.types import arrow_type

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,47}")  # PostgreSQL cuts names at 63 bytes, and we add to them
_LONGEST_COLUMN = 63  # bytes


def check(schema: ViewSchema) -> None:
    """Raise when some store could not keep such a view.

    >>> check(ViewSchema("words", 1, (), ("word",)))
    Traceback (most recent call last):
    headwater.errors.ApplicationInvalid: cannot define the view words: its key 'word' is not a column of it...
    """
    cause = fault(schema)
    if cause is not None:
        raise ApplicationInvalid("define the view", schema.name, cause)


def fault(schema: ViewSchema) -> str | None:
    """Why some store could not keep such a view, if it could not."""
    if not _NAME.fullmatch(schema.name) or schema.name.lower().startswith("headwater_"):
        return (
            "its name must be of at most 48 letters, digits, '_', '.' and '-', not begin with a digit, "
            "and not with headwater_"
        )
    if schema.version < 1:
        return f"its version is {schema.version}, and versions begin with 1"
    if not schema.key:
        return "it has no key"
    for name in schema.key:
        if name not in schema.types:
            return f"its key {name!r} is not a column of it ({', '.join(schema.types)})"
    if len(set(schema.key)) < len(schema.key):
        return "its key names a column twice"
    seen: set[str] = set()
    for column in schema.columns:
        if column.name.lower() in seen:  # as for Spark and SQLite
            return f"two of its columns are called {column.name!r}, letter case aside"
        seen.add(column.name.lower())
        if not column.name or column.name.startswith("__") or "\0" in column.name:
            return f"a column cannot be called {column.name!r}: names that begin with __ are the store's"
        if len(column.name.encode()) > _LONGEST_COLUMN:
            return f"the name of the column {column.name!r} is longer than {_LONGEST_COLUMN} bytes"
        try:
            arrow_type(column.type)
        except ValueError as error:
            return f"the column {column.name!r}: {error}"
    return None


def check_same(schema: ViewSchema, fingerprint: str, definition: str, built_with: str) -> None:
    """Raise ViewChanged when the version was built with another definition or fingerprint."""
    if definition != schema.to_json():
        built = ViewSchema.from_json(schema.name, schema.version, definition)
        cause = f"it was built with {_described(built)}, and now has {_described(schema)}"
    elif built_with != fingerprint:
        cause = "it was built by another function than it has now"
    else:
        return
    raise ViewChanged("continue the view", f"{schema.name} version {schema.version}", cause)


def _described(schema: ViewSchema) -> str:
    columns = ", ".join(f"{column.name} {column.type}" for column in schema.columns)
    return f"({columns}) by {', '.join(schema.key)}"
