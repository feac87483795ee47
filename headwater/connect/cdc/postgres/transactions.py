"""Debezium's transaction metadata: BEGIN and END events, and the place of each event in its transaction. No I/O."""

import orjson

from headwater.connect.source import Record


class TransactionEvents:
    """Counts the events of a transaction. One without events leaves no trace.

    >>> events, out = TransactionEvents("shop.transaction"), []
    >>> events.begin(571, 100, 1_700_000_000_000_000, written=False)
    >>> events.event("public.users", out)
    b'{"id":"571:100","total_order":1,"data_collection_order":1}'
    >>> events.end(out)
    >>> [record.value[:50] for record in out]
    [b'{"status":"BEGIN","id":"571:100","event_count":nul', b'{"status":"END","id":"571:100","event_count":1,"da']
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._id = b""
        self._milliseconds = 0
        self._is_open = False  # its beginning was written
        self._total = 0
        self._counts: dict[str, int] = {}

    def begin(self, xid: int, lsn: int, microseconds: int, *, written: bool) -> None:
        """`written` when a part of it, and so its beginning, was written before."""
        self._id = b"%d:%d" % (xid, lsn)
        self._milliseconds = microseconds // 1000
        self._is_open = written
        self._total = 0
        self._counts = {}

    def event(self, table: str, out: list[Record]) -> bytes:
        """The transaction block of the next event."""
        if not self._is_open:
            self._is_open = True
            value = b'{"status":"BEGIN","id":"%b","event_count":null,"data_collections":null,"ts_ms":%d}'
            out.append(Record(self.topic, self._key(), value % (self._id, self._milliseconds)))
        self._total += 1
        count = self._counts[table] = self._counts.get(table, 0) + 1
        return b'{"id":"%b","total_order":%d,"data_collection_order":%d}' % (self._id, self._total, count)

    def end(self, out: list[Record]) -> None:
        if not self._is_open:
            return
        counts = [{"data_collection": table, "event_count": count} for table, count in self._counts.items()]
        value = b'{"status":"END","id":"%b","event_count":%d,"data_collections":%b,"ts_ms":%d}' % (
            self._id,
            self._total,
            orjson.dumps(counts),
            self._milliseconds,
        )
        out.append(Record(self.topic, self._key(), value))

    def _key(self) -> bytes:
        return b'{"id":"%b"}' % self._id
