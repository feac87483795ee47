"""Running a broker: listen, say so, serve until told to stop."""

import asyncio
import ctypes
import logging
import os
import signal
import sys
from contextlib import suppress

from headwater.broker import (  # noqa: F401 (they register their APIs)
    cluster,
    configs,
    group_apis,
    metadata,
    offsets,
    replicas,
    security,
    topics,
)
from headwater.broker.broker import Broker
from headwater.broker.connection import Connection
from headwater.broker.settings import BrokerSettings
from headwater.broker.transactions import handlers  # noqa: F401
from headwater.errors import AddressInUse

logger = logging.getLogger("headwater.broker")

# Set by who starts a broker for itself and holds its standard input: the broker ends when that is closed, and so
# with its owner, however that ends.
LEASH = "HEADWATER_BROKER_LEASH"

# The thread that waits for the disk must get its turn soon after the disk is done.
SWITCH_INTERVAL = 0.0005

# Answers of some megabytes are read into fresh memory and gone a moment later. Given back to the system each time,
# getting that memory again costs more than filling it.
KEPT_MEMORY = 32 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's names for it


def run(settings: BrokerSettings) -> None:
    """Run a broker in this process until SIGTERM or Ctrl-C."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    sys.setswitchinterval(SWITCH_INTERVAL)
    _keep_memory()
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(settings))
    else:
        uvloop.run(_serve(settings))


def _keep_memory() -> None:
    if sys.platform == "linux":
        with suppress(AttributeError):  # musl has no such choice
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_TRIM_THRESHOLD, KEPT_MEMORY)
            mallopt(_M_MMAP_THRESHOLD, KEPT_MEMORY)


async def _serve(settings: BrokerSettings) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if os.environ.get(LEASH):
        loop.add_reader(sys.stdin.fileno(), stop.set)
    broker = Broker(settings, loop)
    await broker.start()
    try:
        server = await loop.create_server(
            lambda: Connection(broker), settings.host, settings.port, backlog=1024, reuse_address=True
        )
    except OSError as error:
        await broker.stop()
        where = f"{settings.host}:{settings.port}"
        raise AddressInUse("listen at", where, (error.strerror or str(error)).lower()) from error
    broker.port = server.sockets[0].getsockname()[1]
    print(f"headwater broker ready at {broker.address} (data {settings.data})", flush=True)
    await stop.wait()
    if os.environ.get(LEASH):
        loop.remove_reader(sys.stdin.fileno())
    logger.info("stopping")
    server.close()
    await broker.stop()
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(server.wait_closed(), 1)
    # Told again while the process ends, it has ended well all the same.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    logger.info("stopped")
