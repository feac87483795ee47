"""What the command says of an application that does not run: its graph, and why it is refused."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.conftest import run

SHOP = """
import headwater as hw

app = hw.App("shop")
app.stream("shop.clicks", "page string, at timestamp", time="at", lateness="10 seconds")
app.table("shop.users", key="id", schema="id long")


@app.view(key=["window", "page"])
def by_page(clicks): ...


@app.view(key="page", version=3)
def best(by_page): ...


@app.topic("alerts", key="page", realtime=True)
def alerts(clicks): ...


@app.files("/srv/warehouse", partition_by="page")
def archive(clicks): ...
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return path


def test_the_graph_as_text(shop: Path) -> None:
    result = run("graph", str(shop))
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "shop\n"
        "  stream  clicks     topic shop.clicks, time at\n"
        "  table   users      topic shop.users, key id\n"
        "  view    by_page    key window, page   <- clicks\n"
        "  view    best       key page, version 3   <- by_page\n"
        "  topic   alerts     topic alerts, real time   <- clicks\n"
        "  files   archive    files /srv/warehouse   <- clicks\n"
    )


def test_the_graph_as_json(shop: Path) -> None:
    nodes = run("graph", str(shop), "--json").objects
    assert [(node["kind"], node["name"], node["inputs"]) for node in nodes] == [
        ("stream", "clicks", []),
        ("table", "users", []),
        ("view", "by_page", ["clicks"]),
        ("view", "best", ["by_page"]),
        ("topic", "alerts", ["clicks"]),
        ("files", "archive", ["clicks"]),
    ]


def test_the_graph_as_svg(shop: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "shop.svg"
    assert run("graph", str(shop), "--svg", str(drawing)).out == ""
    root = ET.fromstring(drawing.read_text())
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(f"{space}text")]
    for name in ("shop", "clicks", "users", "by_page", "best", "alerts", "archive"):
        assert name in texts
    assert len(list(root.iter(f"{space}rect"))) == 6
    arrows = [path for path in root.iter(f"{space}path") if path.get("marker-end")]
    assert len(arrows) == 4
    assert run("graph", str(shop), "--svg", "-").out == drawing.read_text() + "\n"
    refused = run("graph", str(shop), "--svg", str(tmp_path))
    assert refused.code == 1 and f"cannot draw into {tmp_path}: is a directory. Name a file" in refused.err


def test_one_of_several_applications_is_chosen_by_its_name(tmp_path: Path) -> None:
    both = tmp_path / "both.py"
    both.write_text('import headwater as hw\none, two = hw.App("first"), hw.App("second")\n')
    result = run("graph", f"{both}:two")
    assert result.out == "second\n"
    refused = run("graph", str(both))
    assert refused.code == 1 and "it has 2 applications: one, two. Name one:" in refused.err


DECLARED = 'import headwater as hw\napp = hw.App("shop")\napp.stream("clicks", "page string")\n'

