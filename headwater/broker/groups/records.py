"""What groups write to ``__consumer_offsets``: the keys and values that Apache Kafka 4.1 writes there.

A key is an int16 that names its type and the fields of its class below; a value is an int16 version and its
fields. A record without a value is a tombstone: it takes back what its key said. Kafka's own dump tool
(``--offsets-decoder``) reads these records, and Kafka's own records are read here, except those of share and
streams groups, which are passed over.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from headwater.broker.groups.wire import Malformed, Reader, Writer

Assignment: TypeAlias = Mapping[uuid.UUID, tuple[int, ...]]  # topic id -> partitions

NO_TIMESTAMP = -1

# -- keys ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Type 1 (0 in old logs): the position of a group in a partition."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Type 2: a group of the classic protocol."""

    group_id: str


@dataclass(frozen=True, slots=True)
class EpochKey:
    """Type 3: a group of the new protocol."""

    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionMetadataKey:
    """Type 4: written by Kafka 4.0 only; later versions delete it, and so does Headwater."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberKey:
    """Type 5: a member of a group of the new protocol and what it asked for."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    """Type 6: the group epoch that the target assignment was computed for."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetKey:
    """Type 7: the partitions that a member is to own."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentKey:
    """Type 8: the partitions that a member owns now."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RegexKey:
    """Type 16: the topics that a pattern of the group stands for."""

    group_id: str
    pattern: str


Key: TypeAlias = (
    OffsetKey
    | GroupKey
    | EpochKey
    | PartitionMetadataKey
    | MemberKey
    | TargetEpochKey
    | TargetKey
    | CurrentKey
    | RegexKey
)

# -- values ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """A committed position. With ``expire_ms``, which clients before 2.1 send, it is written as version 1."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_TIMESTAMP
    topic_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class GroupMemberValue:
    """A member of a classic group, in a ``GroupValue``."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A generation of a classic group."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[GroupMemberValue, ...]


@dataclass(frozen=True, slots=True)
class EpochValue:
    epoch: int
    metadata_hash: int = 0  # of the topics subscribed to; a different one means that the group must rebalance


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a member told that speaks the classic protocol in a group of the new one."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberValue:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True)
class TargetEpochValue:
    epoch: int


@dataclass(frozen=True, slots=True)
class TargetValue:
    assignment: Assignment


STABLE, UNREVOKED, UNRELEASED = 0, 1, 2  # the states of a member of the new protocol


@dataclass(frozen=True, slots=True)
class CurrentValue:
    member_epoch: int
    previous_epoch: int
    state: int
    assigned: Assignment
    revoking: Assignment  # no longer to be used by the member, which has not given them up yet


@dataclass(frozen=True, slots=True)
class RegexValue:
    topics: tuple[str, ...]
    version: int
    resolved_ms: int


Value: TypeAlias = (
    OffsetValue
    | GroupValue
    | EpochValue
    | MemberValue
    | TargetEpochValue
    | TargetValue
    | CurrentValue
    | RegexValue
)
Record: TypeAlias = tuple[Key, Value | None]

# -- encoding --------------------------------------------------------------------------------------

_GROUP_KEYS: dict[type[Key], int] = {GroupKey: 2, EpochKey: 3, PartitionMetadataKey: 4, TargetEpochKey: 6}
_MEMBER_KEYS: dict[type[Key], int] = {MemberKey: 5, TargetKey: 7, CurrentKey: 8}


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The record's bytes: key and value.

    >>> key, value = encode((OffsetKey("g", "t", 2), OffsetValue(5, -1, "m", 1000)))
    >>> key.hex(), value.hex()
    ('000100016700017400000002', '00040000000000000005ffffffff026d00000000000003e800')
    >>> encode((GroupKey("g"), None))
    (b'\\x00\\x02\\x00\\x01g', None)
    """
    key, value = record
    return encode_key(key), None if value is None else encode_value(value)


def encode_key(key: Key) -> bytes:
    writer = Writer(flexible=False)
    match key:
        case OffsetKey(group_id, topic, partition):
            writer.i16(1).string(group_id).string(topic).i32(partition)
        case RegexKey(group_id, pattern):
            writer.i16(16).string(group_id).string(pattern)
        case MemberKey() | TargetKey() | CurrentKey():
            writer.i16(_MEMBER_KEYS[type(key)]).string(key.group_id).string(key.member_id)
        case _:
            writer.i16(_GROUP_KEYS[type(key)]).string(key.group_id)
    return writer.done()


