"""Answers of the protocol other than success."""

from kio.schema.errors import ErrorCode

from headwater.errors import HeadwaterError


class Refusal(Exception):
    """A request is answered with ``code``; ``message`` is for protocols that carry one."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = message
        super().__init__(message or code.name)


# A group's client knows what to do about a coordinator that is not there, not about a failed disk. These are
# Kafka's translations; NOT_COORDINATOR makes the client look for the coordinator again, and retry.
_TRANSLATED = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.invalid_fetch_size: ErrorCode.unknown_server_error,
}


def code_of(error: BaseException) -> ErrorCode:
    """The answer for what went wrong with a write to the journal.

    >>> from headwater.errors import DiskFull
    >>> code_of(DiskFull("append to", "__consumer_offsets-0", "no space left on device"))
    <ErrorCode.not_coordinator: 16>
    """
    if isinstance(error, Refusal):
        return error.code
    if not isinstance(error, HeadwaterError):
        return ErrorCode.unknown_server_error
    code = ErrorCode(error.kafka_code)
    return _TRANSLATED.get(code, code)
