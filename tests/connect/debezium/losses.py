"""What Debezium loses, and what ours has instead: applied to Debezium's records before they are compared.

A loss is a column of a table whose name begins with ``lost_``, with the value that ours has for each of the literals
in the workload, before and after the snapshot alike. A column that Debezium does not have at all is put in its place.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.connect.debezium.databases import NAME
from tests.connect.debezium.topics import Event, Transcript
from tests.connect.debezium.workload import STREAM_IDS, Columns

# table -> column -> the values that ours has, in the order of the literals
Losses = Mapping[str, Mapping[str, Sequence[Any]]]

POSTGRES: Losses = {
    "lost_numbers": {
        "free": ["NaN", "Infinity", "-Infinity"],
        "exact": ["NaN"],
        "cash": ["f/////////8=", "3////////w=="],
        "span": [
            "P0Y1M0DT0H0M0S",
            "P1Y2M3DT4H5M6.789S",
            "P170000000Y0M0DT0H0M0S",
            "P0Y0M1DT2H3M4.5S",
            "P0Y0M0DT0H0M0S",
            "P0Y0M0DT-3H0M0S",
        ],
    },
    "lost_times": {
        # 1582-10-04 of the Gregorian calendar, which PostgreSQL has for all of time.
        "day": [-141438, -719162, -735160, 2147483647, -2147483648],
        "stamp6": [
            -12220200000000000,
            -62135596800000000,
            -63517824000000000,
            9223372036825200000,
            -9223372036832400000,
        ],
        "stamp3": [-12220200000000, -62135596800000, -63517824000000, 9223372036825200, -9223372036832400],
        "zoned": [
            "1582-10-04T12:00:00.000000Z",
            "0001-01-01T00:00:00.000000Z",
            "-0043-03-15T00:00:00.000000Z",
            "infinity",
            "-infinity",
        ],
    },
    "lost_arrays": {
        "times": [[47655123456, 86400000000]],
        "grid": [[[1, 2], [3, 4]]],
        "word_grid": [[["a", "b"], ["c", None]]],
        "feelings": [["sad", None]],
        "spans": [["P0Y0M1DT0H0M0S", "P0Y0M0DT2H0M0S"]],
        "cash": [["AJY=", "AMg="]],
        "places": [[{"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None}]],
        "labels": [["a", "b"]],
        "bits": [["101"]],
    },
    "lost_kinds": {
        "composed": [{"x": 1, "y": "a b"}],
        "many": ["{[1,3),[5,8)}"],
        "query": ["'fat' & 'cat'"],
        "place": ["16/B374D848"],
        "area": ["(2,2),(1,1)"],
        "round": ["<(1,2),3>"],
        "way": ["[(1,2),(3,4)]"],
        "named": ["a_name"],
        "bits": ["0001", "1", "0000000011", ""],
        "zeros": ["AAA=", "AQA="],
    },
}

MARIADB: Losses = {
    "lost_numbers": {
        "large_unsigned": [18446744073709551615, 9223372036854775808],
        "single": [0.1, 16777216.0, 3.4028235e38, 1234567.9],
    },
    "lost_texts": {
        "unique_id": ["123e4567-e89b-12d3-a456-426614174000", "ffffffff-ffff-ffff-ffff-ffffffff0000"],
        "size": ["a,b", "c"],
    },
    "lost_times": {
        "day": [-141438, -701265, None, None],
        "day_required": [-141438, -701265, None, None],
        "stamp0": [-12220200000000, -60589296000000, None],
        "zoned0": ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z", None],
    },
}

_NAMES = ("name", "db", "schema", "table")
LOSSES = {"postgres": POSTGRES, "mariadb": MARIADB}


# Tables of which ours has no changes, and the rows they have in the beginning. Published without a replica identity,
# as Debezium does it, PostgreSQL would refuse to update `keyless`; `newcomer` is made later, and read when it is seen.
UNCAPTURED: Mapping[str, Mapping[str, int]] = {"postgres": {"keyless": 3, "newcomer": 0}, "mariadb": {}}


def corrected(kind: str, said: Transcript, columns: Mapping[str, Columns]) -> Transcript:
    """Debezium's records with what it lost put back; `columns` are those of the workload's tables."""
    made = copy.deepcopy(said)
    for table in UNCAPTURED[kind]:
        made.pop(f"{NAME}.{table}")
    made[f"{NAME}.transaction"] = _without(made[f"{NAME}.transaction"], UNCAPTURED[kind])
    for table, of_table in LOSSES[kind].items():
        for event in made[f"{NAME}.{table}"]:
            _put_back(event, of_table, columns[table], before=kind == "mariadb")
    for events in made.values():
        _empty(events, keep=kind == "postgres")
    for event in made[f"{NAME}.stamped_key"]:
        for key in event["headers"].values():
            key["amount"] = event["key"]["amount"]  # 1.5: headers have another converter than keys
    if kind == "mariadb":
        _follow_ddl(made)
    _leave_nulls(made[f"{NAME}.lost_defaults"], kind)
    if kind == "postgres":
        _name_columns(made[f"{NAME}.lost_names"])
        _fill_long_values(made[f"{NAME}.long_values"])
        for event in made[f"{NAME}.evolving"]:
            if event.get("op") == "d":
                event["before"]["c"] = None  # which has a default
        _key_by_identity(made[f"{NAME}.index_identity"])
    return made


def _key_by_identity(events: list[Event]) -> None:
    """Where the replica identity is not the primary key, PostgreSQL does not say which row was deleted by its primary
    key: Debezium deletes the row 0. Ours has the identity for a key."""
    codes = {1: "aa", 0: "a"}
    for number, event in enumerate(events):
        row = event.get("after") or event.get("before") or events[number - 1]["before"]
        event["key"] = {"code": row["code"]}
        event["headers"] = {name: {"code": codes[key["id"]]} for name, key in event["headers"].items()}
        if event.get("before"):
            event["before"]["id"] = None


def _follow_ddl(made: Transcript) -> None:
    """Debezium leaves rows in topics of tables that were dropped or renamed, and under keys that were dropped."""
    evolving = made[f"{NAME}.evolving"]
    at = next(number for number, event in enumerate(evolving) if "a" in event["key"])
    gone = [one for n in (1, 2, 4, 5) for one in _deleted(evolving[at], {"id": n}, ["id", "a", "c"])]
    evolving[at:at] = gone
    dropped = made[f"{NAME}.newcomer"]
    dropped[2:2] = _deleted(dropped[0], {"id": 1}, ["id", "name"])
    renamed = made[f"{NAME}.renamed_before"]
    renamed += _deleted(renamed[0], {"id": 1}, ["id", "name"])
    for event in made[f"{NAME}.times"]:
        if event.get("op") == "r" and event["key"] == {"id": 2}:  # whose fractions end in zeros
            event["after"] |= {"zoned3": "2024-02-29T13:14:15.120Z", "zoned6": "2024-07-01T00:00:00.000000Z"}


def _empty(events: list[Event], keep: bool) -> None:
    """A truncated table: Debezium leaves all its rows in the topic. Ours deletes the keys that it holds."""
    rows: set[str] = set()
    columns: list[str] = []
    for event in list(events):
        if event.get("op") == "t":
            at = next(number for number, one in enumerate(events) if one is event)
            keys = [json.loads(key) for key in sorted(rows, key=str.encode)]
            events[at : at + (not keep)] = [one for key in keys for one in _deleted(event, key, columns)]
            rows.clear()
        elif event.get("key"):
            key = json.dumps(event["key"], separators=(",", ":"), ensure_ascii=False)
            if event.get("after"):
                rows.add(key)
                columns = list(event["after"])
            else:
                rows.discard(key)


def _deleted(event: Event, key: Any, columns: list[str]) -> list[Event]:
    """A delete and its tombstone, in a topic that has this event."""
    source = {name: value for name, value in event["source"].items() if name in _NAMES} | {"snapshot": False}
    one = {
        "key": key,
        "op": "d",
        "before": {name: key.get(name) for name in columns},
        "after": None,
        "source": source,
        "transaction": None,
        "headers": {},
    }
    return [one, {"key": key, "tombstone": True, "headers": {}}]


def _leave_nulls(events: list[Event], kind: str) -> None:
    """A NULL in a column that has a default: Connect's JSON converter writes the default."""
    null = {"whole": None, "word": None, **({"flag": None} if kind == "postgres" else {})}
    for event in events:
        if event["key"]["id"] in (1, 101):
            for image in ("before", "after"):
                if event.get(image):
                    event[image] |= null
        elif event.get("op") == "u":
            event["after"]["whole"] = None


