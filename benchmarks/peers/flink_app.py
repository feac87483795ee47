"""The workloads in Flink SQL. Runs in Flink's own environment and imports nothing of ours.

Settings after Flink's tuning guide for streaming aggregation: mini-batches, two-phase aggregation, object
reuse. The result is an upsert topic, by transactions or, with ``--at-least-once``, without. ``--final`` takes
windows of the window table-valued function, which show once, when they close.
"""

import argparse
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

_TICKS = (
    "id BIGINT, symbol STRING, price DOUBLE, size BIGINT, `at` TIMESTAMP_LTZ(3), "
    "WATERMARK FOR `at` AS `at` - INTERVAL '5' SECOND"
)
SOURCES = {
    "words": "id BIGINT, `text` STRING",
    "ticks": _TICKS,
    "rows": _TICKS,
}
TARGETS = {
    "words": "word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED",
    "ticks": (
        "symbol STRING, start_ms BIGINT, low DOUBLE, high DOUBLE, average DOUBLE, n BIGINT, "
        "PRIMARY KEY (symbol, start_ms) NOT ENFORCED"
    ),
    "rows": "id BIGINT, symbol STRING, price DOUBLE",
}
STATEMENTS = {
    "words": (
        "SELECT word, COUNT(*) FROM source CROSS JOIN UNNEST(SPLIT(`text`, ' ')) AS t (word) GROUP BY word"
    ),
    # Updates of open windows: a plain aggregation by the window's start.
    "ticks": (
        "SELECT symbol, start_ms, MIN(price), MAX(price), AVG(price), COUNT(*) FROM (SELECT symbol, price, "
        "TIMESTAMPDIFF(SECOND, TO_TIMESTAMP_LTZ(0, 3), `at`) / 10 * CAST(10000 AS BIGINT) AS start_ms "
        "FROM source) GROUP BY symbol, start_ms"
    ),
    "rows": "SELECT id, symbol, price FROM source",
    "ticks, final": (
        "SELECT symbol, "
        "TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) * CAST(1000 AS BIGINT), "
        "MIN(price), MAX(price), AVG(price), COUNT(*) "
        "FROM TABLE(TUMBLE(TABLE source, DESCRIPTOR(`at`), INTERVAL '10' SECOND)) "
        "GROUP BY symbol, window_start, window_end"
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["words", "ticks", "rows"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--jar", type=Path, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--mini-batch-ms", type=int, default=500)
    parser.add_argument("--at-least-once", action="store_true")
    parser.add_argument("--final", action="store_true")
    options = parser.parse_args()

    configuration = Configuration()
    for key, value in {
        "pipeline.jars": options.jar.resolve().as_uri(),
        "parallelism.default": str(options.parallelism),
        "pipeline.object-reuse": "true",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": (options.directory / "checkpoints").resolve().as_uri(),
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": f"{options.mini_batch_ms} ms",
        "table.exec.mini-batch.size": "20000",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        "table.local-time-zone": "UTC",
        "rest.bind-port": "0",
    }.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration)
    tables = TableEnvironment.create(settings.build())

    tables.execute_sql(
        f"CREATE TABLE source ({SOURCES[options.workload]}) WITH ('connector' = 'kafka', "
        f"'topic' = '{options.source}', 'properties.bootstrap.servers' = '{options.bootstrap}', "
        f"'properties.group.id' = '{options.target}', 'scan.startup.mode' = 'earliest-offset', "
        "'properties.isolation.level' = 'read_committed', "
        "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601')"
    )
    guarantee = "at-least-once" if options.at_least_once else "exactly-once"
    # What is written once goes to a plain topic: windows of --final, and single rows.
    columns, connector, key_fields = TARGETS[options.workload], "upsert-kafka", ""
    if options.final or options.workload == "rows":
        columns, connector = columns.partition(", PRIMARY KEY")[0], "kafka"
        key_fields = ", 'key.fields' = 'symbol'"
    tables.execute_sql(
        f"CREATE TABLE target ({columns}) WITH ('connector' = '{connector}', "
        f"'topic' = '{options.target}', 'properties.bootstrap.servers' = '{options.bootstrap}', "
        f"'sink.delivery-guarantee' = '{guarantee}', 'sink.transactional-id-prefix' = '{options.target}', "
        "'properties.transaction.timeout.ms' = '600000', 'value.format' = 'json', 'key.format' = 'json'"
        f"{key_fields})"
    )
    statement = STATEMENTS[options.workload + (", final" if options.final else "")]
    tables.execute_sql(f"INSERT INTO target {statement}").wait()


if __name__ == "__main__":
    main()
