"""What every view store does: one suite, run for SQLite and for PostgreSQL."""

from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pyarrow as pa
import pytest

from headwater.errors import ApplicationInvalid, BadInput, StoreFailed, UnknownView, ViewChanged
from headwater.views import Batch, Column, ViewSchema, ViewStore, open_store
from tests.support.postgres import Postgres
from tests.views.words import COLUMNS, batch, content, replayed, table, words

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


# -- definitions -----------------------------------------------------------------------------------


def test_the_first_version_serves_at_once(store: ViewStore) -> None:
    store.define(words(), "f")
    store.define(words(2), "g")
    (view,) = store.views()
    assert (view.name, view.serving, view.last_change) == ("words", 1, 0)
    assert [(v.version, v.state, v.fingerprint) for v in view.versions] == [
        (1, "serving", "f"),
        (2, "building", "g"),
    ]
    assert view.versions[0].schema == words()


def test_the_same_definition_again_changes_nothing(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1}))
    store.define(words(), "f")
    assert content(store) == {"a": 1}


def test_a_version_built_otherwise_is_refused(store: ViewStore) -> None:
    store.define(words(), "f")
    with pytest.raises(ViewChanged, match=r"another function.*version=N"):
        store.define(words(), "g")
    wider = ViewSchema("words", 1, (*COLUMNS, Column("m", "int")), ("word",))
    with pytest.raises(ViewChanged, match="m int"):
        store.define(wider, "f")
    with pytest.raises(ViewChanged, match=r"by word, and now has .* by n"):
        store.define(ViewSchema("words", 1, COLUMNS, ("n",)), "f")


def test_more_may_be_noted_of_what_a_version_was_built_with(store: ViewStore) -> None:
    store.define(words(), "f")
    store.define(words(2), "g")
    store.apply("words", 1, batch(0, {"a": 1}))
    store.note("words", 1, "f of the application shop")
    (view,) = store.views()
    assert [each.fingerprint for each in view.versions] == ["f of the application shop", "g"]
    assert (view.serving, view.last_change, content(store)) == (1, 1, {"a": 1})
    store.define(words(), "f of the application shop")
    with pytest.raises(ViewChanged, match="another function"):
        store.define(words(), "f")
    with pytest.raises(
        UnknownView, match="cannot note the fingerprint of words version 3: it was not defined"
    ):
        store.note("words", 3, "h")


@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        (ViewSchema("headwater_views", 1, COLUMNS, ("word",)), "its name"),
        (ViewSchema('w"', 1, COLUMNS, ("word",)), "its name"),
        (ViewSchema("w" * 49, 1, COLUMNS, ("word",)), "its name"),
        (ViewSchema("w", 0, COLUMNS, ("word",)), "versions begin"),
        (ViewSchema("w", 1, COLUMNS, ()), "no key"),
        (ViewSchema("w", 1, COLUMNS, ("world",)), "'world' is not a column"),
        (ViewSchema("w", 1, (*COLUMNS, Column("N", "int")), ("word",)), "two of its columns"),
        (ViewSchema("w", 1, (*COLUMNS, Column("__key", "int")), ("word",)), "__key"),
        (ViewSchema("w", 1, (*COLUMNS, Column("é" * 32, "int")), ("word",)), "longer"),
        (ViewSchema("w", 1, (*COLUMNS, Column("x", "variant")), ("word",)), "variant"),
    ],
)
def test_what_cannot_be_kept_is_refused(store: ViewStore, schema: ViewSchema, cause: str) -> None:
    with pytest.raises(ApplicationInvalid, match=cause):
        store.define(schema, "f")
    assert store.views() == []


def test_odd_names_of_views_and_columns(store: ViewStore) -> None:
    columns = (Column('a "quoted" %s one?', "string"), Column("select", "int"), Column("größe", "int"))
    schema = ViewSchema("Sales.per-day", 1, columns, tuple(c.name for c in columns[:1]))
    store.define(schema, "f")
    rows = pa.table(
        {columns[0].name: ["x"], "select": pa.array([1], pa.int32()), "größe": pa.array([2], pa.int32())}
    )
    store.apply(schema.name, 1, Batch(0, rows))
    row = {columns[0].name: "x", "select": 1, "größe": 2}
    assert store.get(schema.name, ["x"]) == row
    assert store.rows(schema.name, order=["-select"]) == [row]
    assert store.changes(schema.name, 0)[0].row == row
    store.define(ViewSchema(schema.name, 2, columns, schema.key), "g")
    store.activate(schema.name, 2)
    store.drop(schema.name, 1)
    assert store.rows(schema.name) == []


