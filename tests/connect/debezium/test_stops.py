"""What stops Debezium does not stop ours. With ``HEADWATER_DEBEZIUM=run`` Debezium is shown to stop, too."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.connect.debezium.databases import Database, MariaDatabase, PostgresDatabase, database
from tests.connect.debezium.ours import Ours
from tests.connect.debezium.record import debezium, is_ours
from tests.connect.debezium.topics import Event, wait_for
from tests.connect.debezium.workload import Workload
from tests.support.servers import Headwater

LIVE = os.environ.get("HEADWATER_DEBEZIUM") == "run"
MANY = 30_000  # rows, so that there is time to do something while they are read


@dataclass
class Case:
    """A table `troubled` whose rows or statements stop Debezium."""

    kind: str
    setup: list[str]
    stream: list[str]
    rows: dict[int, dict[str, Any]] = field(
        default_factory=dict
    )  # some of what the topic has in the end, by id
    count: int | None = None  # how many rows there are in the end


def _many(kind: str) -> list[str]:
    series = f"generate_series(1, {MANY}) seq" if kind == "postgres" else f"seq_1_to_{MANY}"
    return [
        "create table troubled (id int primary key, n int)",
        f"insert into troubled select seq, seq from {series}",
    ]


CASES = {
    "postgres: ALTER TABLE while it is read": Case(
        "postgres",
        _many("postgres"),
        ["alter table troubled add column more int default 7", "insert into troubled values (0, 0, 0)"],
        {0: {"id": 0, "n": 0, "more": 0}, MANY: {"id": MANY, "n": MANY, "more": 7}},
        count=MANY + 1,
    ),
    "postgres: an offset with seconds": Case(
        "postgres",
        [
            "create table troubled (id int primary key, at timetz)",
            "insert into troubled values (1, '10:00:00-15:59:59')",
        ],
        ["insert into troubled values (2, '10:00:00.5+01:02:03')"],
        {1: {"id": 1, "at": "01:59:59Z"}, 2: {"id": 2, "at": "08:57:57.5Z"}},
    ),
    "mariadb: TRUNCATE while it is read": Case(
        "mariadb",
        _many("mariadb"),
        ["truncate troubled", "insert into troubled values (0, 0)"],
        {0: {"id": 0, "n": 0}},
        count=1,
    ),
    "mariadb: ALTER TABLE while it is read": Case(
        "mariadb",
        _many("mariadb"),
        ["alter table troubled add column more int default 7", "insert into troubled values (0, 0, 0)"],
        {0: {"id": 0, "n": 0, "more": 0}},
        count=MANY + 1,
    ),
    "mariadb: inet4 and inet6": Case(
        "mariadb",
        [
            "create table troubled (id int primary key, four inet4, six inet6)",
            "insert into troubled values (1, '10.0.0.1', '2001:db8::1')",
        ],
        ["insert into troubled values (2, '255.0.0.1', '::ffff:1.2.3.4')"],
        {
            1: {"id": 1, "four": "10.0.0.1", "six": "2001:db8::1"},
            2: {"id": 2, "four": "255.0.0.1", "six": "::ffff:1.2.3.4"},
        },
    ),
    "mariadb: COMPRESSED columns": Case(
        "mariadb",
        [
            "create table troubled (id int primary key, long_text text compressed, raw varbinary(500) compressed)",
            "insert into troubled values (1, repeat('x', 300), 'short')",
        ],
        ["insert into troubled values (2, repeat('y', 300), repeat('z', 200))"],
        {
            1: {"id": 1, "long_text": "x" * 300, "raw": "c2hvcnQ="},
            2: {"id": 2, "long_text": "y" * 300, "raw": "enp6" * 66 + "eno="},
        },
    ),
    "mariadb: a system-versioned table": Case(
        "mariadb",
        [
            "create table troubled (id int primary key, n int) with system versioning",
            "insert into troubled values (1, 1), (3, 3)",
        ],
        ["update troubled set n = 2 where id = 1", "delete from troubled where id = 3"],
        {1: {"id": 1, "n": 2}},
        count=1,
    ),
    "mariadb: the year 0": Case(
        "mariadb",
        [
            "create table troubled (id int primary key, day date, at datetime)",
            "insert into troubled values (1, '0000-01-01', '0000-12-31 00:00:00')",
        ],
        ["insert into troubled values (2, '0000-01-01', '0000-12-31 00:00:00')"],
        {
            1: {"id": 1, "day": -719528, "at": -62135683200000},
            2: {"id": 2, "day": -719528, "at": -62135683200000},
        },
    ),
}
# The year 0 and ALTER TABLE stop Debezium by chance, when a snapshot happens to meet them in the wrong moment.
SURELY = ("offset", "inet", "COMPRESSED", "versioned")
SEEN_TO_STOP = [name for name in CASES if any(word in name for word in SURELY)]


@pytest.mark.parametrize(
    "number, name",
    [
        pytest.param(number, name, marks=pytest.mark.wide if "while it is read" in name and number else ())
        for number, name in enumerate(CASES)  # a snapshot takes long; one is enough
    ],
)
def test_ours_goes_on(
    number: int, name: str, request: pytest.FixtureRequest, headwater: Headwater, tmp_path: Path
) -> None:
    case = CASES[name]
    made: Database
    trouble = f"trouble{number}"
    if case.kind == "postgres":
        made = PostgresDatabase(request.getfixturevalue("postgres"), trouble)
    else:
        made = MariaDatabase(request.getfixturevalue("mariadb"), trouble)
    for statement in case.setup:
        made.run([statement])
    topic = f"{trouble}.troubled"

    def done(found: Mapping[str, list[Event]]) -> bool:
        rows = rebuilt(found.get(topic, []))
        count = len(rows) if case.count is None else case.count
        return len(rows) == count and all(rows.get(number) == row for number, row in case.rows.items())

    with Ours(made, headwater.bootstrap, tmp_path, chunk_rows=500) as ours:
        wait_for(headwater.bootstrap, topic.__eq__, lambda found: bool(found.get(topic)), ours.check)
        for statement in case.stream:
            made.run([statement])
        wait_for(headwater.bootstrap, topic.__eq__, done, ours.check)


def rebuilt(events: list[Event]) -> dict[int, dict[str, Any]]:
    """The rows that a reader of the topic has, by id."""
    rows: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["key"] is not None:
            if event["value"] is None or event["value"]["after"] is None:
                rows.pop(event["key"]["id"], None)
            else:
                rows[event["key"]["id"]] = event["value"]["after"]
    return rows


def wait_or_stop(broker: str, failure: Any) -> None:
    """Until there is a record of the table, or the connector has stopped."""

    def there(found: Mapping[str, list[Event]]) -> bool:
        return any(topic.endswith(".troubled") for topic in found) or failure() is not None

    wait_for(broker, is_ours, there, lambda: None)


if LIVE:

    @pytest.mark.parametrize("name", SEEN_TO_STOP)
    def test_debezium_stops(name: str) -> None:
        case = CASES[name]
        with ExitStack() as stack:
            made = stack.enter_context(database(case.kind, Workload(setup=case.setup)))
            broker = stack.enter_context(Headwater()).bootstrap
            connector = stack.enter_context(debezium(made, broker))
            if connector.failure() is None:
                wait_or_stop(broker, connector.failure)
                for statement in case.stream:
                    made.run([statement])
            connector.wait_failed(60)
