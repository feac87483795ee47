"""A topic: its name, identity, settings and partitions."""

import re
import uuid
from dataclasses import dataclass, field

from headwater.errors import InvalidTopic
from headwater.log.config import TopicConfig
from headwater.log.partition import PartitionLog

LARGEST_PARTITION_COUNT = 10_000
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(slots=True)
class Topic:
    """A topic and its partitions."""

    name: str
    topic_id: uuid.UUID
    overrides: dict[str, str]
    config: TopicConfig
    partitions: list[PartitionLog] = field(default_factory=list)


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic for a name Kafka does not take.

    >>> check_topic_name("orders.v1")
    >>> check_topic_name("a/b")
    Traceback (most recent call last):
    ...
    headwater.errors.InvalidTopic: cannot name a topic 'a/b': it has characters that are not allowed. ...
    """
    if not name:
        raise InvalidTopic("name a topic", repr(name), "the name is empty")
    if name in (".", ".."):
        raise InvalidTopic("name a topic", repr(name), "'.' and '..' are not allowed")
    if len(name) > 249:
        raise InvalidTopic("name a topic", repr(name), "it is longer than 249 characters")
    if not _TOPIC_NAME.fullmatch(name):
        raise InvalidTopic("name a topic", repr(name), "it has characters that are not allowed")
