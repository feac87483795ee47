"""Tokens of topics that a view reads only through other topics of the application.

The offsets of a view tell nothing of what such a topic was made of. So one waits in two steps: until the query
that fills the topic in between has taken the records (the engine's status file says how far it is, once a
second), and then until the view covers what is in that topic by then. It takes the engine's data directory, and
a second longer than a topic that the view reads itself.
"""

import asyncio
import time
from collections.abc import Sequence

from headwater.client.admin import Admin
from headwater.errors import NotInTime
from headwater.serve.serving import Serving
from headwater.serve.tokens import Place, covered, covers, topics_between, topics_read
from headwater.streams.declarations import Topic
from headwater.streams.engine.status import StatusFile
from headwater.streams.graph import Graph

PAUSE = 0.1  # seconds between two looks at the status


class Through:
    """Turns tokens into those of the topics that a view reads itself."""

    def __init__(self, serving: Serving) -> None:
        self._connection = serving.connection
        self._status = StatusFile(serving.settings.data, serving.app.name)
        self._admin: Admin | None = None

    async def translated(
        self, graph: Graph, name: str, places: Sequence[Place], seconds: float
    ) -> tuple[Place, ...]:
        """The records that a view has to cover; NotInTime when a topic in between has not taken its own."""
        own = topics_read(graph, name)
        found = [place for place in places if place.topic in own]
        deadline = time.monotonic() + seconds
        for place in places:
            if place.topic in own:
                continue
            for between in topics_between(graph, name, place.topic):
                left = max(0.0, deadline - time.monotonic())
                inner = await self.translated(graph, between.name, [place], left)
                await self._until(between, inner, deadline, seconds)
                found += await asyncio.to_thread(self._last, between.topic)
        return tuple(found)

    async def _until(self, output: Topic, places: Sequence[Place], deadline: float, seconds: float) -> None:
        while True:
            offsets = await asyncio.to_thread(self._offsets, output.name)
            if covers(offsets, places):
                return
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(min(PAUSE, max(0.0, deadline - time.monotonic())))
        place = next(place for place in places if covered(offsets, place) <= place.offset)
        taken = covered(offsets, place)
        late = NotInTime(
            "wait for",
            f"the topic {output.topic}",
            f"after {seconds:g} s what fills it has taken of {place.topic} {place.partition} what is before {taken}, "
            f"and {place.offset} was asked for",
        )
        late.details = {"wanted": [str(place) for place in places], "offsets": offsets}
        raise late

    def _offsets(self, output: str) -> dict[str, dict[str, int]]:
        outputs = (self._status.read() or {}).get("outputs", [])
        return next((dict(each["offsets"]) for each in outputs if each["name"] == output), {})

    def _last(self, topic: str) -> list[Place]:
        """The last record of each partition that is there for readers of committed records."""
        if self._admin is None:
            self._admin = Admin(self._connection)
        partitions = [(topic, part.number) for part in self._admin.topic(topic).partitions]
        ends = self._admin.latest(partitions, committed=True)
        return [Place(topic, partition, end - 1) for (_, partition), end in ends.items() if end > 0]
