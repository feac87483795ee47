"""The session's Java: what nothing waits for has a lower priority."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from headwater.streams.engine.background import NICENESS
from headwater.streams.engine.session import quick_settings
from headwater.streams.settings import load_stream_settings


def test_what_nothing_waits_for_comes_last(spark: SparkSession) -> None:
    java = spark.sparkContext._gateway.proc.pid
    niceness = {
        thread.read_text().strip(): os.getpriority(os.PRIO_PROCESS, int(thread.parent.name))
        for thread in Path(f"/proc/{java}/task").glob("*/comm")
    }
    behind = {name for name, nice in niceness.items() if nice == NICENESS}
    assert "G1 Conc#0" in behind
    assert not any(name.startswith(("java", "C1", "dispatcher", "Executor", "GC Thread")) for name in behind)


def test_settings_in_a_directory_with_blanks_and_letters_of_another_alphabet(tmp_path: Path) -> None:
    logs = tmp_path / "dä ta Δ 😀"
    logs.mkdir()
    chosen = quick_settings(load_stream_settings(data=logs), logs, logs)
    option = chosen["spark.driver.extraJavaOptions"].split()[0]  # as Spark divides them
    name, _, uri = option.partition("=")
    assert name == "-Dlog4j2.configurationFile"
    written = Path(unquote(urlsplit(uri).path)).read_text("ascii")
    assert f"fileName = {tmp_path}/d\\u00e4 ta \\u0394 \\ud83d\\ude00/spark.log" in written
