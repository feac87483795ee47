"""Kills of everything that a pipeline runs on; its topic and its view equal a recompute of the input."""
