"""A server of its own that is killed, and one that discards what the slot needs."""

import time
from pathlib import Path

import psycopg
import pytest

from headwater.errors import ChangesMissed, ConnectionLost
from tests.connect.postgres.following import Following
from tests.support.postgres import Postgres


def test_a_killed_server_is_gone_on_with_and_a_lost_slot_is_explained(tmp_path: Path) -> None:
    with Postgres() as server:
        following = Following(server.url(), tmp_path, name="shop", chunk_rows=10)
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 100)")
            for _ in range(5):
                following.step()
                following.commit()
        server.kill()
        with pytest.raises(ConnectionLost):
            for _ in range(100):
                following.step()
        following.crash()
        with pytest.raises(ConnectionLost):
            following.step()
        following.crash()
        server.start()
        following.catch_up()
        assert len(following.log.table("shop.t")) == 100
        following.close()
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
            db.execute("SELECT pg_reload_conf()")
            db.execute("DELETE FROM t WHERE id > 50")
            end = time.monotonic() + 30
            while db.execute("SELECT wal_status FROM pg_replication_slots").fetchall() != [("lost",)]:
                assert time.monotonic() < end
                db.execute("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 4000000))")
                db.execute("SELECT pg_switch_wal()")
                db.execute("CHECKPOINT")
        with pytest.raises(ChangesMissed, match="max_slot_wal_keep_size"):
            following.step()
        following.close()
        following = Following(server.url(), tmp_path, following.log, name="shop", on_gap="snapshot")
        following.catch_up()
        assert len(following.log.table("shop.t")) == 50
        following.close()
