"""The two workloads in Bytewax. Runs in its own environment and imports nothing of ours.

Settings come by environment, because ``bytewax.run`` takes the command line. The result of a window shows
as events come, as everywhere in this benchmark: Bytewax's own windows show when they close, so the window's
start is part of the key of a stateful step, which takes a batch of records at a time.
"""

import os
from datetime import datetime

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow, Stream
from bytewax.operators import StatefulBatchLogic

Statistics = tuple[float, float, float, int]


class Count(StatefulBatchLogic):
    """The count of a word, once for each batch that holds it."""

    def __init__(self, count: int | None) -> None:
        self.count = count or 0

    def on_batch(self, values: list[int]) -> tuple[list[int], bool]:
        self.count += len(values)
        return [self.count], StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self.count


class Aggregate(StatefulBatchLogic):
    """Minimum, maximum, sum and count of a symbol and window, once for each batch that holds it."""

    def __init__(self, state: Statistics | None) -> None:
        self.state = state or (float("inf"), float("-inf"), 0.0, 0)

    def on_batch(self, values: list[float]) -> tuple[list[Statistics], bool]:
        low, high, total, count = self.state
        self.state = (min(low, *values), max(high, *values), total + sum(values), count + len(values))
        return [self.state], StatefulBatchLogic.RETAIN

    def snapshot(self) -> Statistics:
        return self.state


def words(lines: Stream) -> Stream:
    """The count of each word."""
    pairs = op.flat_map_batch(
        "split", lines, lambda batch: [(word, 1) for one in batch for word in _text(one.value)]
    )
    counts = op.stateful_batch("count", pairs, Count)
    return op.map("row", counts, lambda pair: _message(pair[0], {"word": pair[0], "n": pair[1]}))


def ticks(events: Stream) -> Stream:
    """Statistics of each symbol and window."""
    pairs = op.flat_map_batch("key", events, lambda batch: [_keyed(one.value) for one in batch])
    statistics = op.stateful_batch("aggregate", pairs, Aggregate)
    return op.map("row", statistics, _statistics_row)


def _text(value: bytes) -> list[str]:
    text: str = orjson.loads(value)["text"]
    return text.split(" ")


def _keyed(value: bytes) -> tuple[str, float]:
    tick = orjson.loads(value)
    second = int(datetime.fromisoformat(tick["at"]).timestamp())
    return f"{tick['symbol']}@{second - second % 10}", tick["price"]


def _statistics_row(pair: tuple[str, Statistics]) -> KafkaSinkMessage:
    key, (low, high, total, count) = pair
    symbol, _, start = key.partition("@")
    row = {
        "symbol": symbol,
        "start_ms": int(start) * 1000,
        "low": low,
        "high": high,
        "average": total / count,
        "n": count,
    }
    return _message(key, row)


def _message(key: str, row: dict[str, object]) -> KafkaSinkMessage:
    return KafkaSinkMessage(key.encode(), orjson.dumps(row))


def dataflow() -> Dataflow:
    """The flow that ``bytewax.run bytewax_app:dataflow()`` runs."""
    flow = Dataflow("benchmark")
    brokers = [os.environ["BENCH_BOOTSTRAP"]]
    source = kafka.input(
        "in", flow, brokers=brokers, topics=[os.environ["BENCH_SOURCE"]], batch_size=10_000
    ).oks
    rows = words(source) if os.environ["BENCH_WORKLOAD"] == "words" else ticks(source)
    kafka.output(
        "out", rows, brokers=brokers, topic=os.environ["BENCH_TARGET"], add_config={"linger.ms": "5"}
    )
    return flow
