"""Thin helpers on confluent-kafka that every other room uses. They work on any Kafka.

Reading order: ``settings`` (where the address comes from), ``connection`` (an address and client properties),
``faults`` (Kafka's errors in words), ``admin`` and ``groups`` (questions and changes), ``reader`` and
``group_reader`` (records in), ``writer`` and ``transactions`` (records out).

The modules are imported by name, never through this package: importing one costs only what it needs.
"""
