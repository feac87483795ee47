"""The two workloads in Quix Streams. Runs in its own environment and imports nothing of ours.

Two of these processes share the topic's partitions, which is how Quix Streams uses two cores. State is kept
as by default, in RocksDB with changelog topics; results are written by transactions, a commit each second.
"""

import argparse
from datetime import datetime
from pathlib import Path
from typing import Any

from quixstreams import Application, State
from quixstreams.dataframe.windows import Count, Max, Mean, Min


def happened(value: dict[str, Any], headers: Any, timestamp: float, timestamp_type: Any) -> int:
    """The event time in milliseconds."""
    return int(datetime.fromisoformat(value["at"]).timestamp() * 1000)


def count(value: dict[str, Any], state: State) -> dict[str, Any]:
    """One more of this word."""
    number = state.get("n", 0) + 1
    state.set("n", number)
    return {"word": value["word"], "n": number}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["words", "ticks"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--at-least-once", action="store_true")
    options = parser.parse_args()

    application = Application(
        broker_address=options.bootstrap,
        consumer_group=options.target,
        auto_offset_reset="earliest",
        commit_interval=1.0,
        processing_guarantee="at-least-once" if options.at_least_once else "exactly-once",
        state_dir=options.directory / "state",
        loglevel="WARNING",
    )
    target = application.topic(options.target, key_serializer="string")
    if options.workload == "words":
        source = application.topic(options.source)
        lines = application.dataframe(source)
        words = lines.apply(lambda line: [{"word": word} for word in line["text"].split(" ")], expand=True)
        words.group_by("word", key_serializer="string", key_deserializer="string").apply(
            count, stateful=True
        ).to_topic(target)
    else:
        source = application.topic(options.source, key_deserializer="string", timestamp_extractor=happened)
        ticks = application.dataframe(source)
        statistics = ticks.tumbling_window(duration_ms=10_000, grace_ms=5_000).agg(
            low=Min("price"), high=Max("price"), average=Mean("price"), n=Count()
        )
        statistics.current().to_topic(target)
    application.run()


if __name__ == "__main__":
    main()
