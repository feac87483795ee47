"""The clients in other languages, and what each of them can do."""

from tests.clients.matrix import Client

MORE: list[Client] = []
