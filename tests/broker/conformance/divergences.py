"""Where the broker answers otherwise than Apache Kafka 4.1.1, on purpose, and why.

Script, then step (a pattern as of the shell), then reason. These steps are run and not compared.
"""

from fnmatch import fnmatchcase

OPAQUE = (
    "records stay closed on their way to the file, but on topics that compact or have a codec of their own"
)
OURS_IS_CLEARER = "Kafka stumbles over it (UNKNOWN_SERVER_ERROR); we say INVALID_RECORD"

DIVERGENCES: dict[str, dict[str, str]] = {
    "an_administrator_ends_a_hanging_transaction": {
        "older epoch": "Kafka stumbles (UNKNOWN_SERVER_ERROR); its own client expects INVALID_PRODUCER_EPOCH",
    },
    "spoiled_batches": {
        "zeros": "their magic says format v0, which is refused as such",
        "a control batch": "refused for what it is (INVALID_RECORD), before whose it is",
        "transactional without a producer": "refused for what it is, before whose it is",
    },
    "spoiled_records": {
        "garbage": OURS_IS_CLEARER,
        "codec ?, garbage": OURS_IS_CLEARER,
        "codec ?, cut short": OURS_IS_CLEARER,
        "codec ?, nothing": OURS_IS_CLEARER,
    },
    "batches_that_lie": {
        "bytes that follow": "Kafka drops them in silence; we refuse the batch",
        "codec ?": OURS_IS_CLEARER,
        "no epoch": "Kafka takes a producer id without an epoch; we refuse it",
        "more records than there are": OPAQUE,
        "fewer records than there are": OPAQUE,
        "garbage for records": OPAQUE,
        "second record too old": OPAQUE,
    },
    "fetches_with_odd_numbers": {
        "partition bytes -1": "Kafka stumbles (UNKNOWN_SERVER_ERROR); we take it for 0",
        "bytes -1": "Kafka stumbles (UNKNOWN_SERVER_ERROR); we take it for 0",
        "isolation 7": "Kafka stumbles (UNKNOWN_SERVER_ERROR); we take it for read_uncommitted",
        "the same twice": "Kafka keeps the last of them; we answer each",
        "as a follower that is not one": "there are no followers: who asks is a client",
    },
    "metadata_of_every_version": {
        "* by neither": "Kafka stumbles (UNKNOWN_SERVER_ERROR) and leaves out the brokers",
    },
    "settings_of_a_topic": {
        "client metrics": "there is no telemetry",
    },
    "settings_changed_one_by_one": {
        "an unknown operation": "Kafka stumbles (UNKNOWN_SERVER_ERROR); we say INVALID_CONFIG",
    },
    "fetch_sessions": {
        "a session of nothing": "it is not worth remembering",
    },
}


def is_divergent(script: str, step: str) -> bool:
    return any(fnmatchcase(step, pattern) for pattern in DIVERGENCES.get(script, ()))
