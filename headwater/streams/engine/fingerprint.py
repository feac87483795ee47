"""What tells one definition of an output from another: its plan, without the names that Spark invents.

Two runs of the same application give the same fingerprint; a changed function, schema, window or lateness
gives another. Not covered: what is inside a Python function that the plan calls by name.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headwater.streams.state import HELD_BACK

_INVENTED = re.compile(
    r"#\d+L?"  # ids of columns
    r"|\bplan_id=\d+"
    r"|@[0-9a-f]{4,16}\b"  # identities of objects
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)
_NODE = re.compile(r"[^A-Za-z]*")


def normalised(plan: str) -> str:
    """A plan's text without what changes from run to run, and without how a stream is read.

    >>> print(normalised("Project [page#12]\\n+- CollectMetrics headwater.dead.clicks, [x], 7\\n   +- Source@1f2e3d"))
    Project [page]
    +- stream clicks
    """
    lines = []
    inside: int | None = None  # the depth of a stream whose reading is left out
    for line in plan.splitlines():
        match = _NODE.match(line)
        depth = match.end() if match else 0
        if inside is not None and depth > inside:
            continue
        inside = None
        found = re.search(r"CollectMetrics headwater\.dead\.(\w+)", line)
        if found:
            inside = depth
            line = f"{line[:depth].rstrip('~')}stream {found[1]}"
        lines.append(_INVENTED.sub("", line))
    return "\n".join(lines)


def fingerprint(
    frame: DataFrame,
    version: int,
    extra: object = None,
    kind: str = "view",
    rows: Mapping[str, Any] | None = None,
) -> str:
    """A short text, equal for equal definitions on the same Spark.

    Plans are written differently by other versions of Spark, so the version is part of the text, and
    `same_definition` compares the schemas alone when it differs. `kind` is for people who list the store; `rows` is
    what a table's rows were read by, for a start that has it not declared.
    """
    spark = frame.sparkSession
    plan = normalised(frame._jdf.queryExecution().analyzed().toString())
    return json.dumps(
        {
            "version": version,
            "kind": kind,
            "spark": spark.version,
            "plan": hashlib.sha256(f"{plan}\n{extra!r}".encode()).hexdigest()[:16],
            "schema": hashlib.sha256(_schema_text(frame.schema).encode()).hexdigest()[:16],
            **({"rows": rows} if rows is not None else {}),
        }
    )


def _schema_text(schema: StructType) -> str:
    """As Spark writes it, without what a join says for those who read its topic: its range is in the plan."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without(entry) for name, entry in value.items() if name != HELD_BACK}
        return [without(entry) for entry in value] if isinstance(value, list) else value

    return json.dumps(without(schema.jsonValue()), separators=(",", ":"), sort_keys=True)


def same_definition(one: str, other: str) -> bool:
    """Whether two fingerprints are of one definition, as far as can be told.

    >>> text = '{"version": 1, "spark": "4.3.0", "plan": "%s", "schema": "a"}'
    >>> same_definition(text % "x", text % "y")
    False
    """
    left, right = json.loads(one), json.loads(other)
    keys = ["version", "schema"] + (["plan"] if left["spark"] == right["spark"] else [])
    return all(left[key] == right[key] for key in keys)


def kind_of(text: str) -> str:
    """Whether a fingerprint is of a view, which a function computes, or of a table.

    >>> kind_of('{"version": 2, "kind": "table"}')
    'table'
    """
    return str(json.loads(text).get("kind", "view"))


def version_of(text: str) -> int:
    """The declared version in a fingerprint.

    >>> version_of('{"version": 2}')
    2
    """
    return int(json.loads(text)["version"])


def with_application(text: str, application: str) -> str:
    """The fingerprint of what this application builds: another one with the same store leaves it alone.

    >>> with_application('{"version": 2}', "shop")
    '{"version": 2, "application": "shop"}'
    """
    return json.dumps({**json.loads(text), "application": application})


def application_of(text: str) -> str | None:
    """The application in a fingerprint; None in one of a store from before it was noted.

    >>> application_of('{"version": 2, "application": "shop"}')
    'shop'
    """
    found: str | None = json.loads(text).get("application")
    return found


def with_start(text: str, start: str) -> str:
    """The fingerprint of a replay, which reads its streams from this position.

    >>> with_start('{"version": 2}', "earliest")
    '{"version": 2, "start": "earliest"}'
    """
    return json.dumps({**json.loads(text), "start": start})


def start_of(text: str) -> str | None:
    """Where a replay begins; None in the fingerprint of another build.

    >>> start_of('{"version": 2, "start": "earliest"}')
    'earliest'
    """
    found: str | None = json.loads(text).get("start")
    return found


def rows_of(text: str) -> dict[str, Any] | None:
    """What the rows of a table were read by; None in a fingerprint that does not say it.

    >>> rows_of('{"version": 2, "rows": {"schema": "id long"}}')
    {'schema': 'id long'}
    """
    found: dict[str, Any] | None = json.loads(text).get("rows")
    return found
