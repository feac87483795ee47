"""Views read over HTTP, from both stores, by a client that knows nothing of them."""

import base64
import itertools
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from headwater.serve.serving import Limits, Serving
from headwater.views import Batch, Column, ViewSchema, open_store
from tests.serve import following
from tests.serve.served import BY_DAY, SALES_ROWS, WORDS, running, serving_of, table

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def serving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    data: Path = tmp_path_factory.mktemp("served")
    url = f"sqlite:///{data}/views.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").url(f"serving_{next(_numbers)}")
    serving = serving_of(url, data, Limits(rows=20, wait_seconds=30))
    with serving.store:
        yield serving


@pytest.fixture(scope="module")
def client(serving: Serving) -> Iterator[httpx.Client]:
    with running(serving) as client:
        yield client


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = answer.json()
    assert content["status"] == status
    assert set(content) >= {"title", "operation", "subject", "cause", "next_step"}
    return content


def key_path(row: dict[str, Any]) -> str:
    start, end = (row["window"][name].isoformat().replace("+00:00", "Z") for name in ("start", "end"))
    return f"/views/sales/{start}..{end},{quote(row['country'], safe='')}"


# -- the list --------------------------------------------------------------------------------------


def test_the_list_has_what_the_application_declares(client: httpx.Client) -> None:
    content = client.get("/views").json()
    assert content["application"] == "shop"
    views = {view["name"]: view for view in content["views"]}
    assert list(views) == ["users", "words", "sales", "by_day", "absent"]
    sales = views["sales"]
    assert (sales["kind"], sales["version"], sales["state"]) == ("view", 1, "serving")
    assert (sales["key"], sales["rows"], sales["batch"]) == (["window", "country"], len(SALES_ROWS), 7)
    assert sales["columns"][1] == {"name": "country", "type": "string"}
    assert sales["watermark"] == "2026-03-01T12:00:00.000000Z"
    assert sales["offsets"] == {"shop.sales": {"0": 3, "1": 4}}
    assert sales["committed"].endswith("Z")
    assert views["users"]["kind"] == "table"
    assert (views["absent"]["state"], views["absent"]["version"]) == ("waiting", None)


def test_a_view_that_is_being_built_is_in_the_list(tmp_path: Path) -> None:
    serving = serving_of(f"sqlite:///{tmp_path}/views.db", tmp_path)
    with serving.store, running(serving) as client:
        serving.store.define(type(WORDS)("words", 2, WORDS.columns, WORDS.key), "g")
        words = next(view for view in client.get("/views").json()["views"] if view["name"] == "words")
        assert (words["version"], words["building"]) == (1, [2])


# -- one row ---------------------------------------------------------------------------------------


def test_a_row_has_its_version_offsets_and_watermark_in_the_headers(client: httpx.Client) -> None:
    answer = client.get(key_path(SALES_ROWS[0]))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["headwater-view-version"] == "1"
    assert answer.headers["headwater-batch"] == "7"
    assert answer.headers["headwater-watermark"] == "2026-03-01T12:00:00.000000Z"
    assert json.loads(answer.headers["headwater-offsets"]) == {"shop.sales": {"0": 3, "1": 4}}
    assert answer.headers["headwater-last-change"] == str(len(SALES_ROWS))
    assert json.loads(answer.text, parse_float=Decimal) == {
        "window": {"start": "2026-03-01T12:00:00.000000Z", "end": "2026-03-01T12:01:00.000000Z"},
        "country": "CH",
        "day": "2026-03-01",
        "total": Decimal("12.50"),
        "mean": Decimal("0.25"),
        "small": Decimal("0.1"),
        "closed": True,
        "tags": ["a", None],
        "parts": {"x": 1},
        "raw": base64.b64encode(b"\x00\xff").decode(),
        "in": 0,
    }


def test_rows_are_written_as_their_changes_are(serving: Serving, client: httpx.Client) -> None:
    changes = {change.key: change.value for change in serving.store.changes("sales", 0)}
    assert len(changes) == len(SALES_ROWS)
    found = [client.get(key_path(row)) for row in SALES_ROWS]
    assert {answer.text for answer in found} == set(changes.values())
    lines = client.get("/views/sales", headers={"accept": "application/x-ndjson"})
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert set(lines.text.splitlines()) == set(changes.values())
    for key, value in changes.items():
        answer = client.get("/views/sales", params={"key": key})
        assert answer.json()["rows"] == [json.loads(value or "")]


