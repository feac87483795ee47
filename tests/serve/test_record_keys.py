"""The keys of events: exact, and the same for equal values."""

import pytest

from headwater.serve.fitting import Fitting
from headwater.streams.app import App
from headwater.streams.sources.json_rules import Misfit

SCHEMA = "id string, n long, price decimal(10,2), mean double, at timestamp, parts struct<p:decimal(4,2)>"


@pytest.fixture(scope="module")
def clicks() -> Fitting:
    return Fitting(App("shop").stream("clicks", SCHEMA))


@pytest.mark.parametrize(
    ("event", "column", "key"),
    [
        (b'{"price": 12.5}', "price", b"12.50"),
        (b'{"price": 12.50}', "price", b"12.50"),
        (b'{"price": "12.500"}', "price", b"12.50"),
        (b'{"at": "2026-01-05 10:00:00"}', "at", b"2026-01-05T10:00:00.000000Z"),
        (b'{"at": "2026-01-05T11:00:00+01:00"}', "at", b"2026-01-05T10:00:00.000000Z"),
        (b'{"parts": {"p": 1.5}}', "parts", b'{"p":1.50}'),
        (b'{"id": "a\\ud83d"}', "id", b"a?"),
        (b'{"id": "a", "n": NaN}', "id", b"a"),
        (b'{"id": "a", "mean": 1e400}', "id", b"a"),
        (b'{"id": "a"} more', "id", b"a"),
        (b'{"id": "a"}', "n", None),
        (b'{"id": ' + b"[" * 300 + b"]" * 300 + b"}", "id", b"[" * 300 + b"]" * 300),
    ],
)
def test_a_key_is_what_the_reader_decodes(
    clicks: Fitting, event: bytes, column: str, key: bytes | None
) -> None:
    assert clicks.key_of(event, [column]) == key


def test_a_value_of_another_type_makes_no_key(clicks: Fitting) -> None:
    with pytest.raises(Misfit, match="n: NaN is not a long"):
        clicks.key_of(b'{"n": NaN}', ["n"])


def test_ids_beyond_a_float_keep_their_digits() -> None:
    ids = [b"12345678901234567890123", b"12345678901234567890124"]
    users = Fitting(App("shop").table("users", "id decimal(38,0), name string", key="id"))
    unknown = Fitting(App("shop").table("users", key="id"))
    for table in (users, unknown):
        assert [table.key_of(b'{"id": %s}' % each, ["id"]) for each in ids] == [
            b'{"id":%s}' % each for each in ids
        ]


def test_of_several_streams_of_a_topic_the_first_that_has_a_place_for_the_value_says_its_key() -> None:
    app = App("shop")
    both = Fitting(app.stream("t", "id long", name="one"), app.stream("t", "id string", name="two"))
    assert [both.key_of(event, ["id"]) for event in (b'{"id": 7}', b'{"id": "x"}')] == [b"7", b"x"]
