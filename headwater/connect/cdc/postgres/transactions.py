"""Debezium's transaction metadata: BEGIN and END events, and the place of each event in its transaction. No I/O."""

import orjson

from headwater.connect.source import Record


class TransactionEvents:
    """Counts the events of a transaction.

    >>> events, out = TransactionEvents("shop.transaction"), []
    >>> events.begin(571, 100, 1_700_000_000_000_000, out)
    >>> events.event("public.users")
    b'{"id":"571:100","total_order":1,"data_collection_order":1}'
    >>> events.end(571, 120, 1_700_000_000_000_000, out)
    >>> out[1].value[:50]
    b'{"status":"END","id":"571:100","event_count":1,"da'
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._id = b""
        self._total = 0
        self._counts: dict[str, int] = {}

    def begin(self, xid: int, lsn: int, microseconds: int, out: list[Record] | None) -> None:
        """`out` is None when the beginning was written before."""
        self._id = b"%d:%d" % (xid, lsn)
        self._total = 0
        self._counts = {}
        if out is not None:
            value = b'{"status":"BEGIN","id":"%b","event_count":null,"data_collections":null,"ts_ms":%d}'
            out.append(Record(self.topic, self._key(), value % (self._id, microseconds // 1000)))

    def event(self, table: str) -> bytes:
        """The transaction block of the next event."""
        self._total += 1
        count = self._counts[table] = self._counts.get(table, 0) + 1
        return b'{"id":"%b","total_order":%d,"data_collection_order":%d}' % (self._id, self._total, count)

    def end(self, xid: int, lsn: int, microseconds: int, out: list[Record]) -> None:
        counts = [{"data_collection": table, "event_count": count} for table, count in self._counts.items()]
        value = b'{"status":"END","id":"%b","event_count":%d,"data_collections":%b,"ts_ms":%d}' % (
            self._id,
            self._total,
            orjson.dumps(counts),
            microseconds // 1000,
        )
        out.append(Record(self.topic, self._key(), value))

    def _key(self) -> bytes:
        return b'{"id":"%b"}' % self._id