@pytest.mark.parametrize(
    "path",
    [
        "/views/words/w5",
        "/views/words/%77%35",
        "/views/users/7",
        "/views/users/007",
        "/views/by_day/2026-03-02",
        "/views/sales/2026-03-01T12:00:00Z..2026-03-01T12:01:00Z,CH",
        "/views/sales/2026-03-01T13:00:00%2B01:00..2026-03-01T12:01:00Z,CH",
        "/views/sales/2026-03-01T12:00:00Z..2026-03-01T12:01:00Z%2CCH",
        '/views/sales/{"start":"2026-03-01T12:00:00Z"%2C"end":"2026-03-01T12:01:00Z"},CH',
    ],
)
def test_a_key_may_be_written_in_several_ways(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 200, client.get(path).text


def test_a_row_that_is_not_there(client: httpx.Client) -> None:
    found = problem(client.get("/views/words/w%C3%A9"), 404)
    assert "'wé' in the view words" in found["subject"]
    assert "word (string)" in found["next_step"]
    problem(client.get("/views/users/8"), 404)
    problem(client.get("/views/words/"), 404)
    assert "%2F" in problem(client.get("/views/words/a/b"), 404)["next_step"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/views/users/seven", "'seven' is not a value of id"),
        ("/views/users/7.0", "not a value of id"),
        ("/views/users/9223372036854775808", "not a value of id"),
        ("/views/users/7%20or%201=1", "not a value of id"),
        ("/views/users/7,8", "not a value of id"),
        ("/views/by_day/yesterday", "not a value of day"),
        ("/views/sales/CH", "1 values instead of 2"),
        ("/views/sales/a,b,c", "3 values instead of 2"),
        ("/views/sales/noon,CH", "not a value of window"),
        ("/views/words/%FF", "not a value of word"),
        ("/views/words/" + "x" * 8001, "longer than 8000 bytes"),
    ],
)
def test_a_key_that_is_none(client: httpx.Client, path: str, said: str) -> None:
    assert said in problem(client.get(path), 400)["cause"]


@pytest.mark.parametrize(
    "key",
    [
        "", "w5", '["w5"]', "{}", '{"word":5}', '{"word":true}', '{"word":["w5"]}', '{"word":"w5","n":5}',
        '{"n":5}', "{" * 5000, '{"word":"\\ud800"}', '{"word":NaN}',
    ],
)  # fmt: skip
def test_a_json_key_that_is_none(client: httpx.Client, key: str) -> None:
    problem(client.get("/views/words", params={"key": key}), 400)


def test_a_json_key_and_a_condition_hold_together(client: httpx.Client) -> None:
    for condition, names in (("n > 4", ["w5"]), ("n > 5", [])):
        answer = client.get("/views/words", params={"key": '{"word":"w5"}', "where": condition})
        assert [row["word"] for row in answer.json()["rows"]] == names
    start, end = "2026-03-01T12:00:00Z", "2026-03-01T12:01:00Z"
    key = json.dumps({"country": "CH", "window": {"start": start, "end": end}})
    answer = client.get("/views/sales", params={"key": key, "where": "closed = true"})
    assert len(answer.json()["rows"]) == 1
    assert client.get("/views/sales", params={"key": key, "offset": "1"}).json()["rows"] == []


