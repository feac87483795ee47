"""One workload through Debezium and through ours gives the same records, but for what Debezium loses.

Debezium's side is what was recorded; with ``HEADWATER_DEBEZIUM=run`` (``make conformance-cdc``) the real one reads
the same server at the same time, so that positions and moments are compared as well, and the recording is checked.
"""

import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.connect.debezium.databases import NAME, database
from tests.connect.debezium.form import comparable
from tests.connect.debezium.losses import LOSSES, UNCAPTURED, corrected
from tests.connect.debezium.ours import Ours
from tests.connect.debezium.record import WORKLOADS, debezium, ended, is_ours, recorded
from tests.connect.debezium.topics import Event, Transcript, snapshot_rows, wait_for
from tests.support.servers import Headwater

LIVE = os.environ.get("HEADWATER_DEBEZIUM") == "run"


@pytest.mark.parametrize("kind", list(WORKLOADS))
def test_the_same_records_as_debezium(kind: str, tmp_path: Path) -> None:
    workload = WORKLOADS[kind]()
    with ExitStack() as stack:
        made = stack.enter_context(database(kind, workload))
        rows = made.rows()
        sides = []
        if LIVE:
            broker = stack.enter_context(Headwater()).bootstrap
            sides.append((broker, stack.enter_context(debezium(made, broker)).check))
        broker = stack.enter_context(Headwater()).bootstrap
        sides.append((broker, stack.enter_context(Ours(made, broker, tmp_path)).check))
        captured = rows - sum(UNCAPTURED[kind].values())
        for broker, check in sides:
            wait_for(broker, is_ours, lambda found: snapshot_rows(found) >= captured, check)
        for transaction in workload.stream:
            made.run(transaction)
        found = [wait_for(broker, is_ours, ended, check) for broker, check in sides]
    found[-1].pop("shop.schema")  # Debezium's schema changes are of another form
    ours = comparable(kind, found[-1], places=LIVE)
    if LIVE:
        leave_out_messages(found[0])
        changed = differences(recorded(kind), comparable(kind, found[0]))
        assert not changed, "Debezium says other things than were recorded:\n" + "\n".join(changed[:30])
        theirs = comparable(kind, found[0], places=True)
    else:
        theirs = recorded(kind)
    expected = corrected(kind, theirs, workload.columns)
    for table in UNCAPTURED[kind]:
        ours.pop(f"shop.{table}", None)
    if LIVE and kind == "postgres":
        look_past_uncaptured(expected, ours)
    difference = differences(expected, ours)
    assert not difference, f"{len(difference)} differences from Debezium:\n" + "\n".join(difference[:60])


# The first changes after transactions of tables that ours does not capture: the commit before is another one to it.
AFTER_UNCAPTURED = ("keyless_full", "emptied", "emptied_too")


def look_past_uncaptured(expected: Transcript, ours: Transcript) -> None:
    """Take Debezium's commit before a change for ours, where ours is an older one, after what ours does not see."""
    for table in AFTER_UNCAPTURED:
        for their, our in zip(expected[f"{NAME}.{table}"], ours[f"{NAME}.{table}"], strict=True):
            if "sequence" in our.get("source", {}) and our["source"]["lsn"] == their["source"]["lsn"]:
                before = [int(json.loads(one["source"]["sequence"])[0]) for one in (our, their)]
                if before[0] < before[1]:
                    our["source"]["sequence"] = their["source"]["sequence"]


def leave_out_messages(theirs: Transcript) -> None:
    """Ours writes messages into PostgreSQL's log while it reads tables, and Debezium passes them on."""
    if theirs.pop(f"{NAME}.message", None) is None:
        return
    boundaries = theirs[f"{NAME}.transaction"]
    kept: list[Event] = []
    for event in boundaries:
        kept.append(event)
        collections = event["value"]["data_collections"] or []
        schemas = {str(one["data_collection"]).partition(".")[0] for one in collections}
        if event["value"]["status"] == "END" and not schemas & {"public", "other"}:
            del kept[-2:]
    theirs[f"{NAME}.transaction"] = kept


def differences(expected: Transcript, ours: Transcript) -> list[str]:
    """Lines for people; none when both are the same, the order of columns included."""
    lines = []
    for topic in sorted({**expected, **ours}):
        theirs, own = expected.get(topic, []), ours.get(topic, [])
        if len(theirs) != len(own):
            lines.append(f"{topic}: {len(theirs)} records of Debezium, {len(own)} of ours")
        for number, (their, our) in enumerate(zip(theirs, own, strict=False)):
            wrong = [name for name in {**their, **our} if _text(their.get(name)) != _text(our.get(name))]
            lines += [
                f"{topic} {number} {our.get('op', '')} {our.get('key')} {name}:\n"
                f"    Debezium {_text(their.get(name))}\n    ours     {_text(our.get(name))}"
                for name in wrong
            ]
    return lines


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("kind", list(WORKLOADS))
def test_what_is_called_lost_is_lost(kind: str) -> None:
    """Every column among the losses differs in what Debezium said; else it does not belong there."""
    workload = WORKLOADS[kind]()
    said = recorded(kind)
    right = corrected(kind, said, workload.columns)
    for table, columns in LOSSES[kind].items():
        pairs = list(zip(said[f"shop.{table}"], right[f"shop.{table}"], strict=True))
        for column in columns:
            assert any(
                (their.get("after") or {}).get(column) != (our.get("after") or {}).get(column)
                for their, our in pairs
            ), f"{table}.{column} is not lost"
