"""Runs a workload through the real Debezium and keeps what it said. ``make conformance-cdc``.

``python -m tests.connect.debezium.record postgres mariadb`` writes the transcripts anew.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.connect.debezium import mariadb_workload, postgres_workload
from tests.connect.debezium.databases import NAME, Database, database
from tests.connect.debezium.form import comparable
from tests.connect.debezium.topics import Event, Transcript, snapshot_rows, wait_for
from tests.connect.debezium.workload import END, Workload
from tests.support.debezium import VERSION, Debezium, mariadb_connector, postgres_connector
from tests.support.servers import Headwater

FOLDER = Path(__file__).parent
WORKLOADS = {"postgres": postgres_workload.workload, "mariadb": mariadb_workload.workload}


def debezium(made: Database, broker: str) -> Debezium:
    """Debezium for a database, with everything it can say switched on."""
    if made.kind == "postgres":
        connector = postgres_connector(made.port, NAME, publication__autocreate__mode="all_tables")
    else:
        connector = mariadb_connector(made.port, NAME, broker)
    return Debezium(
        broker,
        {**connector, "skipped.operations": "none", "provide.transaction.metadata": "true"},
        heap=["-Xmx512m"],
    )


def recorded(kind: str) -> Transcript:
    """What Debezium said to the workload, as it is kept."""
    kept = json.loads((FOLDER / f"{kind}.json").read_text())
    return dict(kept["topics"])


def record(kind: str) -> Transcript:
    """Run the workload through Debezium alone."""
    workload = WORKLOADS[kind]()
    with (
        Headwater() as broker,
        database(kind, workload) as made,
        debezium(made, broker.bootstrap) as connector,
    ):
        connector.check()
        rows = made.rows()
        wait_for(broker.bootstrap, is_ours, lambda found: snapshot_rows(found) >= rows, connector.check)
        return stream(workload, made, broker.bootstrap, connector.check)


def stream(workload: Workload, made: Database, broker: str, check: Callable[[], None]) -> Transcript:
    """Run what comes after the snapshot; the topics when its end is there."""
    for transaction in workload.stream:
        made.run(transaction)
    return wait_for(broker, is_ours, ended, check)


def is_ours(topic: str) -> bool:
    return topic.startswith(f"{NAME}.")


def ended(found: Mapping[str, list[Event]]) -> bool:
    """Whether the last row of the workload is there, and the end of its transaction."""
    last = [events for topic, events in found.items() if topic.endswith(f".{END}")]
    whole = [event for event in found.get(f"{NAME}.transaction", []) if event["value"]["status"] == "END"]
    if not last or len(last[0]) < 2 or not whole:
        return False
    return any(END in one["data_collection"] for one in whole[-1]["value"]["data_collections"] or [])


def keep(kind: str, found: Transcript) -> None:
    """Write a transcript, one record a line, so that a difference can be read."""
    lines = []
    for topic in sorted(found):
        events = ",\n".join(f"   {json.dumps(event, ensure_ascii=False)}" for event in found[topic])
        lines.append(f"  {json.dumps(topic)}: [\n{events}\n  ]")
    text = ",\n".join(lines)
    (FOLDER / f"{kind}.json").write_text(f'{{\n "debezium": "{VERSION}",\n "topics": {{\n{text}\n }}\n}}\n')


def main(kinds: list[str]) -> None:
    for kind in kinds or list(WORKLOADS):
        found = comparable(kind, record(kind))
        keep(kind, found)
        print(f"{kind}: {sum(map(len, found.values()))} records in {len(found)} topics")


if __name__ == "__main__":
    main(sys.argv[1:])