def test_a_json_key_with_decimals_and_a_condition(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/views.db") as store:
        columns = (Column("price", "decimal(38,2)"), Column("at", "struct<p:decimal(38,0),n:double>"))
        schema = ViewSchema("prices", 1, columns, ("price", "at"))
        store.define(schema, "f")
        at = {"p": Decimal("12345678901234567890123"), "n": 0.1}
        prices = [Decimal("12.34"), Decimal("1234567890123456789012.01")]
        rows = [{"price": price, "at": at} for price in prices]
        store.apply("prices", 1, Batch(0, table(schema, rows)))
        with running(following.serving_of(store, tmp_path)) as client:
            for price in prices:
                key = f'{{"price":{price},"at":{{"p":{at["p"]},"n":0.1}}}}'
                for more in ({"where": "price > 1"}, {"order": "-price"}):
                    answer = client.get("/views/prices", params={"key": key, **more})
                    assert answer.status_code == 200, answer.text
                    assert f'"rows":[{{"price":{price},' in answer.text


def test_names_of_views_that_there_are_not(client: httpx.Client) -> None:
    assert "words" in problem(client.get("/views/wrods"), 404)["next_step"]
    problem(client.get("/views/wrods/w5"), 404)
    for name in ("headwater_views", "words@1", "words@changes", 'words"--', "words%20", "words%00", "%22"):
        problem(client.get(f"/views/{name}"), 404)
        problem(client.get(f"/views/{name}/w5"), 404)


def test_a_view_that_nobody_has_begun_to_fill(client: httpx.Client) -> None:
    for path in ("/views/absent", "/views/absent/x", "/views/absent/x?at_least=lines:0:1&wait=0.1"):
        answer = client.get(path)
        problem(answer, 503)
        assert answer.headers["retry-after"] == "1"


def test_a_token_waits_for_a_view_that_nobody_has_begun_to_fill(tmp_path: Path) -> None:
    serving = serving_of(f"sqlite:///{tmp_path}/views.db", tmp_path)

    def begin() -> None:
        serving.store.define(type(WORDS)("absent", 1, WORDS.columns, WORDS.key), "f")
        rows = table(WORDS, [{"word": "a", "n": 1}])
        serving.store.apply("absent", 1, Batch(0, rows, offsets={"lines": {"0": 1}}))

    with serving.store, running(serving) as client:
        timer = threading.Timer(0.3, begin)
        timer.start()
        answer = client.get("/views/absent/a?at_least=lines:0:0")
        timer.join()
        assert (answer.status_code, answer.json()) == (200, {"word": "a", "n": 1})


# -- many rows -------------------------------------------------------------------------------------


def test_a_condition_an_order_and_a_limit(client: httpx.Client) -> None:
    query = {"where": "n >= 3 and (n < 6 or word in ('w20', 'w21'))", "order": "-n", "limit": "4"}
    content = client.get("/views/words", params=query).json()
    assert [row["n"] for row in content["rows"]] == [21, 20, 5, 4]
    assert (content["view"], content["version"]) == ("words", 1)
    rest = client.get(content["next"]).json()
    assert [row["n"] for row in rest["rows"]] == [3]
    assert rest["next"] is None


def test_pages_follow_each_other_to_the_end(client: httpx.Client) -> None:
    seen, path, pages = [], "/views/words?order=n", 0
    while path:
        answer = client.get(path)
        seen += [row["n"] for row in answer.json()["rows"]]
        path, pages = answer.json()["next"], pages + 1
        assert ("link" in answer.headers) == (path is not None)
    assert (seen, pages) == (list(range(25)), 2)  # a page has at most 20 rows here


@pytest.mark.parametrize(
    ("where", "minutes"),
    [
        ("country = 'CH'", [0, 1, 2, 3]),
        ("window.start > '2026-03-01T12:02:00Z' and country != 'x'", [3, 5, None]),
        ("window.start >= '2026-03-01T13:02:00+01:00' and country = 'CH'", [2, 3]),
        ("total = 12.5 and closed = true and country = 'CH'", [0, 2, 3]),
        ("total < 0", [1]),
        ("mean = 'NaN'", [1]),
        ("mean > 1 and not mean = 'NaN'", [2]),
        ("day = '2026-03-01' and `in` in (0, 3)", [0, 0, 3]),
        ("day is null", [None]),
        ("`in` is not null and not (`in` > 0)", [0, 0]),
        ("`in` not in (0, 1, 2)", [3, 5]),
        ("closed = false", [1]),
        ("NOT country = 'CH' AND total IS NOT NULL", [0, 5]),
        ("""country = 'quote " and \\ and \n'""", [5]),
    ],
)
def test_conditions_on_values_of_all_types(
    client: httpx.Client, where: str, minutes: list[int | None]
) -> None:
    answer = client.get("/views/sales", params={"where": where})
    assert answer.status_code == 200, answer.text
    assert sorted((row["in"] for row in answer.json()["rows"]), key=str) == minutes


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"where": "n ="}, "at character 4 a value was expected, not the end"),
        ({"where": "nn = 1"}, "at character 1 there is no column 'nn'; there are word, n"),
        ({"where": "n = 'one'"}, "at character 5 'one' is not a value of the type int64"),
        ({"where": "n = 1.5"}, "at character 5 1.5 is not a value of the type int64"),
        ({"where": "word = 5"}, "at character 8 5 is not a value of the type string"),
        ({"where": "n = 1; drop table words"}, "at character 6 ';' has no meaning here"),
        ({"where": "n = 1 -- "}, "at character 7 `and`, `or` or the end was expected, not '-'"),
        ({"where": "1 = 1"}, "at character 1 the name of a column was expected, not '1'"),
        ({"where": "word = 'a' or 1 = 1"}, "at character 15 the name of a column was expected"),
        ({"where": "word = 'a"}, "at character 8 the ' has no second one"),
        ({"where": "(select 1) = 1"}, "at character 2 there is no column 'select'"),
        ({"where": "word = upper('a')"}, "at character 8 a value (texts stand in quotes) was expected"),
        ({"where": "word.x = 'a'"}, "at character 1 there is no column 'word.x'"),
        ({"where": "`__key` = 'a'"}, "there is no column '__key'"),
        ({"where": "n = null"}, "at character 5 nothing equals null"),
        ({"where": ""}, "at character 1 the name of a column was expected, not the end"),
        ({"where": "n = 1" + " or n = 1" * 600}, "4000 is the most"),
        ({"where": "(" * 40 + "n = 1" + ")" * 40}, "more than 32 brackets"),
        ({"where": f"n in ({','.join(['1'] * 501)})"}, "more than 500 values"),
        ({"order": "m"}, "at character 1 there is no column 'm'"),
        ({"order": "n desc"}, "at character 3 a comma or the end was expected, not 'desc'"),
        ({"order": "n;drop"}, "at character 2 ';' has no meaning here"),
        ({"order": "1"}, "at character 1 the name of a column was expected"),
        ({"order": "n," * 30 + "n"}, "more than 20 columns"),
        ({"order": ""}, "the name of a column was expected, not the end"),
        ({"limit": "0"}, "it is not one that there can be"),
        ({"limit": "21"}, "it is not one that there can be"),
        ({"limit": "-1"}, "it is not one that there can be"),
        ({"limit": "ten"}, "it is not one that there can be"),
        ({"limit": "1; drop"}, "it is not one that there can be"),
        ({"offset": "-1"}, "it is not one that there can be"),
        ({"offset": "1" * 30}, "it is not one that there can be"),
        ({"limits": "3"}, "there is no such parameter"),
        ({"at_least": "lines"}, "'lines' is not topic:partition:offset"),
        ({"at_least": "lines:0:-1"}, "is not topic:partition:offset"),
        ({"at_least": "nobody:0:1"}, "it does not read the topic nobody; it reads lines"),
        ({"at_least": "lines:0:1", "wait": "31"}, "not a length of time"),
        ({"at_least": "lines:0:1", "wait": "long"}, "not a length of time"),
    ],
)
def test_questions_that_cannot_be_understood(client: httpx.Client, query: dict[str, str], said: str) -> None:
    found = problem(client.get("/views/words", params=query), 400)
    assert said in found["cause"]
    if "at character" in said:
        assert f"at character {found['position']} " in found["cause"]


