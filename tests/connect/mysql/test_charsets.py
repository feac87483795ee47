"""Texts in character sets that Python's codecs of the same name decode otherwise than a real MariaDB does."""

from tests.connect.mysql.harness import Capture, fresh_database
from tests.support.mariadb import MariaDB

TEXTS = {
    "big5": "碁表", "cp866": "ⁿ²", "dec8": "Œ¤é", "eucjpms": "①～－￠", "euckr": "갂똠", "greek": "ʽα",
    "hebrew": "‾א", "hp8": "Àß", "koi8u": "•ї", "sjis": "表\\~", "swe7": "ÅÄÖ", "ujis": "表\\", "cp932": "①～髙",
}  # fmt: skip


def test_the_stream_has_what_the_server_shows(mariadb: MariaDB) -> None:
    columns = ", ".join(f"{name} varchar(20) character set {name}" for name in TEXTS)
    database = fresh_database(
        mariadb, f"create table t (k varchar(9) character set sjis primary key, {columns})"
    )
    escaped = ", ".join("'" + text.replace("\\", "\\\\") + "'" for text in TEXTS.values())
    # Keys are what the next chunk begins behind.
    keys = ["a", "a\\", "b", "表", "表\\"]
    for key in keys:
        mariadb.run(
            "insert into t values ('" + key.replace("\\", "\\\\") + f"', {escaped})", database=database
        )
    capture = Capture(mariadb, database, chunk_rows=1)
    capture.until_caught_up(mariadb)
    expected = {key: {"k": key, **TEXTS} for key in keys}
    assert {row["k"]: row for row in capture.rows("t").values()} == expected
    mariadb.run("create table more like t", "insert into more select * from t", database=database)
    capture.until_caught_up(mariadb)
    assert {row["k"]: row for row in capture.rows("more").values()} == expected
    capture.close()
