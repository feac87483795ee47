"""Capture of SQLite: triggers write every change into a table of the database, which is read from there."""