# -- batches ---------------------------------------------------------------------------------------


def test_rows_deletes_and_progress_are_applied_together(store: ViewStore) -> None:
    store.define(words(), "f")
    assert store.progress("words").batch is None
    assert store.apply("words", 1, batch(0, {"a": 1, "b": 2, "c": 3}))
    offsets = {"lines": {"0": 17, "1": 4}}
    before = datetime.now(UTC)
    zurich = timezone(timedelta(hours=1))
    assert store.apply(
        "words", 1, batch(1, {"a": 5}, ["b", "nobody"], offsets=offsets, watermark=NOON.astimezone(zurich))
    )
    assert content(store) == {"a": 5, "c": 3}
    progress = store.progress("words")
    assert (progress.version, progress.batch, progress.offsets, progress.watermark) == (1, 1, offsets, NOON)
    assert progress.rows == 2
    assert progress.committed is not None
    assert before <= progress.committed <= datetime.now(UTC)


def test_a_batch_id_is_applied_once(store: ViewStore) -> None:
    store.define(words(), "f")
    assert store.apply("words", 1, batch(7, {"a": 1}, offsets={"x": 1}))  # ids may begin anywhere and skip
    assert not store.apply("words", 1, batch(7, {"a": 2, "b": 1}, offsets={"x": 2}))
    assert not store.apply("words", 1, batch(3, {"a": 3}))
    assert not store.replace("words", 1, batch(7, {}))
    assert content(store) == {"a": 1}
    assert store.progress("words").offsets == {"x": 1}
    assert store.apply("words", 1, batch(9, {"a": 4}))
    assert [change.batch for change in store.changes("words", 0)] == [7, 9]


def test_the_last_row_of_a_key_counts_and_a_row_beats_a_delete(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, [("b", 1), ("a", 1), ("b", 2), ("b", 3)], ["a"]))
    assert content(store) == {"a": 1, "b": 3}
    assert store.progress("words").rows == 2
    assert len(store.changes("words", 0)) == 2


def test_equal_rows_make_no_change(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1, "b": 2, "c": 3}))
    store.apply("words", 1, batch(1, {"a": 1, "b": 5, "c": 3, "d": 4}))
    after = [(change.number, change.op, change.row) for change in store.changes("words", 3)]
    assert after == [(4, "upsert", {"word": "b", "n": 5}), (5, "upsert", {"word": "d", "n": 4})]


def test_an_empty_batch_moves_the_progress_on(store: ViewStore) -> None:
    store.define(words(), "f")
    assert store.apply("words", 1, batch(0, {}, offsets={"x": 3}))
    assert store.progress("words").offsets == {"x": 3}
    assert store.rows("words") == []


def test_replace_applies_the_difference(store: ViewStore) -> None:
    store.define(words(), "f")
    store.replace("words", 1, batch(0, {"a": 1, "b": 2, "c": 3}))
    store.replace("words", 1, batch(1, {"b": 2, "c": 4, "d": 5}))
    assert content(store) == {"b": 2, "c": 4, "d": 5} == replayed(store)
    assert [change.op for change in store.changes("words", 3)] == ["delete", "upsert", "upsert"]
    store.replace("words", 1, batch(2, {}))
    assert content(store) == {} == replayed(store)
    assert store.progress("words").rows == 0


def test_batches_larger_than_what_is_staged_at_a_time(
    store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.views.writer.PIECE", 10)
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {f"w{i}": i for i in range(25)}))
    store.apply("words", 1, batch(1, {f"w{i}": i % 2 * i for i in range(35)}, ["w1"]))
    expected = {f"w{i}": i % 2 * i for i in range(35)}
    assert content(store) == expected == replayed(store)
    assert store.progress("words").rows == 35


