"""Markers: the control batches that end a transaction in each partition it wrote to."""

import asyncio
import logging
from typing import TYPE_CHECKING

from headwater.broker.transactions.records import TopicPartition
from headwater.errors import HeadwaterError, StaleProducerEpoch, UnknownTopic
from headwater.log.partition import PartitionLog, now_ms
from headwater.log.records import ABORT, COMMIT, control_batch
from headwater.log.segment import Retired

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger("headwater.broker")

COORDINATOR_EPOCH = 0  # there is one coordinator, and always was
FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 5.0


def append_marker(
    log: PartitionLog, producer_id: int, epoch: int, coordinator_epoch: int, committed: bool
) -> None:
    """Write the end of a producer's transaction to one partition."""
    kind = COMMIT if committed else ABORT
    batch = control_batch(kind, producer_id, epoch, coordinator_epoch, now_ms())
    log.append_marker(batch, now_ms())


async def write_markers(
    broker: "Broker", partitions: frozenset[TopicPartition], producer_id: int, epoch: int, committed: bool
) -> None:
    """Return when every partition has its marker on disk, or is gone. What fails is tried again, for ever."""
    left = set(partitions)
    wait = FIRST_RETRY_SECONDS
    told: set[str] = set()
    while True:
        syncing: dict[TopicPartition, asyncio.Future[None]] = {}
        for topic, partition in sorted(left):
            log = broker.find_log(topic, partition)
            if log is None:
                left.discard((topic, partition))
                continue
            try:
                append_marker(log, producer_id, epoch, COORDINATOR_EPOCH, committed)
                syncing[topic, partition] = broker.durable(log)
            except (StaleProducerEpoch, UnknownTopic, Retired):
                # A later epoch's marker is there, or the topic is gone: nothing is open any more.
                left.discard((topic, partition))
            except HeadwaterError as error:
                _tell_once(error, told)
        for key, synced in syncing.items():
            try:
                await synced
                left.discard(key)
            except HeadwaterError as error:
                _tell_once(error, told)
        if not left:
            return
        await asyncio.sleep(wait)
        wait = min(wait * 2, LONGEST_RETRY_SECONDS)


def _tell_once(error: HeadwaterError, told: set[str]) -> None:
    text = str(error)
    if text not in told:
        told.add(text)
        logger.warning("a transaction cannot be ended yet: %s", text)
