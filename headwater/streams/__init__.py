"""Applications on Spark: from topics, through functions of DataFrames, to topics and views."""
