"""Topics as DataFrames: Spark's own Kafka connector where its jars are, else a Python data source of ours.

Reading order: ``topic_read`` (what is to be read), ``opening`` (as a stream or as a range), ``positions``
(offsets, pure), ``python_source`` and ``reading`` (ours: on the driver, in the tasks), ``json_values`` and
``json_rules`` (values decoded in the tasks), ``connector`` (Spark's), ``gaps``, ``jars``.

Both sources give the same columns and pass one conformance suite. The workers of a Spark cluster need the
package headwater installed: our source runs in their Python processes.
"""