def test_the_query_itself(client: httpx.Client) -> None:
    assert "twice" in problem(client.get("/views/words?limit=1&limit=2"), 400)["cause"]
    assert "UTF-8" in problem(client.get("/views/words?where=%FF"), 400)["cause"]
    assert "Did you mean order" in problem(client.get("/views/words?oder=n"), 400)["next_step"]
    problem(client.get("/views?limit=1"), 400)
    problem(client.get("/views/words/w5?limit=1"), 400)
    problem(client.post("/views/words"), 405)
    assert client.post("/views/words").headers["allow"] in ("GET, HEAD", "HEAD, GET")
    assert client.head("/views/words/w5").headers["headwater-view-version"] == "1"


# -- reading one's own writes ----------------------------------------------------------------------


@pytest.mark.parametrize("where", ["query", "header"])
def test_a_read_waits_until_the_view_covers_a_token(
    serving: Serving, client: httpx.Client, where: str
) -> None:
    before = serving.store.progress("words")
    batch, offset = (before.batch or 0) + 1, int(before.offsets["lines"]["0"])
    rows = table(WORDS, [{"word": "w5", "n": offset}])

    def write() -> None:
        serving.store.apply("words", 1, Batch(batch, rows, offsets={"lines": {"0": offset + 1}}))

    token = f"lines:0:{offset}"
    timer = threading.Timer(0.3, write)
    timer.start()
    try:
        if where == "query":
            answer = client.get("/views/words/w5", params={"at_least": token})
        else:
            answer = client.get(
                "/views/words", headers={"headwater-at-least": token}, params={"where": "word='w5'"}
            )
    finally:
        timer.join()
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found if where == "query" else found["rows"][0])["n"] == offset
    assert json.loads(answer.headers["headwater-offsets"]) == {"lines": {"0": offset + 1}}


