"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, as requests and responses."""

import uuid
from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.context import RequestContext
from headwater.broker.groups.commits import Committer
from headwater.broker.groups.coordinator import GroupCoordinator
from headwater.broker.groups.offsets import CommittedOffset, TopicPartition
from headwater.broker.groups.ports import Topics
from headwater.broker.groups.records import NO_TIMESTAMP, OffsetValue
from headwater.broker.groups.refusals import Refusal, code_of
from headwater.broker.messages import Fields, milliseconds
from headwater.errors import HeadwaterError

FIRST_WITH_TOPIC_IDS = 10  # of OffsetCommit and OffsetFetch


async def offset_commit(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Commit offsets, as a member or as a consumer outside of group management."""
    committer = Committer(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
    )
    now_ms = groups.registry.now_ms()
    retention = getattr(request, "retention_time", None)  # only versions 2 to 4
    retention_ms = -1 if retention is None else milliseconds(retention)
    expire_ms = NO_TIMESTAMP if retention_ms == -1 else now_ms + retention_ms
    taken, answers = _sort_out(groups, request.topics, context.version, now_ms, expire_ms)
    if taken:
        _answer(answers, taken, await _outcome(groups.commits.commit(committer, context.version, taken)))
    return {"topics": _topics(request.topics, context.version, groups.topics, answers)}


async def txn_offset_commit(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Commit offsets in a producer's transaction."""
    committer = Committer(
        request.group_id,
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
    )
    producer = (request.producer_id, request.producer_epoch)
    taken, answers = _sort_out(groups, request.topics, 0, groups.registry.now_ms(), NO_TIMESTAMP)
    if taken:
        _answer(
            answers, taken, await _outcome(groups.commits.commit_transactional(committer, producer, taken))
        )
    return {"topics": _topics(request.topics, 0, groups.topics, answers)}


Answers = dict[TopicPartition, ErrorCode]


def _sort_out(
    groups: GroupCoordinator, topics: Iterable[Any], version: int, now_ms: int, expire_ms: int
) -> tuple[dict[TopicPartition, OffsetValue], Answers]:
    """What can be committed, and the answers for the rest."""
    taken: dict[TopicPartition, OffsetValue] = {}
    answers: Answers = {}
    limit = groups.settings.offset_metadata_max_bytes
    for topic in topics:
        name = _name(topic, version, groups.topics)
        count = groups.topics.partition_count(name) if name is not None else None
        for item in topic.partitions:
            if name is None or count is None or not 0 <= item.partition_index < count:
                if name is not None:
                    answers[name, item.partition_index] = ErrorCode.unknown_topic_or_partition
                continue
            metadata = item.committed_metadata or ""
            if len(metadata) > limit:
                answers[name, item.partition_index] = ErrorCode.offset_metadata_too_large
                continue
            taken[name, item.partition_index] = OffsetValue(
                item.committed_offset,
                getattr(item, "committed_leader_epoch", -1),
                metadata,
                now_ms,
                expire_ms,
                topic.topic_id if version >= FIRST_WITH_TOPIC_IDS else None,
            )
    return taken, answers


async def _outcome(commit: Any) -> ErrorCode:
    try:
        await commit
    except (Refusal, HeadwaterError) as error:
        return code_of(error)
    return ErrorCode.none


def _answer(answers: Answers, taken: Iterable[TopicPartition], code: ErrorCode) -> None:
    for partition in taken:
        answers.setdefault(partition, code)


def _topics(topics: Iterable[Any], version: int, known: Topics, answers: Answers) -> list[Fields]:
    """The answers in the order of the request."""
    listed: list[Fields] = []
    for topic in topics:
        name = _name(topic, version, known)
        partitions = [
            {
                "partition_index": item.partition_index,
                "error_code": ErrorCode.unknown_topic_id
                if name is None
                else answers.get((name, item.partition_index), ErrorCode.unknown_topic_or_partition),
            }
            for item in topic.partitions
        ]
        listed.append({**_named(topic, version), "partitions": partitions})
    return listed


def _name(topic: Any, version: int, known: Topics) -> str | None:
    if version < FIRST_WITH_TOPIC_IDS:
        return str(topic.name)
    return known.topic_name(topic.topic_id) if topic.topic_id is not None else None


def _named(topic: Any, version: int) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if version >= FIRST_WITH_TOPIC_IDS else {"name": topic.name}


# -- fetching --------------------------------------------------------------------------------------


async def offset_fetch(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Committed offsets: of one group up to version 7, of many from version 8 on."""
    require_stable = getattr(request, "require_stable", False)
    if context.version >= 8:
        fetched = [_fetch(groups, group, context.version, require_stable) for group in request.groups]
        return {
            "groups": [{"group_id": g.group_id, **f} for g, f in zip(request.groups, fetched, strict=True)]
        }
    return _fetch(groups, request, context.version, require_stable)


def _fetch(groups: GroupCoordinator, asked: Any, version: int, require_stable: bool) -> dict[str, Any]:
    names = [(topic, _name(topic, version, groups.topics)) for topic in asked.topics or ()]
    partitions = None
    if asked.topics is not None:
        partitions = [(n, index) for topic, n in names if n is not None for index in topic.partition_indexes]
    member_id, epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
    try:
        found = groups.commits.fetch(asked.group_id, member_id, epoch, partitions, require_stable)
    except Refusal as refusal:
        # Before version 2 there is no place for an error but in the partitions.
        lost = [
            {
                **_named(topic, version),
                "partitions": [_missing(i, refusal.code) for i in topic.partition_indexes],
            }
            for topic, _ in names
        ]
        return {"error_code": refusal.code, "topics": lost if version < 2 else []}
    if asked.topics is None:
        return {"topics": _all_topics(groups, found, version)}
    topics: list[Fields] = []
    for topic, name in names:
        if name is None:
            listed = [_missing(index, ErrorCode.unknown_topic_id) for index in topic.partition_indexes]
        else:
            listed = [_fetched(index, found[name, index]) for index in topic.partition_indexes]
        topics.append({**_named(topic, version), "partitions": listed})
    return {"topics": topics}


def _all_topics(
    groups: GroupCoordinator, found: dict[TopicPartition, CommittedOffset | ErrorCode | None], version: int
) -> list[Fields]:
    by_name: dict[str, list[Fields]] = {}
    for (name, index), offset in found.items():
        by_name.setdefault(name, []).append(_fetched(index, offset))
    listed: list[Fields] = []
    for name, partitions in by_name.items():
        topic_id: uuid.UUID | None = groups.topics.topic_id(name)
        if version < FIRST_WITH_TOPIC_IDS:
            listed.append({"name": name, "partitions": partitions})
        elif topic_id is not None:
            listed.append({"topic_id": topic_id, "partitions": partitions})
    return listed


def _fetched(index: int, offset: CommittedOffset | ErrorCode | None) -> Fields:
    if not isinstance(offset, CommittedOffset):
        return _missing(index, offset or ErrorCode.none)
    return {
        "partition_index": index,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
    }


def _missing(index: int, code: ErrorCode) -> Fields:
    return {
        "partition_index": index,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": code,
    }


# -- deleting --------------------------------------------------------------------------------------


async def offset_delete(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Delete committed offsets of topics that the group does not read."""
    answers: Answers = {}
    known: list[TopicPartition] = []
    for topic in request.topics:
        count = groups.topics.partition_count(topic.name)
        for item in topic.partitions:
            partition = (topic.name, item.partition_index)
            if count is None or not 0 <= item.partition_index < count:
                answers[partition] = ErrorCode.unknown_topic_or_partition
            else:
                known.append(partition)
    try:
        answers.update(await groups.commits.delete(request.group_id, known))
    except (Refusal, HeadwaterError) as error:
        return {"error_code": code_of(error)}
    by_name: dict[str, list[Fields]] = {}
    for (name, index), code in answers.items():
        by_name.setdefault(name, []).append({"partition_index": index, "error_code": code})
    return {"topics": [{"name": name, "partitions": listed} for name, listed in by_name.items()]}
