"""Benchmarks: each prints a table that compares Headwater with a peer, measured in the same run."""
