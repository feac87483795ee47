"""The committed positions of a group, read and written through a coordinator that may be on its way.

A group's coordinator loads its state when its broker starts, and the first group of a new cluster waits for
the topic of the offsets to be made: a client is told to ask again.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.client.faults import in_words

SECONDS = 30.0
_PAUSE = 0.1

# What passes when the coordinator is there.
TO_COME = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._WAIT_COORD,
    }
)

T = TypeVar("T")


def read_positions(consumer: Consumer, places: Sequence[TopicPartition], whose: str) -> list[TopicPartition]:
    """The positions that the consumer's group has committed; `whose` is told to people when it fails."""
    found = _ask("read the position of", whose, lambda: consumer.committed(list(places), SECONDS))
    for each in found:
        if each.error is not None:
            raise in_words(each.error, "read the position of", whose)
    return found


def save_positions(consumer: Consumer, places: Sequence[TopicPartition], whose: str) -> None:
    """Commits positions of the consumer's group."""
    _ask("save the position of", whose, lambda: consumer.commit(offsets=list(places), asynchronous=False))


def _ask(operation: str, whose: str, question: Callable[[], T]) -> T:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return question()
        except KafkaException as error:
            if error.args[0].code() not in TO_COME or time.monotonic() > deadline:
                raise in_words(error, operation, whose) from error
        time.sleep(_PAUSE)
