"""The checks before a capture, against servers and roles that lack something."""

from collections.abc import Callable
from typing import Any

import psycopg

from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.postgres.doctor import examine
from tests.connect.postgres.following import Following


def checks(url: str, **options: Any) -> dict[str, tuple[str, str, str]]:
    options.setdefault("name", "shop")
    return {each.what: (each.verdict, each.found, each.mend) for each in examine(CdcOptions(url, **options))}


def test_a_database_that_has_all_it_needs(
    db: psycopg.Connection[Any], url: str, follow: Callable[..., Following]
) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    found = checks(url)
    assert {what for what, (verdict, _, _) in found.items() if verdict != "fine"} == {
        "max_slot_wal_keep_size"
    }
    assert "made when capture begins" in found["slot"][1]
    following = follow()
    following.catch_up()
    assert "in use by process" in checks(url)["slot"][1]
    following.close()


def test_what_is_missing_is_named_with_its_remedy(db: psycopg.Connection[Any], url: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE bag (x int); CREATE TABLE listed (x int)")
    db.execute("ALTER TABLE listed REPLICA IDENTITY FULL")
    db.execute("DROP ROLE IF EXISTS poor; CREATE ROLE poor LOGIN")
    try:
        poor = url.replace("headwater@", "poor@")
        found = checks(poor)
        assert found["replication"] == ("wrong", "poor may not", 'ALTER ROLE "poor" REPLICATION.')
        assert found["create"][0] == "wrong" and "GRANT CREATE ON DATABASE" in found["create"][2]
        assert "GRANT SELECT" in found["table public.t"][2] or "owner" in found["table public.t"][2]
        assert (
            found["table public.bag"][0] == "warning"
            and "REPLICA IDENTITY FULL" in found["table public.bag"][2]
        )
        assert found["table public.listed"][0] in ("warning", "wrong")
        found = checks(url, tables=("bag", "nowhere"))
        assert found["table nowhere"][0] == "wrong"
        assert (
            found["table public.bag"][0] == "wrong"
            and "REPLICA IDENTITY FULL" in found["table public.bag"][2]
        )
    finally:
        db.execute("DROP ROLE poor")
    gone = checks("postgresql://headwater@127.0.0.1:1/shop")
    assert gone["reachable"][0] == "wrong"
