"""The description of the server: schemathesis believes it, asks accordingly, and finds nothing.

``HEADWATER_EXAMPLES`` says how many questions it asks of each operation, ``HEADWATER_PHASES=coverage`` has it try
every boundary of every parameter.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.client.connection import Connection
from headwater.serve.reading_api import value_pattern
from headwater.serve.serving import Limits, Serving
from headwater.serve.where import parse_where
from headwater.streams.settings import load_stream_settings
from headwater.views import open_store
from headwater.views.types import arrow_type
from tests.serve.served import SALES, declared, fill, running
from tests.support.servers import Headwater

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = os.environ.get("HEADWATER_EXAMPLES", "3")


@pytest.fixture(scope="module")
def client(headwater: Headwater, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    data: Path = tmp_path_factory.mktemp("described")
    settings = load_stream_settings(data=data, bootstrap=headwater.bootstrap, environ={}, directory=data)
    connection = Connection(settings.bootstrap, {"log_level": "0"})
    with open_store(settings.store) as store:
        fill(store)
        limits = Limits(rows=20, wait_seconds=0.02)
        with running(Serving(declared(), settings, store, connection, limits)) as client:
            yield client


def test_schemathesis_finds_nothing(client: httpx.Client, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("schemathesis")
    command = [str(program), "--config-file", str(REPOSITORY / "schemathesis.toml")]
    command += ["run", f"{client.base_url}/openapi.json", "--max-examples", EXAMPLES]
    command += [
        "--phases",
        os.environ.get("HEADWATER_PHASES", "examples,fuzzing"),
        "--no-color",
        "--warnings",
        "off",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "No issues found" in done.stdout, done.stdout[-2000:]
    operations = re.search(r"Tested: (\d+)", done.stdout)
    paths = client.get("/openapi.json").json()["paths"]
    assert operations is not None and int(operations[1]) == sum(map(len, paths.values())), done.stdout[-2000:]


def test_the_description_has_the_columns_and_keys_of_the_views(client: httpx.Client) -> None:
    content = client.get("/openapi.json").json()
    assert content["openapi"] == "3.1.0"
    assert content["info"]["title"] == "Headwater: shop"
    paths = content["paths"]
    assert {"/views", "/views/words", "/views/words/{key}", "/views/sales/{key}", "/health"} <= set(paths)
    assert "/views/absent" not in paths  # nobody knows its columns yet
    answer = paths["/views/sales/{key}"]["get"]["responses"]["200"]
    row = answer["content"]["application/json"]["schema"]
    assert list(row["properties"]) == list(SALES.types)
    assert row["properties"]["day"] == {"type": ["string", "null"], "format": "date"}
    assert set(answer["headers"]) >= {"Headwater-View-Version", "Headwater-Offsets", "Headwater-Watermark"}
    (key,) = (each for each in paths["/views/users/{key}"]["get"]["parameters"] if each["in"] == "path")
    assert key["schema"]["type"] == "integer"
    body = paths["/topics/shop.sales"]["post"]["requestBody"]["content"]["application/json"]["schema"][
        "oneOf"
    ][0]
    assert body["required"] == ["at"]
    assert set(body["properties"]) == {"country", "amount", "at"}


def test_every_operation_has_a_name_of_its_own(client: httpx.Client) -> None:
    content = client.get("/openapi.json").json()
    names = [
        operation["operationId"] for methods in content["paths"].values() for operation in methods.values()
    ]
    assert len(set(names)) == len(names)


def test_conditions_that_fit_the_description_are_understood(client: httpx.Client) -> None:
    content = client.get("/openapi.json").json()
    (where,) = (
        each for each in content["paths"]["/views/sales"]["get"]["parameters"] if each["name"] == "where"
    )
    pattern = re.compile(where["schema"]["pattern"])
    fitting = [
        "country = 'CH'",
        "window.start>='2026-03-01T12:00:00Z'",
        "not total != -12.50 or `in` in (1, 2) and day is not null",
        "closed = true and mean < 0.5 or small > 1",
    ]
    for text in fitting:
        assert pattern.search(text), text
        parse_where(text, SALES)
        assert client.get("/views/sales", params={"where": text}).status_code == 200
    for text in ("country = CH", "1 = 1", "country = 'CH'; drop", "", "total = 'x'"):
        assert not pattern.search(text)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("tinyint", "-12", "128"),
        ("decimal(4,2)", "12.34", "123.4"),
        ("date", "2026-02-28", "2026-13-01"),
        ("timestamp", "2026-03-01T12:00:00.5Z", "2026-03-01"),
        ("boolean", "true", "yes"),
    ],
)
def test_patterns_of_values(kind: str, good: str, bad: str) -> None:
    pattern = value_pattern(arrow_type(kind))
    assert pattern is not None
    assert re.fullmatch(pattern, good) and not re.fullmatch(pattern, bad)