def test_many_who_wait_for_different_tokens(serving: Serving, client: httpx.Client) -> None:
    before = serving.store.progress("words")
    batch, offset = (before.batch or 0) + 1, int(before.offsets["lines"]["0"])
    answers: dict[int, httpx.Response] = {}

    def read(number: int) -> None:
        token = f"lines:0:{offset + number}"
        answers[number] = client.get("/views/words/w5", params={"at_least": token})

    threads = [threading.Thread(target=read, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for number in range(10):
        rows = table(WORDS, [{"word": "w5", "n": 1000 + number}])
        serving.store.apply(
            "words", 1, Batch(batch + number, rows, offsets={"lines": {"0": offset + number + 1}})
        )
    for thread in threads:
        thread.join()
    for number, answer in answers.items():
        assert answer.status_code == 200
        assert answer.json()["n"] >= 1000 + number


def test_a_view_that_does_not_cover_the_token_in_time(client: httpx.Client) -> None:
    token = "shop.sales:0:2,shop.sales:1:4,shop.sales:2:0"
    found = problem(client.get("/views/sales", params={"at_least": token, "wait": "0.05"}), 504)
    assert found["wanted"] == ["shop.sales:1:4", "shop.sales:2:0"]
    assert found["offsets"] == {"shop.sales": {"0": 3, "1": 4}}
    assert "of shop.sales 1 it has taken what is before 4, and 4 was asked for" in found["cause"]
    problem(client.get("/views/sales?at_least=shop.sales:1:4&wait=0"), 504)
    assert client.get("/views/sales?at_least=shop.sales:0:2,shop.sales:1:3&wait=0").status_code == 200


def test_a_view_over_views_covers_what_those_cover(serving: Serving, client: httpx.Client) -> None:
    assert client.get("/views/by_day?at_least=shop.users:0:8,shop.sales:1:3&wait=0").status_code == 200
    found = problem(client.get("/views/by_day?at_least=lines:0:1"), 400)
    assert "it reads shop.sales, shop.users" in found["cause"]
    assert BY_DAY.key == ("day",)


# -- what is around it -----------------------------------------------------------------------------


def test_metrics_count_requests_by_route(client: httpx.Client) -> None:
    for path in ("/views/words/w5", "/views/words/gone", "/views/words?limit=1", "/somewhere/else"):
        client.get(path)
    for method in ("PROPFIND", "MKCOL"):
        problem(client.request(method, "/views"), 405)
    text = client.get("/metrics").text
    assert "PROPFIND" not in text and "MKCOL" not in text
    for wanted in (
        'headwater_http_requests_total{method="GET",route="/views/{view}/{key}",status="200"}',
        'headwater_http_requests_total{method="GET",route="/views/{view}/{key}",status="404"}',
        'headwater_http_requests_total{method="GET",route="/views/{view}",status="200"}',
        'headwater_http_requests_total{method="GET",route="(none)",status="404"}',
        'headwater_http_request_seconds_bucket{le="+Inf",route="/views/{view}"}',
    ):
        assert wanted in text
    assert client.get("/health").json()["status"] == "ok"
