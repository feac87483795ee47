"""A batch into Parquet files: a directory a batch, named by its number, that appears by one rename.

The layout is ``<path>/batch=<number>/...``, and below it the columns of ``partition_by`` as Spark, DuckDB and
pandas read them. A batch that comes again finds its directory and writes nothing. Files begun by a batch that
was killed lie in ``<path>/_unfinished``, which readers pass over, and are removed by the next attempt.
"""

from typing import Any

from pyspark.sql import DataFrame


class FileSink:
    """Writes the batches of one query to one directory, each once."""

    def __init__(self, path: str, partition_by: tuple[str, ...]) -> None:
        self._path, self._partition_by = path.rstrip("/"), partition_by
        self.rows = 0

    def __call__(self, frame: DataFrame, number: int) -> None:
        spark = frame.sparkSession
        jvm: Any = spark._jvm
        done = jvm.org.apache.hadoop.fs.Path(f"{self._path}/batch={number}")
        part = jvm.org.apache.hadoop.fs.Path(f"{self._path}/_unfinished/batch={number}")
        files = done.getFileSystem(spark._jsc.hadoopConfiguration())
        if files.exists(done):
            return
        frame.persist()
        try:
            rows = frame.count()
            if rows == 0:
                return
            frame.write.mode("overwrite").partitionBy(*self._partition_by).parquet(part.toString())
        finally:
            frame.unpersist()
        files.mkdirs(done.getParent())
        if not files.rename(part, done):
            raise OSError(f"cannot rename {part.toString()} to {done.toString()}")
        self.rows += rows
