"""Debezium beside our capture: one workload through both, compared field by field.

What Debezium says is kept in ``*.json`` beside this file, recorded by ``make conformance-cdc`` from the real one, so
that ``make test`` compares without Java.
"""
