"""Encoded Metadata responses, kept until a topic changes."""

import struct
from collections import OrderedDict

REMEMBERED_RESPONSES = 64


class ResponseCache:
    """Encoded responses: a thousand partitions take milliseconds to encode, and clients ask again."""

    def __init__(self) -> None:
        self._generation = -1
        self._responses: OrderedDict[object, bytes] = OrderedDict()

    def get(self, generation: int, key: object, correlation_id: int) -> bytes | None:
        """The response to the same question, if no topic has changed since."""
        if generation != self._generation:
            self._responses.clear()
            self._generation = generation
        response = self._responses.get(key)
        return struct.pack(">i", correlation_id) + response[4:] if response is not None else None

    def put(self, key: object, response: bytes) -> None:
        if len(self._responses) >= REMEMBERED_RESPONSES:
            self._responses.popitem(last=False)
        self._responses[key] = response
