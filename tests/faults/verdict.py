"""What must be true of a log after its broker was killed again and again. Pure: facts in, faults out.

A fault is one sentence. An empty list means that the log is right. The tests of this module feed it wrong
results of every kind, so that the harness is known to be able to fail.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """A record: where it lies, and who sent it as what number."""

    partition: int
    offset: int
    sender: int
    sequence: int


Sent = Mapping[tuple[int, int], int]  # (sender, partition) -> how many records it sent there, from 0 on


def faults_of_log(log: Sequence[Entry], acknowledged: Iterable[Entry], sent: Sent) -> list[str]:
    """What is wrong with a log that idempotent producers wrote.

    ``log`` is in the order it was read. Each sender numbered its records per partition 0, 1, 2, ... and
    waited at its end until all were acknowledged.
    """
    faults = _holes(log)
    faults += _repeats(log)
    faults += _disorder(log)
    held = {(entry.partition, entry.offset): entry for entry in log}
    for ack in acknowledged:
        found = held.get((ack.partition, ack.offset))
        if found is None:
            faults.append(f"acknowledged and lost: {_say(ack)}")
        elif found != ack:
            faults.append(f"acknowledged {_say(ack)}, but the log holds {_say(found)}")
    count = Counter((entry.sender, entry.partition) for entry in log)
    for (sender, partition), records in sent.items():
        if count[sender, partition] != records:
            faults.append(
                f"sender {sender} sent {records} records to partition {partition}, "
                f"the log holds {count[sender, partition]}"
            )
    return faults


def faults_of_views(log: Iterable[Entry], seen: Iterable[Entry]) -> list[str]:
    """What a reader saw while the broker was being killed must be what the log holds in the end."""
    held = {(entry.partition, entry.offset): entry for entry in log}
    faults = []
    for entry in seen:
        found = held.get((entry.partition, entry.offset))
        if found is None:
            faults.append(f"a reader was given {_say(entry)}, which is gone")
        elif found != entry:
            faults.append(f"a reader was given {_say(entry)}, but the log holds {_say(found)}")
    return faults


def faults_of_output(output: Sequence[Entry], sent: Sent) -> list[str]:
    """What is wrong with the output of an exactly-once loop, read as committed.

    ``sequence`` of an output record is that of the input record it was made from, ``partition`` its
    partition. Offsets may have gaps, where markers and aborted records lie, but rise. ``sent`` is the input.
    """
    faults = _repeats(output)
    faults += _disorder(output)
    found = {(entry.sender, entry.partition, entry.sequence) for entry in output}
    for (sender, partition), records in sent.items():
        missing = [number for number in range(records) if (sender, partition, number) not in found]
        if missing:
            faults.append(
                f"{len(missing)} of {records} input records of sender {sender}, partition {partition} "
                f"have no output, the first is {missing[0]}"
            )
    expected = sum(sent.values())
    if len(found) > expected:
        faults.append(f"{len(found)} outputs of {expected} inputs")
    return faults


def faults_of_commits(history: Iterable[tuple[str, int, int]]) -> list[str]:
    """What is wrong with a history of one group's offsets, in the order in which it happened.

    ``("tried", partition, offset)``: a commit was sent; ``("committed", ...)``: it was acknowledged;
    ``("asked", ...)``: somebody asked for what is committed, and the answer was to be this (-1: none);
    ``("told", ...)``: that answer came. Commits may happen between a question and its answer.
    """
    tried: dict[int, int] = {}
    certain: dict[int, int] = defaultdict(lambda: -1)
    faults = []
    for event, partition, offset in history:
        if event == "tried":
            tried[partition] = max(offset, tried.get(partition, -1))
        elif event == "committed":
            certain[partition] = max(certain[partition], offset)
        elif event == "asked":
            if offset < certain[partition]:
                faults.append(
                    f"partition {partition} was committed at {certain[partition]} and is back at {offset}"
                )
        elif event == "told":
            if offset > tried.get(partition, -1):
                faults.append(f"partition {partition} is at {offset}, which nobody committed")
            else:
                certain[partition] = max(certain[partition], offset)  # once seen, it must not go back either
    return faults


def report(faults: Sequence[str]) -> str:
    """The first faults and their number, for an assertion's message."""
    return f"{len(faults)} faults:\n" + "\n".join(faults[:20])


def _holes(log: Sequence[Entry]) -> list[str]:
    expected: dict[int, int] = defaultdict(int)
    faults = []
    for entry in log:
        if entry.offset != expected[entry.partition]:
            faults.append(
                f"partition {entry.partition}: offset {entry.offset} follows {expected[entry.partition] - 1}"
            )
        expected[entry.partition] = entry.offset + 1
    return faults


def _repeats(log: Iterable[Entry]) -> list[str]:
    first: dict[tuple[int, int, int], Entry] = {}
    faults = []
    for entry in log:
        record = (entry.sender, entry.partition, entry.sequence)
        if record in first:
            faults.append(f"twice in the log: {_say(entry)}, first at offset {first[record].offset}")
        else:
            first[record] = entry
    return faults


def _disorder(log: Iterable[Entry]) -> list[str]:
    last: dict[tuple[int, int], Entry] = {}
    faults = []
    for entry in log:
        before = last.get((entry.sender, entry.partition))
        if before is None:
            if entry.sequence != 0:
                faults.append(f"the first record of its sender and partition is {_say(entry)}")
        elif entry.sequence != before.sequence + 1 or entry.offset <= before.offset:
            faults.append(f"{_say(entry)} follows {_say(before)}")
        last[entry.sender, entry.partition] = entry
    return faults


def _say(entry: Entry) -> str:
    return (
        f"record {entry.sequence} of sender {entry.sender} at partition {entry.partition} "
        f"offset {entry.offset}"
    )
