"""Headwater: a log is the source; everything downstream is derived."""

__version__ = "0.1.0"
