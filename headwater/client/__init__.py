"""Thin helpers on confluent-kafka that every other room uses. They work on any Kafka."""
