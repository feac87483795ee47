"""Kafka's errors, as confluent-kafka reports them, in the words of the catalogue."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from confluent_kafka import KafkaError, KafkaException

from headwater.errors import (
    BadInput,
    BatchTooLarge,
    CorruptData,
    GroupActive,
    HeadwaterError,
    InvalidBatch,
    InvalidConfig,
    InvalidPartitions,
    InvalidTimestamp,
    InvalidTopic,
    InvalidTransaction,
    NotAllowed,
    OffsetOutOfRange,
    RequestFailed,
    StaleProducerEpoch,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
    Unreachable,
)

_KINDS: dict[int, type[HeadwaterError]] = {
    KafkaError._TRANSPORT: Unreachable,
    KafkaError._ALL_BROKERS_DOWN: Unreachable,
    KafkaError._RESOLVE: Unreachable,
    KafkaError._TIMED_OUT: Unreachable,
    KafkaError._TIMED_OUT_QUEUE: Unreachable,
    KafkaError._MSG_TIMED_OUT: Unreachable,
    KafkaError._AUTHENTICATION: NotAllowed,
    KafkaError._SSL: NotAllowed,
    KafkaError.SASL_AUTHENTICATION_FAILED: NotAllowed,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NotAllowed,
    KafkaError.GROUP_AUTHORIZATION_FAILED: NotAllowed,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: NotAllowed,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAllowed,
    KafkaError.UNKNOWN_TOPIC_OR_PART: UnknownTopic,
    KafkaError.UNKNOWN_TOPIC_ID: UnknownTopic,
    KafkaError._UNKNOWN_TOPIC: UnknownTopic,
    KafkaError._UNKNOWN_PARTITION: UnknownTopic,
    KafkaError._NOENT: UnknownTopic,  # of an offset request: no broker leads such a partition
    KafkaError.TOPIC_ALREADY_EXISTS: TopicExists,
    KafkaError.TOPIC_EXCEPTION: InvalidTopic,
    KafkaError.INVALID_CONFIG: InvalidConfig,
    KafkaError.INVALID_PARTITIONS: InvalidPartitions,
    KafkaError.INVALID_RECORD: InvalidBatch,
    KafkaError.INVALID_TIMESTAMP: InvalidTimestamp,
    KafkaError.MSG_SIZE_TOO_LARGE: BatchTooLarge,
    KafkaError.RECORD_LIST_TOO_LARGE: BatchTooLarge,
    KafkaError.INVALID_MSG: CorruptData,
    KafkaError._BAD_MSG: CorruptData,
    KafkaError.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    KafkaError._AUTO_OFFSET_RESET: OffsetOutOfRange,
    KafkaError.GROUP_ID_NOT_FOUND: UnknownGroup,
    KafkaError.NON_EMPTY_GROUP: GroupActive,
    KafkaError.GROUP_SUBSCRIBED_TO_TOPIC: GroupActive,
    # An offset commit from outside of a group that has members is refused as if by a stranger in it.
    KafkaError.UNKNOWN_MEMBER_ID: GroupActive,
    KafkaError.PRODUCER_FENCED: StaleProducerEpoch,
    KafkaError.INVALID_PRODUCER_EPOCH: StaleProducerEpoch,
    KafkaError._FENCED: StaleProducerEpoch,
    KafkaError.INVALID_TXN_STATE: InvalidTransaction,
    KafkaError._INVALID_ARG: BadInput,
}


# What our own broker says of a request is an error of the catalogue itself: operation, subject, cause, next step.
_OUR_OWN = re.compile(r"cannot (.+?): (.+)")


def in_words(
    error: KafkaError | KafkaException, operation: str, subject: str, next_step: str | None = None
) -> HeadwaterError:
    """The catalogue's error for one of Kafka's.

    >>> print(in_words(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS), "create", "orders"))
    cannot create orders: topic already exists. Choose another name, or use the topic that is there.
    """
    fault: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    kind = _KINDS.get(fault.code(), RequestFailed)
    cause = _cause(fault)
    if ours := _OUR_OWN.fullmatch(cause):
        what, why = ours.groups()
        why, told = _without_step(why)
        cause = why if subject in what else f"cannot {what}: {why}"
        next_step = next_step or told
    if kind is RequestFailed:
        cause = f"{cause} ({fault.name()})"
    return kind(operation, subject, cause, next_step)


def _without_step(text: str) -> tuple[str, str | None]:
    """Cause and next step of an error of the catalogue that has lost its last full stop."""
    for kind in _catalogue():
        if text.endswith(step := kind.next_step.removesuffix(".")):
            return text.removesuffix(step).rstrip(". "), kind.next_step
    return text, None


def _catalogue(kind: type[HeadwaterError] = HeadwaterError) -> Iterator[type[HeadwaterError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _catalogue(each)


def _cause(error: KafkaError) -> str:
    """What librdkafka says, without its prefixes, its own hints and its capital letter."""
    text = " ".join(error.str().split())
    text = re.sub(r"^(Broker|Local): ", "", text)
    text = re.sub(r"^(Failed|Unable) [^:]*: (Local|Broker): ", "", text)
    text = text.rstrip(". ")
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    return text or error.name()


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The next step when ``name`` is not known: the names that look like it, or ``otherwise``.

    >>> did_you_mean("ordes", ["orders", "clicks"], "Create it.")
    'Did you mean orders?'
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = [by_lower[match] for match in get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)]
    near += [
        full for low, full in sorted(by_lower.items()) if low.startswith(name.lower()) and full not in near
    ]
    if not near:
        return otherwise
    return f"Did you mean {' or '.join(near[:3])}?"
