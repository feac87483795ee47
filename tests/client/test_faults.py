"""Kafka's errors become the catalogue's."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from headwater import errors
from headwater.client.faults import did_you_mean, in_words


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TRANSPORT, errors.Unreachable),
        (KafkaError._MSG_TIMED_OUT, errors.Unreachable),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, errors.UnknownTopic),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, errors.NotAllowed),
        (KafkaError.NON_EMPTY_GROUP, errors.GroupActive),
        (KafkaError.GROUP_ID_NOT_FOUND, errors.UnknownGroup),
        (KafkaError.PRODUCER_FENCED, errors.StaleProducerEpoch),
        (KafkaError.MSG_SIZE_TOO_LARGE, errors.BatchTooLarge),
        (KafkaError.KAFKA_STORAGE_ERROR, errors.RequestFailed),
    ],
)
def test_each_kind_is_told_apart(code: int, kind: type[errors.HeadwaterError]) -> None:
    fault = in_words(KafkaException(KafkaError(code)), "write to", "orders")
    assert type(fault) is kind
    assert str(fault).startswith("cannot write to orders: ") and "\n" not in str(fault)


def test_an_error_of_no_kind_keeps_its_name() -> None:
    assert "(KAFKA_STORAGE_ERROR)" in str(
        in_words(KafkaError(KafkaError.KAFKA_STORAGE_ERROR), "write to", "x")
    )


def test_the_brokers_own_words_are_kept_on_one_line() -> None:
    fault = in_words(KafkaError(KafkaError.INVALID_CONFIG, "Unknown topic\n config name: x."), "create", "t")
    assert fault.cause == "unknown topic config name: x"


def test_what_our_own_broker_says_is_said_once() -> None:
    told = errors.TopicExists("create", "topic orders", "it exists")
    fault = in_words(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, str(told)), "create", "orders")
    assert str(fault) == str(errors.TopicExists("create", "orders", "it exists"))
    unset = errors.InvalidConfig("set", "retention.ms", "'x' is not a long")
    fault = in_words(KafkaError(KafkaError.INVALID_CONFIG, str(unset)), "alter", "orders")
    assert str(fault) == f"cannot alter orders: {unset}"
    told_so = errors.RequestInvalid("create", "topic orders", "replication factor 3 on 1 broker")
    fault = in_words(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, str(told_so)), "create", "orders")
    assert str(fault) == (
        "cannot create orders: replication factor 3 on 1 broker (INVALID_REPLICATION_FACTOR). Correct the request."
    )


def test_near_names_are_found_by_spelling_case_and_beginning() -> None:
    known = ["orders", "Clicks", "customers-v1", "customers-v2"]
    assert did_you_mean("order", known, "no") == "Did you mean orders?"
    assert did_you_mean("clicks", known, "no") == "Did you mean Clicks?"
    assert did_you_mean("cust", known, "no") == "Did you mean customers-v1 or customers-v2?"
    assert did_you_mean("zzz", known, "no") == "no"
