"""The catalogue of errors: every failure that Headwater reports to a person or a client.

An error says what was being done (operation), to what (subject), why it failed (cause) and what to do
about it (next step). ``kafka_code`` is the number by which the Kafka protocol knows the same failure.
"""

from collections.abc import Mapping
from typing import ClassVar

LONGEST_PART = 1000  # characters


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_PART else f"{text[:LONGEST_PART]}..."


class HeadwaterError(Exception):
    """The base of the catalogue.

    >>> str(DiskFull("append to", "orders-0", "no space left on device"))
    'cannot append to orders-0: no space left on device. Free space; writing resumes by itself.'
    """

    kafka_code: ClassVar[int] = -1  # UNKNOWN_SERVER_ERROR
    next_step: str = "Report this with the broker's log."

    def __init__(self, operation: str, subject: str, cause: str, next_step: str | None = None) -> None:
        # Subjects and causes quote what clients send, of any length; old responses hold 32 kB.
        self.operation = operation
        self.subject = subject = _shortened(subject)
        self.cause = cause = _shortened(cause)
        if next_step is not None:
            self.next_step = next_step
        super().__init__(f"cannot {operation} {subject}: {cause}. {self.next_step}")


# -- storage ---------------------------------------------------------------------------------------


class DiskFull(HeadwaterError):
    """The file system has no room; the append was undone and nothing of it is in the log."""

    kafka_code = 56  # KAFKA_STORAGE_ERROR, which clients retry
    next_step = "Free space; writing resumes by itself."


class StorageFailed(HeadwaterError):
    """The operating system refused a read, a write or a sync of a log file."""

    kafka_code = 56
    next_step = "Check the disk, then restart the broker: it recovers the partition."


class CorruptData(HeadwaterError):
    """A byte on disk is not what was written."""

    kafka_code = 2  # CORRUPT_MESSAGE
    next_step = "Restore the file from a copy, or consume from the next good offset."


class DirectoryInUse(HeadwaterError):
    """Another process holds the data directory."""

    next_step = "Stop the other broker, or choose another --data directory."


class DirectoryInvalid(HeadwaterError):
    """The data directory is not one of ours, or is of a later version."""

    next_step = "Choose an empty or existing Headwater data directory."


class AddressInUse(HeadwaterError):
    """Nothing can listen at the broker's address."""

    next_step = "Choose another --port, or 0 for a free one."


# -- requests --------------------------------------------------------------------------------------


class InvalidBatch(HeadwaterError):
    """A record batch from a client is malformed."""

    kafka_code = 87  # INVALID_RECORD
    next_step = "Fix the producer; nothing of the batch was written."
    records: tuple[int, ...] = ()  # numbers of the records at fault, where it is not the batch as a whole


class CorruptBatch(InvalidBatch):
    """A record batch from a client does not match its checksum."""

    kafka_code = 2  # CORRUPT_MESSAGE


class BatchTooLarge(InvalidBatch):
    """A record batch is over the topic's max.message.bytes."""

    kafka_code = 10  # MESSAGE_TOO_LARGE
    next_step = "Send smaller batches or raise max.message.bytes of the topic."


class UnsupportedFormat(InvalidBatch):
    """A batch in a message format older than v2."""

    next_step = "Use a client of Kafka 0.11 or later."


class InvalidTimestamp(InvalidBatch):
    """A record's timestamp is outside of what the topic allows."""

    kafka_code = 32  # INVALID_TIMESTAMP
    next_step = "Correct the producer's clock, or raise message.timestamp.after.max.ms."


class OffsetOutOfRange(HeadwaterError):
    """An offset before the log's start or after its end."""

    kafka_code = 1  # OFFSET_OUT_OF_RANGE
    next_step = "Start from the earliest or the latest offset."


class OutOfOrderSequence(HeadwaterError):
    """An idempotent producer's batch does not follow its last one."""

    kafka_code = 45  # OUT_OF_ORDER_SEQUENCE_NUMBER
    next_step = "The producer must retry its batches in order, or start a new session."


class StaleProducerEpoch(HeadwaterError):
    """A producer writes with an epoch that a newer instance of it has ended."""

    kafka_code = 47  # INVALID_PRODUCER_EPOCH
    next_step = "Close this producer; a newer one with its transactional.id is active."


