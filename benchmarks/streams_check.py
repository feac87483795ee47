"""What a result has to be: the same computed in DuckDB from the records of the topic."""

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from benchmarks.streams_events import PARTITIONS, WINDOW_MS, Workload, row_name
from benchmarks.streams_results import Row

_WORDS = """
    SELECT word, count(*) FROM (SELECT unnest(string_split("text", ' ')) AS word FROM events) GROUP BY word
"""
_TICKS = f"""
    SELECT symbol, epoch_ms("at") // {WINDOW_MS} * {WINDOW_MS}, min(price), max(price), avg(price), count(*)
    FROM events GROUP BY ALL
"""
_COLUMNS = {
    "words": "{'id': 'BIGINT', 'text': 'VARCHAR'}",
    "ticks": "{'id': 'BIGINT', 'symbol': 'VARCHAR', 'price': 'DOUBLE', 'size': 'BIGINT', 'at': 'TIMESTAMP'}",
}


class WrongResult(Exception):
    """A system's result is not what the recompute gives."""


def recompute(
    workload: Workload, bootstrap: str, topic: str, isolation: str, directory: Path
) -> dict[str, Row]:
    """The rows that belong to what the topic holds now."""
    with tempfile.NamedTemporaryFile(dir=directory, suffix=".ndjson") as file:
        for value in _values(bootstrap, topic, isolation):
            file.write(value + b"\n")
        file.flush()
        with duckdb.connect() as database:
            database.execute(
                f"CREATE VIEW events AS FROM read_json('{file.name}', format = 'newline_delimited', "
                f"columns = {_COLUMNS[workload]})"
            )
            if workload == "words":
                found = database.execute(_WORDS).fetchall()
                return {word: Row(word, count) for word, count in found}
            found = database.execute(_TICKS).fetchall()
    rows = (Row(row_name(symbol, start), count, tuple(values)) for symbol, start, *values, count in found)
    return {row.name: row for row in rows}


def compare(found: dict[str, Row], wanted: dict[str, Row]) -> None:
    """Raises what differs. Averages may differ in the last digits, as sums in another order do.

    >>> compare({"a": Row("a", 2)}, {"a": Row("a", 3)})
    Traceback (most recent call last):
    ...
    benchmarks.streams_check.WrongResult: 1 of 1 rows differ: found Row(name='a', count=2, values=()), \
wanted Row(name='a', count=3, values=())
    """
    different = [name for name in wanted if not _equal(found.get(name), wanted[name])]
    beyond = found.keys() - wanted.keys()
    if different:
        first = different[0]
        raise WrongResult(
            f"{len(different)} of {len(wanted)} rows differ: found {found.get(first)}, wanted {wanted[first]}"
        )
    if beyond:
        raise WrongResult(f"{len(beyond)} rows too many, such as {found[beyond.pop()]}")


def _equal(found: Row | None, wanted: Row) -> bool:
    return (
        found is not None
        and found.count == wanted.count
        and len(found.values) == len(wanted.values)
        and all(map(_close, found.values, wanted.values))
    )


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)


def _values(bootstrap: str, topic: str, isolation: str) -> Iterator[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"recompute-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        ended: set[int | None] = set()
        while len(ended) < PARTITIONS:
            for message in consumer.consume(20_000, 0.5):
                error = message.error()
                if error is None:
                    yield message.value() or b""
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
