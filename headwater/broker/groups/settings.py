"""The settings of the group coordinator, with the names Kafka's broker configuration gives them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Times are in milliseconds. The defaults are Kafka's, unless a comment says why not."""

    # group.initial.rebalance.delay.ms. Kafka waits 3 s for further members of an empty group, which suits a
    # cluster; a laptop's first consumer should not wait.
    initial_rebalance_delay_ms: int = 100
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    # group.max.size and group.consumer.max.size. Kafka has no limit; one process must have one.
    max_size: int = 10_000
    consumer_max_size: int = 10_000
    # How long a JoinGroup of a new member, which cannot send heartbeats yet, is believed to be alive.
    new_member_join_timeout_ms: int = 300_000

    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    # group.consumer.assignors; the first is the default
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    # How often a group of the new protocol looks for new partitions and topics, at most.
    topic_check_interval_ms: int = 1_000

    offset_metadata_max_bytes: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