class UnknownProducer(HeadwaterError):
    """A producer id that does not belong to the transactional id it writes under."""

    kafka_code = 49  # INVALID_PRODUCER_ID_MAPPING
    next_step = "Start the producer again: it gets a new identity."


class InvalidTransaction(HeadwaterError):
    """A transactional operation that does not fit the transaction's state."""

    kafka_code = 48  # INVALID_TXN_STATE
    next_step = "Abort the transaction and begin a new one."


class NotInTransaction(InvalidTransaction):
    """As InvalidTransaction, for clients that know that aborting sets it right."""

    kafka_code = 120  # TRANSACTION_ABORTABLE


class TopicExists(HeadwaterError):
    """A topic of that name is there already."""

    kafka_code = 36  # TOPIC_ALREADY_EXISTS
    next_step = "Choose another name, or use the topic that is there."


class UnknownTopic(HeadwaterError):
    """There is no such topic or partition."""

    kafka_code = 3  # UNKNOWN_TOPIC_OR_PARTITION
    next_step = "Create it first: headwater topics create NAME."


class InvalidTopic(HeadwaterError):
    """A topic name that Kafka does not allow."""

    kafka_code = 17  # INVALID_TOPIC_EXCEPTION
    next_step = "Use letters, digits, '.', '_' and '-', at most 249 of them."


class InvalidConfig(HeadwaterError):
    """A configuration key or value that does not exist or does not fit."""

    kafka_code = 40  # INVALID_CONFIG
    next_step = "See docs/operations.md for the settings and their ranges."


class InvalidPartitions(HeadwaterError):
    """A number of partitions that cannot be had."""

    kafka_code = 37  # INVALID_PARTITIONS
    next_step = "Ask for at least one partition, and never for fewer than there are."


# -- the command line and other clients ------------------------------------------------------------


class BadInput(HeadwaterError):
    """Something a person typed does not make sense."""

    next_step = "See --help."


class Unreachable(HeadwaterError):
    """No broker answers at the given address."""

    next_step = "Start one with `headwater broker`, or name another with --bootstrap."


class RequestInvalid(HeadwaterError):
    """A request asks for what no broker could do, or this one does not."""

    next_step = "Correct the request."


class RequestFailed(HeadwaterError):
    """The broker answered with an error."""

    next_step = "See the broker's log."


class NotAllowed(HeadwaterError):
    """The broker refused who asks: not authenticated, or not authorised for this."""

    kafka_code = 29  # TOPIC_AUTHORIZATION_FAILED; clients know one such code a resource
    next_step = "Check the client properties (--config-file, -X) and the access rights."


class UnknownGroup(HeadwaterError):
    """There is no consumer group of that name."""

    kafka_code = 69  # GROUP_ID_NOT_FOUND
    next_step = "See `headwater groups list`."


class GroupActive(HeadwaterError):
    """A consumer group has members, so that nobody else may change its offsets."""

    kafka_code = 68  # NON_EMPTY_GROUP
    next_step = "Stop its consumers first; a killed one is noticed after its session time-out."


class NotDelivered(HeadwaterError):
    """Records that no broker has acknowledged; some of them may be in the log nevertheless."""

    kafka_code = 7  # REQUEST_TIMED_OUT
    next_step = "Send them again when the broker answers."


class TransactionAborted(HeadwaterError):
    """A transaction that was rolled back: nothing of it is visible to read_committed readers."""

    kafka_code = 120  # TRANSACTION_ABORTABLE
    next_step = "Run the transaction again."


# -- views -----------------------------------------------------------------------------------------


class ViewChanged(HeadwaterError):
    """A view is declared otherwise than it was built, under the version it was built with."""

    next_step = "Give it a new version (version=N+1): it is built beside the old one and takes its name."


class UnknownView(HeadwaterError):
    """No view of this name, or of this version, is in the store."""

    next_step = "List the views with `headwater views`."


class StoreFailed(HeadwaterError):
    """The database of the views refused something."""

    next_step = "Look at the database; the batch is repeated when it answers again."


# -- streams ---------------------------------------------------------------------------------------