def test_a_view_of_keys_alone(store: ViewStore) -> None:
    store.define(ViewSchema("seen", 1, (Column("id", "int"),), ("id",)), "f")
    for number, ids in enumerate([[1, 2], [2, 3]]):
        store.apply("seen", 1, Batch(number, pa.table({"id": pa.array(ids, pa.int32())})))
    assert [row["id"] for row in store.rows("seen")] == [1, 2, 3]
    assert len(store.changes("seen", 0)) == 3


def test_rows_of_other_columns_or_types_are_refused(store: ViewStore) -> None:
    store.define(words(), "f")
    with pytest.raises(ViewChanged, match="columns word, m, not word, n"):
        store.apply("words", 1, Batch(0, pa.table({"word": ["a"], "m": [1]})))
    with pytest.raises(ViewChanged, match="column n holds string, not bigint"):
        store.apply("words", 1, Batch(0, pa.table({"word": ["a"], "n": ["many"]})))
    assert store.progress("words").batch is None


def test_a_failure_in_the_middle_leaves_nothing(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1}))

    def fails(*_: object) -> None:
        raise RuntimeError("in the middle")

    with monkeypatch.context() as patch:
        patch.setattr("headwater.views.catalog.Catalog.keep_batch", fails)
        with pytest.raises(RuntimeError, match="in the middle"):
            store.apply("words", 1, batch(1, {"a": 2, "b": 2}))
    assert content(store) == {"a": 1}
    assert len(store.changes("words", 0)) == 1
    assert store.apply("words", 1, batch(1, {"a": 3}))
    assert content(store) == {"a": 3} == replayed(store)


def test_restart_takes_batches_from_zero_again(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(5, {"a": 1, "b": 2}, offsets={"x": 9}, watermark=NOON))
    store.restart("words", 1)
    progress = store.progress("words")
    assert (progress.batch, progress.offsets, progress.watermark, progress.rows) == (None, {}, None, 2)
    assert store.apply("words", 1, batch(0, {"a": 2}))
    store.restart("words", 1, clear=True)
    assert content(store) == {} == replayed(store)
    assert store.progress("words").rows == 0


# -- versions --------------------------------------------------------------------------------------


def test_activation_shows_the_other_version_and_records_the_difference(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1, "b": 2, "c": 3}))
    store.define(words(2), "g")
    store.apply("words", 2, batch(0, {"b": 2, "c": 4, "d": 5}))
    assert content(store) == {"a": 1, "b": 2, "c": 3}
    assert content(store, 2) == {"b": 2, "c": 4, "d": 5}
    assert store.snapshot("words").last_change == 3  # a version that is being built records nothing
    store.activate("words", 2)
    assert content(store) == {"b": 2, "c": 4, "d": 5} == replayed(store)
    assert [(c.number, c.op) for c in store.changes("words", 3)] == [
        (4, "delete"),
        (5, "upsert"),
        (6, "upsert"),
    ]
    store.activate("words", 2)
    assert store.snapshot("words").last_change == 6
    store.apply("words", 1, batch(1, {"z": 1}))  # now it is the old one that records nothing
    store.apply("words", 2, batch(1, {"b": 9}))
    assert replayed(store) == content(store) == {"b": 9, "c": 4, "d": 5}


def test_activation_of_a_version_with_other_columns(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1, "b": 2}))
    wider = ViewSchema("words", 2, (*COLUMNS, Column("tags", "map<string,array<int>>")), ("word",))
    store.define(wider, "g")
    tags = pa.array([[("x", [1, 2])], None], pa.map_(pa.string(), pa.list_(pa.int32())))
    store.apply("words", 2, Batch(4, table({"b": 2, "c": 3}).append_column("tags", tags)))
    store.activate("words", 2)
    entries = [(c.op, c.key, c.row, c.batch) for c in store.changes("words", 2)]
    assert entries == [
        ("delete", '{"word":"a"}', None, 4),
        ("upsert", '{"word":"b"}', {"word": "b", "n": 2, "tags": {"x": [1, 2]}}, 4),
        ("upsert", '{"word":"c"}', {"word": "c", "n": 3, "tags": None}, 4),
    ]


