"""Kafka's own performance tools against any broker, with the Java client."""

import re

from tests.support.servers import java_tool


def produce(bootstrap: str, topic: str, records: int, size: int) -> float:
    """Records a second of ProducerPerformance with acks=all."""
    output = java_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"),
        timeout=600,
    )
    # The last line sums up: "500000 records sent, 202000.0 records/sec (19.26 MB/sec), ..."
    found = re.findall(r"([\d.]+) records/sec", output)
    if not found:
        raise SystemExit(f"ProducerPerformance said:\n{output[-2000:]}")
    return float(found[-1])


def consume(bootstrap: str, topic: str, records: int) -> float:
    """Records a second of ConsumerPerformance, without the time its group takes to form."""
    output = java_tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(records)),
        *("--hide-header", "--timeout", "60000"),
        timeout=600,
    )
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    fields = [field.strip() for field in output.strip().splitlines()[-1].split(",")]
    if len(fields) < 10:
        raise SystemExit(f"ConsumerPerformance said:\n{output[-2000:]}")
    return float(fields[9])