def encode_value(value: Value) -> bytes:
    match value:
        case OffsetValue():
            return _encode_offset(value)
        case GroupValue():
            return _encode_group(value)
    writer = Writer(flexible=True).i16(0)
    match value:
        case EpochValue(epoch, metadata_hash):
            hashed = _i64_bytes(metadata_hash)
            writer.i32(epoch).tags([(0, hashed)] if metadata_hash else [])
        case MemberValue():
            _write_member(writer, value)
        case TargetEpochValue(epoch):
            writer.i32(epoch).tags()
        case TargetValue(assignment):
            _write_assignment(writer, assignment)
            writer.tags()
        case CurrentValue(member_epoch, previous_epoch, state, assigned, revoking):
            writer.i32(member_epoch).i32(previous_epoch).i8(state)
            _write_assignment(writer, assigned)
            _write_assignment(writer, revoking)
            writer.tags()
        case RegexValue(topics, version, resolved_ms):
            writer.array(topics, Writer.string).i64(version).i64(resolved_ms).tags()
    return writer.done()


def _i64_bytes(value: int) -> bytes:
    return Writer(flexible=False).i64(value).done()


def _encode_offset(value: OffsetValue) -> bytes:
    if value.expire_ms != NO_TIMESTAMP:
        old = Writer(flexible=False).i16(1).i64(value.offset).string(value.metadata)
        return old.i64(value.commit_ms).i64(value.expire_ms).done()
    writer = Writer(flexible=True).i16(4).i64(value.offset).i32(value.leader_epoch)
    writer.string(value.metadata).i64(value.commit_ms)
    writer.tags([] if value.topic_id is None else [(0, value.topic_id.bytes)])
    return writer.done()


def _encode_group(value: GroupValue) -> bytes:
    writer = Writer(flexible=False).i16(3).string(value.protocol_type).i32(value.generation)
    writer.null_string(value.protocol).null_string(value.leader).i64(value.state_ms)
    return writer.array(value.members, _write_group_member).done()


def _write_group_member(writer: Writer, member: GroupMemberValue) -> None:
    writer.string(member.member_id).null_string(member.instance_id)
    writer.string(member.client_id).string(member.client_host)
    writer.i32(member.rebalance_timeout_ms).i32(member.session_timeout_ms)
    writer.data(member.subscription).data(member.assignment)


def _write_member(writer: Writer, value: MemberValue) -> None:
    writer.null_string(value.instance_id).null_string(value.rack_id)
    writer.string(value.client_id).string(value.client_host)
    writer.array(value.topics, Writer.string).null_string(value.pattern)
    writer.i32(value.rebalance_timeout_ms).null_string(value.assignor)
    # A nullable structure in a tag starts with 1, or is 0 alone when it is null; Kafka writes the null too.
    inner = Writer(flexible=True)
    if value.classic is None:
        inner.i8(0)
    else:
        inner.i8(1).i32(value.classic.session_timeout_ms)
        inner.array(value.classic.protocols, lambda w, p: w.string(p[0]).data(p[1]).tags()).tags()
    writer.tags([(0, inner.done())])


def _write_assignment(writer: Writer, assignment: Assignment) -> None:
    def write(writer: Writer, item: tuple[uuid.UUID, tuple[int, ...]]) -> None:
        writer.uuid(item[0]).array(item[1], Writer.i32).tags()

    writer.array(assignment.items(), write)


# -- decoding --------------------------------------------------------------------------------------


def decode(key: bytes, value: bytes | None) -> Record | None:
    """The record of these bytes; None when it is of a kind that Headwater does not keep.

    >>> decode(bytes.fromhex("0002000167"), None)
    (GroupKey(group_id='g'), None)
    >>> decode(bytes.fromhex("0009000167"), None) is None
    True
    """
    decoded = decode_key(key)
    if decoded is None or isinstance(decoded, PartitionMetadataKey):
        return None
    return decoded, None if value is None else _decode_value(decoded, value)


