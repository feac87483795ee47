"""The two workloads in Bytewax. Runs in its own environment and imports nothing of ours.

Settings come by environment, because ``bytewax.run`` takes the command line. The result of a window shows
with each event, as everywhere in this benchmark: Bytewax's own windows show when they close, so the window's
start is part of the key of a stateful map.
"""

import os
from datetime import datetime

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow, Stream

Statistics = tuple[float, float, float, int]


def words(lines: Stream) -> Stream:
    """The count of each word, with each word."""
    pairs = op.flat_map_batch(
        "split", lines, lambda batch: [(word, 1) for one in batch for word in _text(one.value)]
    )
    counts = op.stateful_map("count", pairs, _add)
    return op.map("row", counts, lambda pair: _message(pair[0], {"word": pair[0], "n": pair[1]}))


def ticks(events: Stream) -> Stream:
    """Statistics of each symbol and window, with each tick."""
    pairs = op.map("key", events, _keyed)
    statistics = op.stateful_map("aggregate", pairs, _aggregate)
    return op.map("row", statistics, _statistics_row)


def _text(value: bytes) -> list[str]:
    text: str = orjson.loads(value)["text"]
    return text.split(" ")


def _add(count: int | None, more: int) -> tuple[int, int]:
    total = (count or 0) + more
    return total, total


def _keyed(message: "kafka.KafkaSourceMessage") -> tuple[str, float]:
    tick = orjson.loads(message.value)
    second = int(datetime.fromisoformat(tick["at"]).timestamp())
    return f"{tick['symbol']}@{second - second % 10}", tick["price"]


def _aggregate(state: Statistics | None, price: float) -> tuple[Statistics, Statistics]:
    if state is None:
        state = (price, price, price, 1)
    else:
        low, high, total, count = state
        state = (min(low, price), max(high, price), total + price, count + 1)
    return state, state


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
