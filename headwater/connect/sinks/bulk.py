"""The bulk requests of OpenSearch and Elasticsearch, and what their answers mean. No I/O."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson

from headwater.connect.sinks.changes import Change

Verdict = Literal["done", "again", "refused"]

REQUEST_BYTES = 8 * 1024 * 1024  # several megabytes are quickest; servers refuse more than 100
LONGEST_ID = 512  # bytes; a longer one is replaced by its hash

# Errors that are about the index, not about the document: they pass when somebody mends the index.
_OF_THE_INDEX = (
    "index_not_found_exception",
    "index_closed_exception",
    "cluster_block_exception",
    "invalid_index_name_exception",
    "no_shard_available_action_exception",
    "unavailable_shards_exception",
    "process_cluster_event_timeout_exception",
)


class Action(NamedTuple):
    """One change as lines of a request."""

    offset: int
    deletes: bool
    lines: bytes


def action(change: Change) -> Action:
    """The version of a document is the offset of its record: what is older than what is there changes nothing.

    >>> action(Change("7", 12, {"name": "a"})).lines
    b'{"index":{"_id":"7","version":12,"version_type":"external_gte"}}\\n{"name":"a"}\\n'
    >>> action(Change("7", 13, None)).lines
    b'{"delete":{"_id":"7","version":13,"version_type":"external_gte"}}\\n'
    """
    meta = {"_id": document_id(change.id), "version": change.offset, "version_type": "external_gte"}
    if change.row is None:
        return Action(change.offset, True, orjson.dumps({"delete": meta}) + b"\n")
    return Action(
        change.offset, False, b"%b\n%b\n" % (orjson.dumps({"index": meta}), orjson.dumps(change.row))
    )


def document_id(id: str) -> str:
    """An id that the server takes.

    >>> document_id("7"), len(document_id("x" * 600))
    ('7', 71)
    """
    content = id.encode()
    if 0 < len(content) <= LONGEST_ID:
        return id
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def requests(actions: Sequence[Action], largest: int = REQUEST_BYTES) -> Iterator[list[Action]]:
    """Divides them among requests; an action that is larger alone gets one of its own."""
    part: list[Action] = []
    size = 0
    for each in actions:
        if part and size + len(each.lines) > largest:
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each.lines)
    if part:
        yield part


def judge(item: Mapping[str, Any]) -> tuple[Verdict, str]:
    """What became of an action, and the server's reason when it is not done.

    >>> judge({"index": {"status": 409, "error": {"type": "version_conflict_engine_exception"}}})[0]
    'done'
    >>> judge({"index": {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "no number"}}})
    ('refused', 'mapper_parsing_exception: no number')
    >>> judge({"index": {"status": 429, "error": {"type": "es_rejected_execution_exception"}}})[0]
    'again'
    """
    (kind, result), *_ = item.items()
    status, error = int(result.get("status", 500)), result.get("error")
    if 200 <= status < 300:
        return "done", ""
    kind_of_error, reason = described(error)
    if status == 409 and "version_conflict" in kind_of_error:
        return "done", ""  # a newer version is there
    if status == 404 and kind == "delete" and not error:
        return "done", ""  # it was not there
    text = f"{kind_of_error}: {reason}" if reason else kind_of_error
    if kind_of_error in _OF_THE_INDEX or status == 429 or status >= 500:
        return "again", text
    return "refused", text


def described(error: Any) -> tuple[str, str]:
    """The type of an error, and its reason with the innermost cause."""
    if not isinstance(error, dict):
        return str(error or "unknown error"), ""
    reason = str(error.get("reason") or "")
    cause = error.get("caused_by")
    while isinstance(cause, dict):
        if cause.get("reason"):
            reason = f"{reason}; {cause['reason']}"
        cause = cause.get("caused_by")
    return str(error.get("type") or "unknown error"), reason