REFUSED = {
    "a view without a key": (
        DECLARED + "@app.view(key=[])\ndef pages(clicks): ...\n",
        "cannot declare the function pages (app.py, line 4): it has no key. Say key=...",
    ),
    "an input that nobody declares": (
        DECLARED + '@app.view(key="page")\ndef pages(click): ...\n',
        "cannot wire the function pages (app.py, line 4): it wants the input 'click', and the application "
        "declares clicks. ",
    ),
    "a suggestion for it": (
        DECLARED + '@app.view(key="page")\ndef pages(click): ...\n',
        "Did you mean 'clicks'?",
    ),
    "a circle": (
        DECLARED
        + '@app.view(key="page")\ndef one(two): ...\n@app.view(key="page")\ndef two(three): ...\n'
        + '@app.view(key="page")\ndef three(one): ...\n',
        "cannot wire the function one (app.py, line 4): its input depends on its own output: "
        "one -> two -> three -> one. Break the circle",
    ),
    "a duration that is none": (
        DECLARED + 'app.stream("late", "page string", lateness="ten seconds")\n',
        "cannot use 'ten seconds' as the lateness of late: it is not a length of time. Write a number and a "
        "unit, such as '30 seconds'",
    ),
    "a name twice": (
        DECLARED + 'app.stream("shop.clicks", "page string")\n',
        "the application has a stream named 'clicks' already. Give one of them another name with name=...",
    ),
    "a function without parameters": (
        DECLARED + '@app.view(key="page")\ndef pages(): ...\n',
        "it has no parameters, so it has no input",
    ),
    "files as an input": (
        DECLARED
        + '@app.files("/srv/x")\ndef archive(clicks): ...\n@app.view(key="page")\ndef v(archive): ...\n',
        "it wants the input 'archive', which is written to files and cannot be followed",
    ),
    "a stream without a schema": (
        DECLARED + 'app.stream("views")\n',
        "cannot declare the stream views: its values have no schema. Say it:",
    ),
    "an error of Python": (
        DECLARED + "1 / 0\n",
        "cannot load the application app.py: ZeroDivisionError: division by zero (line 4). Correct the file.",
    ),
    "no Python": (
        DECLARED + "def\n",
        "cannot load the application app.py: SyntaxError: invalid syntax (app.py, line 4)",
    ),
    "an end of the process": (
        DECLARED + "raise SystemExit(3)\n",
        "cannot load the application app.py: SystemExit: 3 (line 4). Correct the file.",
    ),
    "Spark while it is loaded": (
        DECLARED + "from pyspark.sql import functions as F\nPRICE = F.col('price')\n",
        "line 5 needs Spark, which is started when the file has been read. Write it inside of the function",
    ),
    "a view without parentheses": (
        DECLARED + "@app.view\ndef pages(clicks): ...\n",
        "cannot declare the function pages (app.py, line 4): it has no key. Write @app.view(key=...) above it.",
    ),
    "a view without arguments": (
        DECLARED + "@app.view()\ndef pages(clicks): ...\n",
        "cannot declare the function pages (app.py, line 4): it has no key. Say key=...",
    ),
    "a topic without parentheses": (
        DECLARED + "@app.topic\ndef pages(clicks): ...\n",
        "cannot declare the function pages (app.py, line 4): it names no topic.",
    ),
    "a name that no table has": (
        DECLARED + '@app.view(key="page")\ndef größe(clicks): ...\n',
        "cannot declare the function größe (app.py, line 4): its output cannot be called 'größe'. Give it a name",
    ),
    "names that SQL does not tell apart": (
        DECLARED
        + '@app.view(key="page")\ndef Pages(clicks): ...\n@app.view(key="page")\ndef pages(clicks): ...\n',
        "(app.py, line 6): the view 'Pages' has its name but for the case of letters",
    ),
    "a directory twice": (
        DECLARED + '@app.files("/srv/x")\ndef one(clicks): ...\n@app.files("/srv/x")\ndef two(clicks): ...\n',
        "cannot declare the function two (app.py, line 6): 'one' writes to the directory /srv/x already.",
    ),
    "a circle through a topic": (
        DECLARED + '@app.topic("clicks")\ndef doubled(clicks): ...\n',
        "cannot wire the function doubled (app.py, line 4): its input depends on its own output: "
        "clicks -> doubled -> clicks.",
    ),
    "a circle through two topics": (
        DECLARED
        + 'app.stream("shop.pages", "page string")\n@app.topic("shop.pages")\ndef one(clicks): ...\n'
        + '@app.topic("clicks")\ndef two(pages): ...\n',
        "clicks -> two -> pages -> one -> clicks.",
    ),
    "no application": ("import headwater\n", 'it has none. Write app = hw.App("name") in it.'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_application_that_cannot_run_is_one_line(case: str, tmp_path: Path) -> None:
    text, complaint = REFUSED[case]
    (tmp_path / "app.py").write_text(text)
    result = run("graph", "app.py", cwd=tmp_path)
    assert (result.code, result.out) == (1, "")
    assert len(result.err.splitlines()) == 1 and result.err.startswith("headwater: cannot ")
    assert complaint in result.err


def test_functions_for_workers_are_declared_before_spark_is_there(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        DECLARED
        + "import pandas as pd\nfrom pyspark.sql import functions as F\n"
        + "@F.udf('string')\ndef loud(page): return page.upper()\n"
        + "@F.pandas_udf('map<string,int>')\ndef lengths(page: pd.Series) -> pd.Series: return page.str.len()\n"
        + "@app.view(key='page')\ndef pages(clicks): return clicks.select(loud('page').alias('page'))\n"
    )
    result = run("graph", "app.py", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("verb", ["graph", "up", "run", "status"])
def test_a_file_that_is_not_there(verb: str, tmp_path: Path) -> None:
    result = run(verb, "missing.py", cwd=tmp_path, env={"HEADWATER_DATA": str(tmp_path / "data")})
    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    if verb != "status":
        assert "cannot load the application missing.py: there is no such file." in result.err
    assert list(tmp_path.iterdir()) == []  # no broker and no data were made


@pytest.mark.parametrize("verb", ["up", "run"])
def test_nothing_is_started_for_an_application_that_cannot_run(verb: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(REFUSED["a circle"][0])
    result = run(verb, "app.py", cwd=tmp_path)
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert "depends on its own output" in result.err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["app.py"]


def test_what_asks_for_data_says_where_it_looked(tmp_path: Path) -> None:
    status = run("status", "--data", str(tmp_path))
    assert (status.code, len(status.err.splitlines())) == (1, 1)
    assert f"no application has run with the data in {tmp_path}. Start it with `headwater up`" in status.err
    store = f"sqlite:///{tmp_path}/views.db"
    views = run("views", "--data", str(tmp_path))
    assert (views.code, views.out) == (0, "")
    assert views.err == (
        f"no views in {store}; start an application with `headwater up`, or name its --data\n"
    )
    for verb, asked in (("views", "show"), ("replay", "replay")):
        result = run(verb, "words", "--data", str(tmp_path))
        assert (result.code, result.out) == (1, "")
        assert result.err == (
            f"headwater: cannot {asked} words: no application has kept views in {store}. "
            "Start it with `headwater up`, or name its --data or --store.\n"
        )
    assert list(tmp_path.iterdir()) == []  # who only looks makes nothing


def test_a_store_that_is_none(tmp_path: Path) -> None:
    result = run("views", "--store", "mysql://db", "--data", str(tmp_path))
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert "neither sqlite:///FILE nor postgresql://..." in result.err


def test_jars_from_a_repository_that_does_not_answer(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/maven2"
    result = run("jars", "--repository", url, "--folder", str(tmp_path / "jars"))
    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert url in result.err and "HEADWATER_JARS" in result.err
    assert not (tmp_path / "jars").exists()


def test_no_broker_is_said_before_spark_starts(shop: Path, tmp_path: Path) -> None:
    shop.write_text(DECLARED)
    result = run("run", str(shop), "-b", "127.0.0.1:9", "--data", str(tmp_path / "data"))
    assert result.code == 1
    assert "headwater: cannot reach a broker at 127.0.0.1:9: connection refused." in result.err
    assert not (tmp_path / "data" / "logs").exists()


def test_up_starts_no_broker_where_one_is_named(shop: Path, tmp_path: Path) -> None:
    shop.write_text(DECLARED)
    data = tmp_path / "data"
    named = {"HEADWATER_BOOTSTRAP": "127.0.0.1:9"}
    (tmp_path / "headwater.toml").write_text('bootstrap = "127.0.0.1:9"\n')
    for how in ({"env": named}, {"cwd": tmp_path}):
        result = run("up", str(shop), "--data", str(data), **how)  # type: ignore[arg-type]
        assert result.code == 1
        assert "cannot reach a broker at 127.0.0.1:9: connection refused." in result.err
    assert not (data / "log").exists()
