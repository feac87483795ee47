"""Formats of values beside JSON: Avro, Protobuf, and Debezium's change events.

A binary format is decoded by a Python function into JSON text, which then goes the way of all JSON: what does
not decode has a problem, and the schema is the stream's own.
"""
