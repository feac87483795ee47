"""What the broker does unasked: retention, compaction, idle producers and connections, checkpoints."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.log.cleaner import clean_partition, is_cleanable
from headwater.log.partition import PartitionLog, now_ms
from headwater.log.retention import expired, remove_departed

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger("headwater.broker")

IDLE_CHECK_SECONDS = 30.0


class Housekeeping:
    """The periodic tasks of a broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._look = asyncio.Event()

    def start(self) -> None:
        loop = self._broker.loop
        self._tasks = [
            loop.create_task(self._retain()),
            loop.create_task(self._compact()),
            loop.create_task(self._close_idle()),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def look_soon(self) -> None:
        """Records were deleted: let retention look now."""
        self._look.set()

    # -- retention --------------------------------------------------------------------------------

    async def _retain(self) -> None:
        seconds = self._broker.settings.integer("log.retention.check.interval.ms") / 1000
        while True:
            try:
                await asyncio.wait_for(self._look.wait(), seconds)
            except TimeoutError:
                pass
            self._look.clear()
            removed = 0
            idle_producers_ms = self._broker.live.integer("producer.id.expiration.ms")
            for log in list(self._broker.directory.partitions()):
                try:
                    removed += await self._retain_partition(log)
                    log.producers.forget_idle(now_ms() - idle_producers_ms)
                except (HeadwaterError, OSError) as error:
                    logger.warning("retention of %s: %s", log.name, error)
                except Exception:  # whatever it is, the other partitions need their retention
                    logger.exception("retention of %s failed", log.name)
            if removed:
                try:
                    await self._broker.save_checkpoint()
                except HeadwaterError as error:  # the files that are left say where a log starts, too
                    logger.warning("%s", error)

    async def _retain_partition(self, log: PartitionLog) -> int:
        count = 0 if log.deleted else expired(log, now_ms())
        if count:
            log.drop_segments(count)
            logger.info("%s starts at offset %d: %d segments left it", log.name, log.start_offset, count)
        if log.departed and not log.deleted:
            try:
                if not log.prepare_removal():
                    await self._broker.durable(log)
                if log.prepare_removal():
                    await self._broker.loop.run_in_executor(self._broker.readers, remove_departed, log)
            except (HeadwaterError, OSError) as error:
                logger.warning("retention of %s: %s", log.name, error)
        return count

    # -- compaction -------------------------------------------------------------------------------

    async def _compact(self) -> None:
        while True:
            await asyncio.sleep(max(self._broker.live.integer("log.cleaner.backoff.ms") / 1000, 0.05))
            if not self._broker.settings.boolean("log.cleaner.enable"):
                continue
            for log in list(self._broker.directory.partitions()):
                if log.config.compact and not log.deleted:
                    await self._compact_partition(log)

    async def _compact_partition(self, log: PartitionLog) -> None:
        try:
            if not is_cleanable(log, now_ms()):
                return
            swap = await self._broker.loop.run_in_executor(
                self._broker.readers, clean_partition, log, now_ms()
            )
            if swap is not None:
                swap.put_in_place(log)
                await self._broker.loop.run_in_executor(self._broker.readers, swap.finish)
                await self._broker.save_checkpoint()
        except (HeadwaterError, OSError) as error:
            logger.warning("compaction of %s: %s", log.name, error)
        except Exception:  # whatever it is, the other partitions need their compaction
            logger.exception("compaction of %s failed", log.name)

    # -- connections ------------------------------------------------------------------------------

    async def _close_idle(self) -> None:
        limit = self._broker.settings.integer("connections.max.idle.ms") / 1000
        while True:
            await asyncio.sleep(min(IDLE_CHECK_SECONDS, limit))
            now = time.monotonic()
            for connection in list(self._broker.connections):
                if not connection.is_busy and now - connection.last_active > limit:
                    connection.close()
