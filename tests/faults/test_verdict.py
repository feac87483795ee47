"""The harness can fail: every kind of wrong result is found."""

from tests.faults.verdict import (
    Entry,
    faults_of_commits,
    faults_of_log,
    faults_of_output,
    faults_of_views,
)

# Two senders in partition 0, one in partition 1.
LOG = [
    Entry(0, 0, 1, 0),
    Entry(0, 1, 2, 0),
    Entry(0, 2, 1, 1),
    Entry(0, 3, 1, 2),
    Entry(1, 0, 1, 0),
    Entry(1, 1, 1, 1),
]
SENT = {(1, 0): 3, (2, 0): 1, (1, 1): 2}


def test_a_right_log_has_no_faults() -> None:
    assert faults_of_log(LOG, LOG, SENT) == []
    assert faults_of_views(LOG, LOG[2:]) == []


def test_an_acknowledged_record_that_is_missing_is_found() -> None:
    faults = faults_of_log(LOG[:-1], LOG, SENT)
    assert "acknowledged and lost: record 1 of sender 1 at partition 1 offset 1" in faults
    assert "sender 1 sent 2 records to partition 1, the log holds 1" in faults


def test_a_record_lost_without_an_acknowledgement_is_found() -> None:
    assert faults_of_log(LOG[:-1], LOG[:-1], SENT) == [
        "sender 1 sent 2 records to partition 1, the log holds 1"
    ]


def test_a_duplicate_is_found() -> None:
    doubled = [*LOG, Entry(1, 2, 1, 1)]
    faults = faults_of_log(doubled, LOG, SENT)
    assert any(fault.startswith("twice in the log: record 1 of sender 1") for fault in faults)


def test_a_hole_in_the_offsets_is_found() -> None:
    moved = [*LOG[:-1], Entry(1, 2, 1, 1)]
    assert "partition 1: offset 2 follows 0" in faults_of_log(moved, [], SENT)


def test_a_log_that_does_not_begin_at_zero_is_found() -> None:
    assert "partition 0: offset 1 follows -1" in faults_of_log(LOG[1:], [], SENT)


def test_records_out_of_order_are_found() -> None:
    swapped = [*LOG[:2], Entry(0, 2, 1, 2), Entry(0, 3, 1, 1), *LOG[4:]]
    faults = faults_of_log(swapped, [], SENT)
    assert "record 2 of sender 1 at partition 0 offset 2 follows " in faults[0]


def test_another_record_in_the_place_of_an_acknowledged_one_is_found() -> None:
    acknowledged = [Entry(0, 1, 1, 1)]
    [fault] = faults_of_log(LOG, acknowledged, SENT)
    assert fault.endswith("but the log holds record 0 of sender 2 at partition 0 offset 1")


def test_a_record_that_a_reader_saw_and_that_vanished_is_found() -> None:
    assert len(faults_of_views(LOG, [Entry(0, 9, 1, 3)])) == 1
    assert len(faults_of_views(LOG, [Entry(0, 3, 2, 1)])) == 1


def test_output_exactly_once_may_have_gaps_between_offsets_only() -> None:
    spread = [Entry(entry.partition, entry.offset * 3 + 1, entry.sender, entry.sequence) for entry in LOG]
    assert faults_of_output(spread, SENT) == []
    assert len(faults_of_output(spread[:-1], SENT)) == 1
    assert any("twice" in fault for fault in faults_of_output([*spread, Entry(1, 99, 1, 1)], SENT))
    assert any("follows" in fault for fault in faults_of_output([*spread[:4], spread[5], spread[4]], SENT))


def test_an_output_nobody_sent_is_found() -> None:
    assert "7 outputs of 6 inputs" in faults_of_output([*LOG, Entry(1, 2, 1, 2)], SENT)


def told(partition: int, offset: int) -> list[tuple[str, int, int]]:
    return [("asked", partition, offset), ("told", partition, offset)]


def test_commits_may_rise_and_be_unknown_but_not_go_back() -> None:
    fine = [
        *told(0, -1),
        ("tried", 0, 5),
        ("committed", 0, 5),
        *told(0, 5),
        ("tried", 0, 9),  # its acknowledgement was lost with the broker
        *told(0, 9),
        *told(1, -1),
        ("tried", 0, 12),
        *told(0, 9),
        ("asked", 0, 9),
        ("committed", 0, 12),
        ("told", 0, 9),
    ]
    assert faults_of_commits(fine) == []
    assert faults_of_commits([*fine, *told(0, 9)]) == ["partition 0 was committed at 12 and is back at 9"]
    assert faults_of_commits([*fine, *told(0, -1)]) == ["partition 0 was committed at 12 and is back at -1"]
    assert faults_of_commits([*fine, *told(0, 40)]) == ["partition 0 is at 40, which nobody committed"]