def _name_columns(events: list[Event]) -> None:
    """In the stream Debezium takes each byte of a name outside ASCII for a character of its own."""
    for event in events:
        after = event["after"]
        if event["op"] != "r":
            assert list(after)[1:] == [_mangled("größe"), _mangled("日本")], after
            event["after"] = dict(zip(("id", "größe", "日本"), after.values(), strict=True))


def _mangled(name: str) -> str:
    """
    >>> [hex(ord(character)) for character in _mangled("ü")]
    ['0xffc3', '0xffbc']
    """
    return "".join(chr(byte if byte < 128 else 0xFF00 + byte) for byte in name.encode())


def _without(boundaries: list[Event], tables: Mapping[str, int]) -> list[Event]:
    """Beginnings and ends but for transactions of these tables alone, and for beginnings that have no end: Debezium's
    word for DDL of MariaDB."""
    kept: list[Event] = []
    for number, event in enumerate(boundaries):
        if event["status"] == "BEGIN" and boundaries[number + 1]["status"] == "BEGIN":
            continue
        kept.append(event)
        names = [one["data_collection"].rpartition(".")[2] for one in event["data_collections"] or []]
        if names and all(name in tables for name in names):
            del kept[-2:]
    return kept


def _put_back(event: Event, lost: Mapping[str, Sequence[Any]], columns: Columns, before: bool) -> None:
    for image in ("before", "after"):
        row = event.get(image)
        if row is None:
            continue
        number = row["id"] % STREAM_IDS - 1
        if (event["op"], image) == ("u", "after"):
            number = 0  # the workload's updates set what the first row has
        whole = {"id": row["id"]}
        for name, (type_of, literals) in columns.items():
            whole[name] = row.get(name)
            values = lost.get(name)
            if values is None:
                continue
            known = image == "after" or before
            at = number if number < len(literals) or "not null" not in type_of else 0
            whole[name] = values[at] if known and at < len(values) else None
        event[image] = whole


def _fill_long_values(events: list[Event]) -> None:
    """Debezium's placeholders: what the row had before, under its old key when the key has changed."""
    rows: dict[Any, dict[str, Any]] = {}
    for event in events:
        after = event.get("after")
        if after is None:
            continue
        old = event["headers"].get("__debezium.oldkey", event["key"])["id"]
        for name, value in after.items():
            if _is_placeholder(value):
                after[name] = rows[old][name]
        rows[after["id"]] = after


def _is_placeholder(value: Any) -> bool:
    word = "__debezium_unavailable_value"
    return value in (
        word,
        [word],
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        list(word.encode()),
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        f'{{"{word}":"{word}"}}',
    )
