"""How the Python process of a source answers Spark in time, however long its imports take (see `sitecustomize`)."""

import os
from pathlib import Path

from pyspark.sql import SparkSession


def answer_early(spark: SparkSession) -> None:
    """Has the Python processes that Spark starts from now on answer before they import anything."""
    environment = spark.sparkContext.environment
    here, before = str(Path(__file__).parent), environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = here if not before else f"{here}{os.pathsep}{before}"
