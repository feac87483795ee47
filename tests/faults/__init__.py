"""Brokers and clients killed under load, and what must be true afterwards."""
