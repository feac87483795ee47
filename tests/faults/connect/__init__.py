"""Capture under kills: connector, broker and database server end at random while random writers write."""
