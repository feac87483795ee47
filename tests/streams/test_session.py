"""The session's Java: what nothing waits for has a lower priority."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.streams.engine.background import NICENESS


def test_what_nothing_waits_for_comes_last(spark: SparkSession) -> None:
    java = spark.sparkContext._gateway.proc.pid
    niceness = {
        thread.read_text().strip(): os.getpriority(os.PRIO_PROCESS, int(thread.parent.name))
        for thread in Path(f"/proc/{java}/task").glob("*/comm")
    }
    behind = {name for name, nice in niceness.items() if nice == NICENESS}
    assert "G1 Conc#0" in behind
    assert not any(name.startswith(("java", "C1", "dispatcher", "Executor", "GC Thread")) for name in behind)
