"""Transactions in bytes: what a consumer makes of a Fetch answer, and what a crash leaves in the log."""

from typing import Any

from headwater.broker.journal import TRANSACTIONS_TOPIC
from headwater.broker.transactions.markers import append_marker
from headwater.broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from headwater.broker.transactions.transitions import decided
from headwater.log.batch import read_header, split
from headwater.log.directory import DataDirectory
from headwater.log.partition import now_ms
from headwater.log.records import build_batch, read_control, read_records
from tests.broker.wire_client import Answer
from tests.support.servers import Headwater


def batches(content: bytes | None) -> list[tuple[Any, bytes]]:
    content = content or b""
    return [(header, content[position : position + header.size]) for position, header in split(content)]


def committed_values(found: Answer, start: int) -> list[tuple[int, str]]:
    """What a consumer makes of a read_committed answer, by its aborted transactions and the markers."""
    waiting = sorted((a["first_offset"], a["producer_id"]) for a in found["aborted_transactions"] or ())
    aborting: set[int] = set()
    seen: list[tuple[int, str]] = []
    for header, content in batches(found["records"]):
        while waiting and waiting[0][0] <= header.last_offset:
            aborting.add(waiting.pop(0)[1])
        if header.is_control:
            control = read_control(content)
            assert control is not None
            if not control.committed:
                aborting.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in aborting:
            continue
        seen += [
            (record.offset, (record.value or b"").decode())
            for record in read_records(content)
            if record.offset >= start
        ]
    return seen


def write_decision(server: Headwater, name: str, commit: bool, raises_epoch: bool, marked: int) -> None:
    """Write into a stopped broker's log what it writes before and while it ends a transaction."""
    directory = DataDirectory(server.data)
    journal = directory.topics[TRANSACTIONS_TOPIC].partitions[0]
    states = {}
    offset = journal.start_offset
    while (chunk := journal.read(offset, 1 << 20, journal.durable_offset)) is not None:
        for _, content in batches(bytes(chunk.data)):
            for record in read_records(content):
                assert record.key is not None
                if record.value is not None:
                    states[decode_key(record.key)] = decode_value(record.value)
        offset = chunk.next_offset
    state = decided(states[name], commit, raises_epoch, now_ms())
    decision = build_batch([(encode_key(name), encode_value(state), (), now_ms())])
    journal.append(decision, read_header(decision), now_ms())
    for topic, partition in sorted(state.partitions)[:marked]:
        log = directory.topics[topic].partitions[partition]
        append_marker(log, state.producer_id, state.epoch, 0, commit)
    directory.close()
