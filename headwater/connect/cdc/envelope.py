"""Debezium's envelope in JSON, put together from pieces that are JSON already.

A row is a sequence of JSON fragments (bytes), one a column: ``[b"1", b'"Ada"', b"null"]``. An envelope is then a
matter of formatting bytes, several times faster than building dictionaries and encoding them.
"""

from collections.abc import Sequence

import orjson

from headwater.connect.source import Record

NULL = b"null"
Row = Sequence[bytes]  # JSON fragments, in the order of the shape's columns


class Shape:
    """The columns of a table and which of them are its key; a changed table is a new shape.

    >>> users = Shape("shop.users", ["id", "name"], key=["id"])
    >>> users.object([b"1", b'"Ada"'])
    b'{"id":1,"name":"Ada"}'
    >>> users.key([b"1", b'"Ada"'])
    b'{"id":1}'
    """

    def __init__(self, topic: str, columns: Sequence[str], key: Sequence[str]) -> None:
        self.topic, self.columns, self.key_columns = topic, tuple(columns), tuple(key)
        self._object = _template(columns)
        self._key = _template(key)
        self._key_places = [self.columns.index(column) for column in key]

    def object(self, row: Row) -> bytes:
        """The row as a JSON object."""
        return self._object % tuple(row)

    def key(self, row: Row) -> bytes | None:
        """The key of a row as a JSON object; None for a table without one."""
        if not self._key_places:
            return None
        return self._key % tuple([row[place] for place in self._key_places])


def _template(columns: Sequence[str]) -> bytes:
    names = (orjson.dumps(column).replace(b"%", b"%%") for column in columns)
    return b"{%b}" % b",".join(b"%b:%%b" % name for name in names)


def envelope(
    op: bytes,
    before: bytes,
    after: bytes,
    source: bytes,
    nanoseconds: int,
    transaction: bytes = NULL,
) -> bytes:
    """The value of a change event, its fields in Debezium's order; `nanoseconds` is when it was captured.

    >>> envelope(b"c", NULL, b'{"id":1}', b'{"lsn":5}', 1_700_000_000_123_456_789)[:62]
    b'{"before":null,"after":{"id":1},"source":{"lsn":5},"transactio'
    """
    return (
        b'{"before":%b,"after":%b,"source":%b,"transaction":%b,"op":"%b","ts_ms":%d,"ts_us":%d,"ts_ns":%d}'
        % (
            before,
            after,
            source,
            transaction,
            op,
            nanoseconds // 1_000_000,
            nanoseconds // 1_000,
            nanoseconds,
        )
    )


def deleted(
    topic: str, key: bytes | None, value: bytes, headers: Sequence[tuple[str, bytes | None]]
) -> list[Record]:
    """A delete and the tombstone that lets compaction forget the key."""
    return [Record(topic, key, value, headers), Record(topic, key, None, headers)]
