"""Pages of messages of a real topic: backwards, forwards, by time, filtered, and the tail."""

import itertools
from collections.abc import Callable

import pytest
from confluent_kafka import Message, Producer

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.ui import messages
from headwater.ui.messages import Browser, MessagePage, Positions, Tail, message_filter
from headwater.ui.sizes import partition_sizes
from tests.support.servers import Headwater
from tests.ui.world import wait_until


@pytest.fixture
def filled(headwater: Headwater, topic: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Browser, str]:
    """A topic with 300 messages in three partitions, their times a second apart; no page is cut short by time."""
    monkeypatch.setattr(messages, "BUDGET_SECONDS", 60.0)
    connection = Connection(headwater.bootstrap)
    admin = Admin(connection)
    admin.create_topic(topic, 3)
    producer = Producer({"bootstrap.servers": headwater.bootstrap, "log_level": 0})
    for n in range(300):
        value = b'{"n": %d, "even": %s}' % (n, b"true" if n % 2 == 0 else b"false")
        producer.produce(
            topic, value, b"k%d" % (n % 7), partition=n % 3, timestamp=1_700_000_000_000 + 1000 * n
        )
    assert producer.flush(30) == 0
    return Browser(connection, admin, topic), topic


def numbers(page: MessagePage) -> list[int]:
    return [int((message.value or "").split(",")[0].removeprefix('{"n": ')) for message in page.messages]


ALL = [0, 1, 2]
Read = tuple[list[Message], dict[int, int]]


def test_older_pages_show_everything_once(filled: tuple[Browser, str]) -> None:
    browser, _ = filled
    page = browser.before(None, ALL, 70, None)
    seen = numbers(page)
    assert seen == list(range(299, 229, -1))
    assert not page.has_newer
    while page.has_older:
        page = browser.before(page.older, ALL, 70, None)
        seen += numbers(page)
    assert seen == list(range(299, -1, -1))