def test_the_version_that_serves_is_dropped_last(store: ViewStore) -> None:
    store.define(words(), "f")
    store.define(words(2), "g")
    store.apply("words", 1, batch(0, {"a": 1}))
    with pytest.raises(StoreFailed, match="Activate another"):
        store.drop("words", 1)
    store.drop("words", 2)
    with pytest.raises(UnknownView):
        store.rows("words", version=2)
    with pytest.raises(UnknownView):
        store.apply("words", 2, batch(0, {"a": 1}))
    store.drop("words", 1)
    assert replayed(store) == {}
    with pytest.raises(UnknownView):
        store.rows("words")
    (view,) = store.views()
    assert (view.serving, view.versions, view.last_change) == (None, (), 2)
    # A new first version counts on from there, even with other columns under the old number.
    store.define(ViewSchema("words", 1, (*COLUMNS, Column("m", "int")), ("word",)), "h")
    rows = table({"a": 1}).append_column("m", pa.array([3], pa.int32()))
    store.apply("words", 1, Batch(0, rows))
    assert [change.number for change in store.changes("words", 2)] == [3]


def test_a_definition_replaced_by_another_process(store: ViewStore, url: str) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1}))
    with open_store(url) as other:
        other.drop("words", 1)
        other.define(
            ViewSchema("words", 1, (Column("n", "double"), Column("word", "string")), ("word",)), "g"
        )
    assert store.apply("words", 1, batch(0, {"b": 2}))
    assert store.get("words", ["b"]) == {"n": 2.0, "word": "b"}


def test_what_is_not_there(store: ViewStore) -> None:
    for asked in (
        lambda: store.rows("nothing"),
        lambda: store.get("nothing", [1]),
        lambda: store.snapshot("nothing"),
        lambda: store.progress("nothing"),
        lambda: store.changes("nothing", 0),
        lambda: store.trim_changes("nothing", keep=0),
        lambda: store.activate("nothing", 1),
        lambda: store.drop("nothing", 1),
        lambda: store.restart("nothing", 1),
        lambda: store.apply("nothing", 1, batch(0, {})),
    ):
        with pytest.raises(UnknownView, match="headwater views"):
            asked()


# -- the outbox ------------------------------------------------------------------------------------


def test_numbers_go_on_after_trimming_and_reopening(store: ViewStore, url: str) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {f"w{i}": i for i in range(10)}))
    assert store.trim_changes("words", up_to=3) == 3
    assert [c.number for c in store.changes("words", 0, limit=2)] == [4, 5]
    assert store.trim_changes("words", keep=2) == 5
    assert [c.number for c in store.changes("words", 0)] == [9, 10]
    assert store.trim_changes("words", keep=0) == 2
    assert store.changes("words", 0) == []
    store.close()
    with open_store(url) as again:
        again.apply("words", 1, batch(1, {"x": 1}))
        assert [c.number for c in again.changes("words", 0)] == [11]
        with pytest.raises(BadInput):
            again.trim_changes("words")


def test_a_snapshot_and_the_changes_after_it_fit_together(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1, "b": 2}))
    snapshot = store.snapshot("words")
    assert (snapshot.progress.batch, snapshot.last_change, snapshot.schema) == (0, 2, words())
    store.apply("words", 1, batch(1, {"c": 1}, ["a"]))
    rows = {row["word"]: row["n"] for row in snapshot.rows}
    assert rows == {"a": 1, "b": 2}
    assert replayed(store, rows, snapshot.last_change) == content(store) == {"b": 2, "c": 1}


def test_a_closed_store_says_so(store: ViewStore) -> None:
    store.define(words(), "f")
    store.close()
    with pytest.raises(StoreFailed, match="was closed"):
        store.rows("words")
    with pytest.raises(StoreFailed, match="was closed"):
        store.apply("words", 1, batch(0, {}))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_texts_are_the_same_in_databases_of_other_encodings(postgres: Postgres, encoding: str) -> None:
    database = f"in_{encoding.lower()}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database} ENCODING '{encoding}' TEMPLATE template0")
    with open_store(postgres.url("mine").replace("/postgres?", f"/{database}?")) as store:
        store.define(words(), "f")
        store.apply("words", 1, batch(0, {"é": 1}))
        assert content(store) == {"é": 1}
        assert store.get("words", ["é"]) == {"word": "é", "n": 1}
        assert [change.key for change in store.changes("words", 0)] == ['{"word":"é"}']
