"""A broker that stops does not wait for rebalances."""

import asyncio
import time

from headwater.broker.messages import duration
from tests.broker.groups.calling import OverTheWire, codes
from tests.broker.groups.script import Script
from tests.support.servers import Headwater


def test_held_requests_are_answered_and_the_broker_ends_at_once() -> None:
    async def program(server: Headwater) -> float:
        k = Script(OverTheWire(server.port), {}, "")
        patient = {"rebalance_timeout": duration(60_000), "session_timeout": duration(60_000)}
        joined = await k.join("g", **patient)
        await k.sync("g", joined, {joined.member_id: b"x"})
        held = asyncio.create_task(k.join("g", **patient))
        await asyncio.sleep(0.5)
        assert not held.done()
        begun = time.monotonic()
        await asyncio.to_thread(server.stop)
        assert codes(await held) == "not_coordinator"
        return time.monotonic() - begun

    with Headwater() as server:
        seconds = asyncio.run(program(server))
        assert seconds < 3, "it waits five seconds for connections that are busy"
        server.start()
        described = asyncio.run(OverTheWire(server.port)("DescribeGroups", 6, groups=("g",)))
        assert described.groups[0].group_state == "Stable"
