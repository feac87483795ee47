"""The HTTP API of an application: its views to read and follow, its topics to write and follow."""
