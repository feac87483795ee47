"""Large answers: encoded beside the loop, so that who asks for much holds up nobody else."""

import asyncio
from typing import TYPE_CHECKING

from headwater.broker.context import RequestContext
from headwater.broker.messages import Fields, encode_response

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

LARGE = 2000  # entries: about ten milliseconds of encoding
STEP = 500  # entries that are worked on between two looks at the other clients


async def encoded(broker: "Broker", context: RequestContext, fields: Fields, entries: int) -> Fields | bytes:
    """The answer, as bytes if it has so many entries that encoding takes a while."""
    if entries < LARGE:
        return fields
    key, version, number = context.api_key, context.version, context.correlation_id
    return await broker.loop.run_in_executor(broker.readers, encode_response, key, version, number, fields)


async def breathe(number: int) -> None:
    """Called for each entry of a request: lets others have their turn now and then."""
    if number % STEP == STEP - 1:
        await asyncio.sleep(0)
