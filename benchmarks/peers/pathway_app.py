"""The two workloads in Pathway. Runs in its own environment and imports nothing of ours.

``pathway spawn --threads 2`` starts it. A change of a row is written as a record of the old row with
``diff`` -1 and of the new one with ``diff`` 1.
"""

import argparse

import pathway as pw


class Line(pw.Schema):
    id: int
    text: str


class Tick(pw.Schema):
    id: int
    symbol: str
    price: float
    size: int
    at: str


@pw.udf(deterministic=True)
def split(text: str) -> list[str]:
    """Pathway's own string functions have none that splits."""
    return text.split(" ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["words", "ticks"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--commit-ms", type=int, default=100)
    options = parser.parse_args()

    kafka = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.target,
        "auto.offset.reset": "earliest",
        "log_level": "0",
    }
    events = pw.io.kafka.read(
        kafka,
        topic=options.source,
        schema=Line if options.workload == "words" else Tick,
        format="json",
        autocommit_duration_ms=options.commit_ms,
    )
    if options.workload == "words":
        words = events.select(word=split(pw.this.text)).flatten(pw.this.word)
        rows = words.groupby(pw.this.word).reduce(pw.this.word, n=pw.reducers.count())
    else:
        ticks = events.select(
            pw.this.symbol,
            pw.this.price,
            second=pw.this.at.dt.strptime("%Y-%m-%dT%H:%M:%S%.fZ", contains_timezone=False).dt.timestamp(
                unit="s"
            ),
        )
        windows = ticks.select(
            pw.this.symbol, pw.this.price, start_ms=pw.cast(int, pw.this.second // 10.0) * 10_000
        )
        rows = windows.groupby(pw.this.symbol, pw.this.start_ms).reduce(
            pw.this.symbol,
            pw.this.start_ms,
            low=pw.reducers.min(pw.this.price),
            high=pw.reducers.max(pw.this.price),
            average=pw.reducers.avg(pw.this.price),
            n=pw.reducers.count(),
        )
    pw.io.kafka.write(rows, kafka, options.target, format="json")
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main()
