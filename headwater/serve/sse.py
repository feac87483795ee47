"""Server-sent events as bytes, and what a client may say when it asks for them. Pure.

An event is lines of ``name: value`` and an empty line. All data here is JSON on one line, so that nothing needs
to be split or escaped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from headwater.errors import BadInput
from headwater.views.model import Change, News, Progress

CONTENT_TYPE = "text/event-stream; charset=utf-8"
HEADERS: Mapping[str, str] = {
    "content-type": CONTENT_TYPE,
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",  # or nginx would keep events until it has enough of them
}
RETRY_MS = 1000  # after which a browser connects again
HELLO = b"retry: %d\n\n" % RETRY_MS
PROGRESS_KEY = "progress"  # no key of a row: those are JSON objects
COMMENT_KEY = "comment"


def event(kind: str, data: Any, id: str | int | None = None) -> bytes:
    """One event.

    >>> event("delete", {"word": "a"}, 7)
    b'id: 7\\nevent: delete\\ndata: {"word":"a"}\\n\\n'
    """
    head = "" if id is None else f"id: {id}\n"
    return f"{head}event: {kind}\ndata: ".encode() + orjson.dumps(data, option=orjson.OPT_UTC_Z) + b"\n\n"


def comment(text: str) -> bytes:
    """What clients leave aside: a sign of life, on one line whatever the text.

    >>> comment("still here")
    b': still here\\n\\n'
    """
    return f": {' '.join(text.split())}\n\n".encode()


def change_event(change: Change) -> bytes:
    """A change of a row. Its texts are JSON already.

    >>> change_event(Change(7, 3, "upsert", '{"word":"a"}', '{"word":"a","n":2}'))
    b'id: 7\\nevent: upsert\\ndata: {"word":"a","n":2}\\n\\n'
    """
    if change.value is None:
        return f"id: {change.number}\nevent: delete\ndata: {change.key}\n\n".encode()
    return f"id: {change.number}\nevent: upsert\ndata: {change.value}\n\n".encode()


def changed_row(entry: bytes) -> tuple[str, bytes]:
    """The reverse of ``change_event``: the kind and the JSON of one event.

    >>> changed_row(b'id: 7\\nevent: delete\\ndata: {"word":"a"}\\n\\n')
    ('delete', b'{"word":"a"}')
    """
    _, kind, data = entry.split(b"\n", 3)[:3]
    return kind[7:].decode(), data[6:]


def progress_event(progress: Progress) -> bytes:
    """How far the view has come with all that was sent before this event. It has no id of its own."""
    return event("progress", progress_data(progress))


def progress_data(progress: Progress) -> dict[str, Any]:
    """Progress as clients see it; ``at`` is when the batch was committed."""
    return {
        "version": progress.version,
        "batch": progress.batch,
        "watermark": progress.watermark,
        "offsets": progress.offsets,
        "at": progress.committed,
        "rows": progress.rows,
    }


def reset_event(why: str) -> bytes:
    """What a client holds is void; a snapshot follows.

    Its empty id makes the client forget the last one: cut off in the middle of the snapshot, it is to ask for a
    whole one.
    """
    return event("reset", {"why": why}, "")


def columns_event(types: Mapping[str, str]) -> bytes:
    """The columns of the rows that follow, where some have decimals: read as floats, those would lose digits.

    >>> columns_event({"price": "decimal(10,2)"})
    b'event: columns\\ndata: {"price":"decimal(10,2)"}\\n\\n'
    >>> columns_event({"word": "string"})
    b''
    """
    has_decimals = any("decimal" in kind.lower() for kind in types.values())
    return event("columns", types) if has_decimals else b""


def snapshot_events(texts: Sequence[str], most_bytes: int) -> Iterator[bytes]:
    """Rows as ``snapshot`` events, each with an array of rows and not much larger than ``most_bytes``.

    >>> list(snapshot_events(['{"n":1}', '{"n":2}', '{"n":3}'], 12))
    [b'event: snapshot\\ndata: [{"n":1},{"n":2}]\\n\\n', b'event: snapshot\\ndata: [{"n":3}]\\n\\n']
    """
    begin = size = 0
    for at, text in enumerate(texts):
        size += len(text)
        if size >= most_bytes or at == len(texts) - 1:
            rows = ",".join(texts[begin : at + 1])
            yield f"event: snapshot\ndata: [{rows}]\n\n".encode()
            begin, size = at + 1, 0


def snapshot_end_event(news: News) -> bytes:
    """The snapshot is whole; changes follow on the number that is its id."""
    schema = news.schema
    data = {
        **progress_data(news.progress),
        "key": schema.key,
        "columns": {column.name: column.type for column in schema.columns},
    }
    return event("snapshot-end", data, news.last_change)


def last_seen(header: str | None, after: str | None, subject: str) -> str | None:
    """Where a client says that it was: the header that browsers send when they come back, else ``?after=``.

    >>> last_seen("12", "7", "the view sales")
    '12'
    """
    given = header or after
    if given is not None and (len(given) > 32_000 or not given.isprintable()):
        raise BadInput("follow", subject, "its last event id is none of ours", "Leave it away.")
    return given


def change_number(given: str, subject: str) -> int:
    """A change number as a client gives it.

    >>> change_number("seven", "the view sales")
    Traceback (most recent call last):
    headwater.errors.BadInput: cannot follow the view sales: 'seven' is not the number of a change. ...
    """
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        step = "Give the id of the last event you got, or nothing for a snapshot."
        raise BadInput("follow", subject, f"{given!r} is not the number of a change", step)
    return int(given)


class Parser:
    """Reads events out of a stream of bytes, as a client gets it.

    >>> parser = Parser()
    >>> list(parser.feed(b"id: 7\\nevent: del"))
    []
    >>> list(parser.feed(b'ete\\ndata: {"word":"a"}\\n\\n: hi\\n\\n'))
    [('delete', '7', b'{"word":"a"}')]
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> Iterable[tuple[str, str | None, bytes]]:
        """The kind, id (None when it has none) and data of each event that has come to its end.

        Only what our servers send is understood: lines end with ``\\n``, and data is one line.
        """
        end = data.rfind(b"\n\n")
        if end < 0 and data.startswith(b"\n") and self._rest and self._rest[-1].endswith(b"\n"):
            data = b"".join([*self._rest, data])  # the two came apart
            self._rest = []
            end = data.rfind(b"\n\n")
        if end < 0:
            if data:
                self._rest.append(data)
            return
        whole = b"".join([*self._rest, data[:end]])
        self._rest = [data[end + 2 :]] if end + 2 < len(data) else []
        for block in whole.split(b"\n\n"):
            kind, identity, content = "message", None, None
            for line in block.split(b"\n"):
                name, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                if name == b"data":
                    content = value
                elif name == b"event":
                    kind = value.decode()
                elif name == b"id":
                    identity = value.decode()
            if content is not None:
                yield kind, identity, content
