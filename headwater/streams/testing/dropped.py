"""Which rows a function's state no longer takes, because they come behind the watermark.

Spark drops a row before its state when the end of its window, or its time where there is no window, is at
or before the watermark of the batch before. So the function is applied to that one row, as a DataFrame that
does not stream, and what would reach its lowest stateful operators is looked at: the row is late when
something of it would, and all of that is behind the watermark.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame

from headwater.streams.declarations import Function
from headwater.streams.modes import with_keys_as_columns
from headwater.streams.state import ways_into_state
from headwater.streams.testing.rows import plain_rows


def is_dropped(function: Function, inputs: Mapping[str, DataFrame], watermark: datetime) -> bool:
    """Whether the row in `inputs`, which has one row in all, is late by this watermark."""
    frame = with_keys_as_columns(function(**inputs))
    kept = dropped = 0
    for below, time in ways_into_state(frame):
        rows = plain_rows(_frame(frame, below).toArrow())
        for row in rows:
            moment = list(row.values())[time]
            end = moment["end"] if isinstance(moment, dict) else moment
            if end is not None and end <= watermark:
                dropped += 1
            else:
                kept += 1
    return dropped > 0 and kept == 0


def _frame(frame: DataFrame, plan: Any) -> DataFrame:
    jvm: Any = frame.sparkSession._jvm
    dataset = getattr(getattr(jvm.org.apache.spark.sql.classic, "Dataset$"), "MODULE$")
    return DataFrame(dataset.ofRows(frame.sparkSession._jsparkSession, plan), frame.sparkSession)