def decode_key(key: bytes) -> Key | None:
    reader = Reader(key)
    kind = reader.i16()
    match kind:
        case 0 | 1:
            return OffsetKey(reader.string(), reader.string(), reader.i32())
        case 16:
            return RegexKey(reader.string(), reader.string())
    for group_key, number in _GROUP_KEYS.items():
        if kind == number:
            return group_key(reader.string())  # type: ignore[call-arg]
    for member_key, number in _MEMBER_KEYS.items():
        if kind == number:
            return member_key(reader.string(), reader.string())  # type: ignore[call-arg]
    return None


def _decode_value(key: Key, value: bytes) -> Value:
    reader = Reader(value)
    version = reader.i16()
    match key:
        case OffsetKey():
            return _read_offset(reader, version)
        case GroupKey():
            return _read_group(reader, version)
    reader.flexible = True
    decoded, tagged = _read_body(reader, key), reader.tags()
    match decoded:
        case EpochValue(epoch):
            return EpochValue(epoch, Reader(tagged[0]).i64() if 0 in tagged else 0)
        case MemberValue() if tagged.get(0, b"")[:1] == b"\x01":
            inner = Reader(tagged[0][1:], flexible=True)
            classic = ClassicMetadata(inner.i32(), inner.array(_read_classic_protocol))
            return replace(decoded, classic=classic)
    return decoded


def _read_body(reader: Reader, key: Key) -> Value:
    match key:
        case EpochKey():
            return EpochValue(reader.i32())
        case MemberKey():
            return _read_member(reader)
        case TargetEpochKey():
            return TargetEpochValue(reader.i32())
        case TargetKey():
            return TargetValue(_read_assignment(reader))
        case CurrentKey():
            epoch, previous, state = reader.i32(), reader.i32(), reader.i8()
            return CurrentValue(epoch, previous, state, _read_assignment(reader), _read_assignment(reader))
        case RegexKey():
            return RegexValue(reader.array(Reader.string), reader.i64(), reader.i64())
    raise Malformed(f"no value is known for {key}")


def _read_offset(reader: Reader, version: int) -> OffsetValue:
    if not 0 <= version <= 4:
        raise Malformed(f"an offset of version {version}")
    reader.flexible = version >= 4
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else -1
    metadata, commit_ms = reader.string(), reader.i64()
    expire_ms = reader.i64() if version == 1 else NO_TIMESTAMP
    topic_id = reader.tags().get(0)
    named = uuid.UUID(bytes=topic_id) if topic_id is not None and len(topic_id) == 16 else None
    return OffsetValue(offset, leader_epoch, metadata, commit_ms, expire_ms, named)


def _read_group(reader: Reader, version: int) -> GroupValue:
    if not 0 <= version <= 4:
        raise Malformed(f"a group of version {version}")
    reader.flexible = version >= 4
    protocol_type, generation = reader.string(), reader.i32()
    protocol, leader = reader.null_string(), reader.null_string()
    state_ms = reader.i64() if version >= 2 else NO_TIMESTAMP

    def member(reader: Reader) -> GroupMemberValue:
        member_id = reader.string()
        instance_id = reader.null_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance = reader.i32() if version >= 1 else None
        session = reader.i32()
        subscription, assignment = reader.data(), reader.data()
        reader.tags()
        return GroupMemberValue(
            member_id, instance_id, client_id, client_host,
            session if rebalance is None else rebalance, session, subscription, assignment,
        )  # fmt: skip

    members = reader.array(member)
    reader.tags()
    return GroupValue(protocol_type, generation, protocol, leader, state_ms, members)


def _read_member(reader: Reader) -> MemberValue:
    instance_id, rack_id = reader.null_string(), reader.null_string()
    client_id, client_host = reader.string(), reader.string()
    topics, pattern = reader.array(Reader.string), reader.null_string()
    rebalance_timeout_ms, assignor = reader.i32(), reader.null_string()
    return MemberValue(
        instance_id, rack_id, client_id, client_host, topics, pattern, rebalance_timeout_ms, assignor
    )


def _read_classic_protocol(reader: Reader) -> tuple[str, bytes]:
    name, metadata = reader.string(), reader.data()
    reader.tags()
    return name, metadata


def _read_assignment(reader: Reader) -> dict[uuid.UUID, tuple[int, ...]]:
    def topic(reader: Reader) -> tuple[uuid.UUID, tuple[int, ...]]:
        topic_id, partitions = reader.uuid(), reader.array(Reader.i32)
        reader.tags()
        return topic_id, partitions

    return dict(reader.array(topic))
