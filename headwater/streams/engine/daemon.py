"""The process that Spark's Python workers are forked from, with what they import loaded before the fork.

A worker of Spark's own daemon imports Arrow, pandas and ours after the fork: a second of a core and some tens
of megabytes for each. Named to Spark as ``spark.python.daemon.module``.

After each task a worker collects garbage, by Spark's will: among all that was loaded that takes as long as a small
task itself, so what is there before the fork is left out of it.
"""

import gc

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark import daemon

import headwater.streams.sinks.topics
import headwater.streams.sources.python_source  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    daemon.manager()
