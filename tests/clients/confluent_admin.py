"""What the tests of confluent-kafka's AdminClient share."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

TIMEOUT = 20


def refusal(future: Any) -> tuple[int, str]:
    """The error that the broker answered with, and its words."""
    with pytest.raises(KafkaException) as refused:
        future.result(TIMEOUT)
    error: KafkaError = refused.value.args[0]
    return error.code(), error.str()
