"""A server that no longer has what was yet to be read, or that is another one; and one that went away."""

import time

import pytest

from headwater.connect.cdc.mysql.doctor import examine
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.source import Signal
from headwater.errors import CaptureImpossible, ChangesMissed, ConnectionLost
from tests.connect.mysql.harness import Capture, fresh_database
from tests.support.mariadb import MariaDB


def test_gaps_are_noticed_and_repaired() -> None:
    with MariaDB() as server:
        database = fresh_database(
            server,
            "create table t (id int primary key)",
            "create table bag (n int)",
            "create table gone (id int primary key)",
        )
        server.run(
            "insert into t values (1), (2), (3)", "insert into bag values (1)", "insert into gone values (1)",
            database=database,
        )  # fmt: skip
        capture = Capture(server, database)
        capture.until_caught_up(server)

        # a server that restarts: the same place
        capture.kill()
        server.kill()
        with pytest.raises(ConnectionLost):
            capture.take()
        capture.kill()
        server.start()
        server.run("insert into t values (4)", database=database)
        capture.until_caught_up(server)
        assert sorted(row["id"] for row in capture.rows("t").values()) == [1, 2, 3, 4]

        # purged logs
        capture.kill()
        server.run(
            "insert into t values (5)", "delete from t where id = 2", "drop table gone", database=database
        )
        server.run("insert into bag values (2)", "flush binary logs", database=database)
        file = server.run("show master status")[0][0]
        end = time.monotonic() + 20
        while (
            len(server.run("show binary logs")) > 1 and time.monotonic() < end
        ):  # the server may still think us there
            server.run(f"purge binary logs to '{file}'")
            time.sleep(0.1)
        with pytest.raises(ChangesMissed, match="purged"):
            capture.take()
        repaired = Capture(server, database, on_gap="snapshot")
        repaired.log, repaired.position = capture.log, capture.position
        repaired.kill()
        repaired.until_caught_up(server)
        assert sorted(row["id"] for row in repaired.rows("t").values()) == [1, 3, 4, 5]
        assert repaired.rows("gone") == {}
        assert sum(repaired.bag("bag").values()) == 2
        assert any("read again" in note for note in repaired.source.status().notes)

        # another past: the same ids for other transactions
        repaired.kill()
        server.run("reset master")
        server.run("insert into t select seq from seq_100_to_150", database=database)
        with pytest.raises(ChangesMissed, match="reset"):
            lost = Capture(server, database)
            lost.position = repaired.position
            lost.take()
        lost.kill()
        lost.source.signal(Signal("snapshot", ("t",)))
        with pytest.raises(ChangesMissed, match="reset"):  # one table does not close the gap
            lost.take()
        lost.kill()
        lost.source.signal(Signal("snapshot"))
        lost.source.signal(Signal("stop-snapshot"))
        lost.until(lambda: len(lost.rows("t")) == 55)
        lost.close()
        repaired.until(lambda: len(repaired.rows("t")) == 55)
        repaired.close()


def test_what_the_server_lacks_is_told() -> None:
    with MariaDB({"binlog-format": "MIXED", "binlog-row-image": "MINIMAL"}) as server:
        database = fresh_database(server, "create table bag (n int) engine=MyISAM")
        url = server.url(database)
        with pytest.raises(CaptureImpossible, match="binlog_format is MIXED"):
            Capture(server, database).take()
        checks = {check.what: check for check in examine(CdcOptions(url, tables=("bag", "absent")))}
        wrong = {what for what, check in checks.items() if check.stands_in_the_way}
        assert wrong == {"binlog_format", "binlog_row_image", "tables"}
        assert {what for what, check in checks.items() if check.verdict == "warning"} == {
            "binlog_row_metadata", "keys", "engines",
        }  # fmt: skip
        assert all(check.mend for check in checks.values() if check.verdict != "fine")
        server.run("create user weak@'%' identified by 'x'")
        weak = url.replace("headwater:secret", "weak:x")
        checks = {check.what: check for check in examine(CdcOptions(weak))}
        assert checks["replication"].mend == "GRANT REPLICATION SLAVE ON *.* TO 'weak'@'%';"
        assert checks["monitor"].mend == "GRANT BINLOG MONITOR ON *.* TO 'weak'@'%';"
        assert examine(CdcOptions(url.replace("secret", "wrong")))[0].stands_in_the_way


def test_few_rights_are_enough(mariadb: MariaDB) -> None:
    """What doctor asks for is all that capture needs."""
    database = fresh_database(
        mariadb, "create table t (id int primary key)", "create table m (id int primary key) engine=MyISAM"
    )
    user = f"reader_{database}"
    mariadb.run(
        f"create user {user}@'%' identified by 'x'",
        f"grant replication slave, binlog monitor on *.* to {user}@'%'",
        f"grant select, lock tables on {database}.* to {user}@'%'",
        "insert into t values (1)",
        "insert into m values (1)",
        database=database,
    )
    options = CdcOptions(mariadb.url(database).replace("headwater:secret", f"{user}:x"))
    assert not [check for check in examine(options) if check.stands_in_the_way]
    capture = Capture(mariadb, database)
    capture.options = options
    capture.kill()
    mariadb.run("insert into t values (2)", database=database)
    capture.until_caught_up(mariadb)
    capture.close()
    assert len(capture.rows("t")) == 2 and len(capture.rows("m")) == 1