class BadDuration(HeadwaterError):
    """A text that is not a length of time."""

    next_step = "Write a number and a unit, such as '30 seconds', '5 minutes' or '1 hour 30 minutes'."


class ApplicationInvalid(HeadwaterError):
    """The application cannot run as it is declared; nothing was started."""

    next_step = "Correct the declaration and start again."


class EngineMissing(HeadwaterError):
    """Something the engine needs is not on this machine."""

    next_step = "Install it, or name where it is."


class EngineLost(HeadwaterError):
    """The engine has ended under a running application, which cannot go on in this process."""

    next_step = "Start it again: it goes on where it was. A supervisor (systemd, Docker) does so by itself."


class RecordsMissed(HeadwaterError):
    """Records that a pipeline had yet to read are no longer in the log."""

    next_step = (
        "Say on_gap='continue' on the stream to go on from the earliest record that is left, or rebuild with "
        "`headwater replay`."
    )


class OrderUnknown(HeadwaterError):
    """A table was emptied by a record whose order with records of other partitions is not known."""

    next_step = "Have the table's changes written to a topic with one partition, and read that one."


class PipelineFailed(HeadwaterError):
    """A query stopped by itself."""

    next_step = "It is started again from its last finished batch."


# -- connect ---------------------------------------------------------------------------------------


class ConnectionLost(HeadwaterError):
    """A database or another system outside went away, or could not be reached."""

    next_step = "Look at the server; capture goes on by itself from where it was when it answers again."


class CaptureImpossible(HeadwaterError):
    """A database lacks something that capture needs."""

    next_step = "Run `headwater doctor` with the database's address; it says what to mend and how."


class ChangesMissed(HeadwaterError):
    """The database no longer has changes that were yet to be read."""

    next_step = "Read the tables again: `headwater connect signal NAME snapshot`, or say on_gap='snapshot'."


class TakenOver(HeadwaterError):
    """A newer worker of the same source is at work; this one has stopped, and wrote nothing after it."""

    next_step = "Run one worker a source, or give the sources different names with name=..."


class SinkImpossible(HeadwaterError):
    """What follows a topic outside refuses it, or cannot take what the topic has."""

    next_step = "Mend it there, or correct the declaration, and start again: it goes on where it was."


# -- serving ---------------------------------------------------------------------------------------


class ConditionInvalid(BadInput):
    """A condition or an order in the address of a request that cannot be understood."""

    next_step = "See docs/serving.md for how conditions are written."
    position: int = 0  # of the character at fault, from 1 on

    @property
    def details(self) -> Mapping[str, object]:
        return {"position": self.position}


class NotFound(HeadwaterError):
    """There is nothing at this address: no such row, no such path."""

    next_step = "See /openapi.json for what there is."


class NotReady(HeadwaterError):
    """A view that the application declares and that nobody has begun to fill yet."""

    next_step = "Ask again in a moment; `headwater status` says how the application is doing."


class NotInTime(HeadwaterError):
    """A view that does not cover what a reader has written, after all the time that it was given."""

    next_step = "Ask again with the same token, or give it longer with wait=SECONDS."
    details: Mapping[str, object] = {}  # which records are wanted, and the offsets that the view covers


class TokenMissing(HeadwaterError):
    """A request without the server's token, or with another."""

    next_step = "Send it as `Authorization: Bearer TOKEN`, or sign in at /login."


class TooLarge(HeadwaterError):
    """A request, or an event in it, is larger than the server takes; nothing of it was written."""

    next_step = "Send less at a time."


class NotJson(HeadwaterError):
    """A request whose content type, or encoding, is not one of those that hold events."""

    next_step = "Send application/json, or application/x-ndjson for an event a line."


class Overloaded(HeadwaterError):
    """More events are on their way to the broker than the server holds; nothing of the request was written."""

    next_step = "Send it again after the seconds that Retry-After says."


class EventsRefused(HeadwaterError):
    """None of the events fits the topic's schema; each is kept in the dead-letter topic."""

    next_step = "Correct them, and send them again."


class KeyReused(HeadwaterError):
    """An idempotency key that came before, with another request; nothing was written."""

    next_step = "Use a new Idempotency-Key for every request that is not a repetition."
