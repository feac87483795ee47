"""What a pipeline has left behind, against a recompute of its input by DuckDB: a list of what is wrong."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from headwater.views import open_store
from tests.faults.harness import read_messages
from tests.faults.streams.feed import TOPIC, is_dead, payment

Totals = dict[tuple[str, str], tuple[int, int, int]]  # by start of the window and account: n, total, last
Place = tuple[int, int]

_RECOMPUTE = """
    SELECT strftime(time_bucket(INTERVAL 30 seconds, CAST("at" AS TIMESTAMP)), '%Y-%m-%dT%H:%M:%S'), account,
           count(*), CAST(sum(amount) AS BIGINT), max(id)
    FROM read_json(?, columns = {id: 'BIGINT', account: 'VARCHAR', amount: 'BIGINT', "at": 'VARCHAR'})
    GROUP BY ALL
"""


class Verdict:
    """Reads everything once, when all is quiet; `faults` says what is wrong."""

    def __init__(self, bootstrap: str, store: str, sent: int, folder: Path) -> None:
        self.sent = sent
        self._folder = folder
        self.input = committed(bootstrap, TOPIC)
        self.checked = committed(bootstrap, "checked")
        self.dead = committed(bootstrap, f"{TOPIC}.dead")
        self.late = committed(bootstrap, "totals.late")
        self.late_of_topic = committed(bootstrap, "checked.late")
        self.changelog = committed(bootstrap, "ledger.totals")
        with open_store(store) as views:
            snapshot = views.snapshot("totals")
        self.rows: list[dict[str, Any]] = snapshot.rows
        self.last_change = snapshot.last_change

    def faults(self) -> list[str]:
        return [
            *self._faults_of_input(),
            *self._faults_of_topic(),
            *self._faults_of_late(),
            *self._faults_of_dead(),
            *self._faults_of_view(),
            *self._faults_of_changelog(),
        ]

    def _faults_of_input(self) -> list[str]:
        numbers = Counter(_number(message.value()) for message in self.input)
        return different("input", numbers, Counter(range(self.sent)))

    def _faults_of_topic(self) -> list[str]:
        rows = [json.loads(message.value()) for message in self.checked]
        right = Counter(number for number in range(self.sent) if not is_dead(number))
        faults = different("topic", Counter(row["id"] for row in rows), right)
        for message, row in zip(self.checked, rows, strict=True):
            source = payment(row["id"])
            wanted = {"id": row["id"], "account": source["account"], "twice": source["amount"] * 2}
            if row != wanted or message.key().decode() != source["account"]:
                faults.append(f"topic: {row} at {place_of(message)}, not {wanted}")
        order: dict[str, list[int]] = {}
        for message in sorted(self.checked, key=place_of):
            order.setdefault(message.key().decode(), []).append(_number(message.value()))
        return faults + [f"topic: {key} is out of order" for key, ids in order.items() if ids != sorted(ids)]

    def _faults_of_late(self) -> list[str]:
        twice = [each for each, count in Counter(map(origin, self.late)).items() if count > 1]
        faults = [f"late: {len(twice)} events twice, the first from {twice[0]}"] if twice else []
        if self.late_of_topic:
            faults.append(f"late: {len(self.late_of_topic)} events of a topic that leaves none out")
        return faults

    def _faults_of_dead(self) -> list[str]:
        right = Counter(place_of(message) for message in self.input if is_dead(_number(message.value())))
        return different("dead", Counter(map(origin, self.dead)), right)

    def _faults_of_view(self) -> list[str]:
        """What was left out as late is in the late topic; everything else is in the view."""
        late = {_number(message.value()) for message in self.late}
        numbers = [number for number in range(self.sent) if not is_dead(number) and number not in late]
        return different("view", self.view(), self.recompute(numbers))

    def _faults_of_changelog(self) -> list[str]:
        folded: dict[str, Any] = {}
        for message in sorted(self.changelog, key=place_of):
            folded[message.key().decode()] = message.value()
        rows = [json.loads(value) for value in folded.values() if value is not None]
        faults = different("changelog", totals(rows), self.view())
        if len(self.changelog) != self.last_change:
            faults.append(f"changelog: {len(self.changelog)} records for {self.last_change} changes")
        return faults

    def view(self) -> Totals:
        return totals(self.rows)

    def recompute(self, numbers: Sequence[int]) -> Totals:
        """The view of these payments, as a batch."""
        path = self._folder / "input.json"
        path.write_text("".join(json.dumps(payment(number)) + "\n" for number in numbers))
        rows = duckdb.execute(_RECOMPUTE, [str(path)]).fetchall()
        return {(start, account): (n, total, last) for start, account, n, total, last in rows}


def committed(bootstrap: str, topic: str) -> list[Any]:
    return read_messages(bootstrap, topic, "read_committed")


def totals(rows: Sequence[dict[str, Any]]) -> Totals:
    """Rows of the view, from the store or from its changelog."""
    found: Totals = {}
    for row in rows:
        start = row["window"]["start"]
        moment = start if isinstance(start, datetime) else datetime.fromisoformat(start)
        key = (moment.strftime("%Y-%m-%dT%H:%M:%S"), row["account"])
        assert key not in found, f"{key} is there twice"
        found[key] = (row["n"], row["total"], row["last"])
    return found


def different(what: str, found: Any, right: Any) -> list[str]:
    """What is wrong with some of what was found, in words."""
    if found == right:
        return []
    keys = [key for key in sorted({*found, *right}) if found.get(key) != right.get(key)]
    few = ", ".join(f"{key}: {found.get(key)} and not {right.get(key)}" for key in keys[:4])
    return [f"{what}: {len(keys)} of {len(right)} are wrong: {few}"]


def place_of(message: Any) -> Place:
    return message.partition(), message.offset()


def origin(message: Any) -> Place:
    """Where a record came from that was set aside."""
    headers = dict(message.headers())
    return int(headers["headwater.partition"]), int(headers["headwater.offset"])


def _number(value: bytes) -> int:
    text = value.decode()
    return int(text.removeprefix("{payment ")) if text.startswith("{payment") else int(json.loads(text)["id"])