def test_a_broker_that_is_slow_at_times_hides_nothing(
    filled: tuple[Browser, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = filled
    read = Browser._read
    is_slow = itertools.cycle([True, False])

    def read_or_not(browser: Browser, low: Positions, high: Positions, deadline: float) -> Read:
        return read(browser, low, high, 0.0 if next(is_slow) else deadline)

    monkeypatch.setattr(Browser, "_read", read_or_not)
    assert numbers(browser.before(None, ALL, 300, None)) == list(range(299, -1, -1))
    assert numbers(browser.after({}, ALL, 300, None)) == list(range(299, -1, -1))


def test_newer_pages_show_everything_once_and_lead_back(filled: tuple[Browser, str]) -> None:
    browser, _ = filled
    page = browser.after({}, ALL, 90, None)
    seen = numbers(page)[::-1]
    assert not page.has_older
    while page.has_newer:
        page = browser.after(page.newer, ALL, 90, None)
        seen += numbers(page)[::-1]
    assert seen == list(range(300))
    back = browser.before(page.older, ALL, 10, None)
    assert numbers(back)[0] < min(numbers(page))


def test_seek_by_time_and_by_offset(filled: tuple[Browser, str]) -> None:
    browser, _ = filled
    starts = browser.at_time(1_700_000_000_000 + 150_000, ALL)
    assert numbers(browser.after(starts, ALL, 5, None))[::-1] == [150, 151, 152, 153, 154]
    assert numbers(browser.after({1: 40}, [1], 2, None))[::-1] == [121, 124]
    assert numbers(browser.after({1: 10_000}, [1], 2, None)) == []
    assert browser.at_time(1_900_000_000_000, ALL) == {0: 100, 1: 100, 2: 100}


def test_filters_by_text_and_by_key(filled: tuple[Browser, str]) -> None:
    browser, _ = filled
    assert numbers(browser.before(None, ALL, 3, message_filter('"N": 25'))) == [259, 258, 257]
    assert numbers(browser.before(None, ALL, 3, message_filter("key=k0"))) == [294, 287, 280]
    assert message_filter("  ") is None


def test_a_filter_that_matches_nothing_stops_at_its_budget(
    filled: tuple[Browser, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = filled
    monkeypatch.setattr(messages, "BUDGET_OFFSETS", 60)
    monkeypatch.setattr(messages, "CHUNK", 20)
    page = browser.before(None, ALL, 5, message_filter("nowhere"))
    assert page.messages == ()
    assert page.has_older and 60 <= page.looked_at < 300
    further = browser.before(page.older, ALL, 5, message_filter("nowhere"))
    assert sum(further.older.values()) < sum(page.older.values())


def test_what_was_rolled_back_is_not_shown(
    headwater: Headwater, topic: str, unique: Callable[[str], str]
) -> None:
    connection = Connection(headwater.bootstrap)
    admin = Admin(connection)
    admin.create_topic(topic, 1)
    producer = Producer(
        {"bootstrap.servers": headwater.bootstrap, "transactional.id": unique("t"), "log_level": 0}
    )
    producer.init_transactions()
    for value, commits in ((b"kept", True), (b"rolled back", False), (b"kept, too", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(10)
        producer.commit_transaction() if commits else producer.abort_transaction()
    page = Browser(connection, admin, topic).before(None, [0], 10, None)
    assert [message.value for message in page.messages] == ["kept, too", "kept"]


def test_tombstones_headers_and_bytes(headwater: Headwater, topic: str) -> None:
    connection = Connection(headwater.bootstrap)
    admin = Admin(connection)
    admin.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": headwater.bootstrap, "log_level": 0})
    producer.produce(topic, None, b"gone", headers=[("source", b"db"), ("empty", None)])
    producer.produce(topic, b"\xff\x00", None)
    producer.produce(topic, b'{"a":[1,2]}')
    producer.produce(topic, b"x" * (messages.KEPT_BYTES + 10))
    producer.flush(10)
    long, nested, raw, tombstone = Browser(connection, admin, topic).before(None, [0], 10, None).messages
    assert tombstone.value is None and tombstone.headers == (("source", "db"), ("empty", None))
    assert raw.key is None and raw.value == "base64:/wA="
    assert nested.is_json and nested.pretty() == '{\n  "a": [\n    1,\n    2\n  ]\n}'
    assert long.is_cut and len(long.value or "") == messages.KEPT_BYTES


def test_the_tail_follows_pauses_and_ends(filled: tuple[Browser, str], headwater: Headwater) -> None:
    _, topic = filled
    producer = Producer({"bootstrap.servers": headwater.bootstrap, "log_level": 0})
    tail = Tail(Connection(headwater.bootstrap), topic, [0], message_filter("wanted"))

    def send(*values: bytes) -> None:
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(10) == 0

    def arrives() -> bool:
        send(b"wanted", b"other")
        return bool(tail.messages())

    wait_until(arrives)  # it begins at the end, wherever that is when it is ready
    assert {message.value for message in tail.messages()} == {"wanted"}
    tail.paused = True
    send(b"wanted while paused")
    end = Admin(Connection(headwater.bootstrap)).latest([(topic, 0)])[topic, 0]
    first = tail.messages()[-1].offset
    wait_until(lambda: tail.seen >= end - first)
    assert "wanted while paused" not in {message.value for message in tail.messages()}
    tail.stop()
    wait_until(lambda: not tail._thread.is_alive())


def test_a_tail_that_nobody_asks_ends(
    filled: tuple[Browser, str], headwater: Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "TAIL_PATIENCE", 0.3)
    tail = Tail(Connection(headwater.bootstrap), filled[1], None, None)
    wait_until(lambda: not tail._thread.is_alive())
    assert tail.error is None


def test_sizes_of_partitions(filled: tuple[Browser, str], headwater: Headwater) -> None:
    connection = Connection(headwater.bootstrap)
    sizes = partition_sizes(connection, [("127.0.0.1", headwater.port)])
    assert sizes is not None
    assert {number: sizes[filled[1], number] > 1000 for number in ALL} == dict.fromkeys(ALL, True)
    assert partition_sizes(Connection("x", {"security.protocol": "SSL"}), []) is None
    assert partition_sizes(connection, [("127.0.0.1", 1)]) is None
