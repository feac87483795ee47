"""The documents say what the code does."""

import inspect
import re
from pathlib import Path

import pytest

import headwater
from headwater.broker.settings import PROPERTIES
from headwater.client import settings as client_settings
from headwater.connect import metrics as source_metrics
from headwater.log.config import SETTINGS
from headwater.serve import settings as serve_settings
from headwater.streams import settings as stream_settings
from headwater.streams.engine import metrics
from headwater.streams.sources import jars

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("setting", [*SETTINGS.values(), *PROPERTIES.values()], ids=lambda s: s.name)
def test_every_setting_is_documented_with_its_default(setting: object) -> None:
    name, default, doc = (getattr(setting, key) for key in ("name", "default", "doc"))
    row = f"| `{name}` | {default or '(none)'} | {doc} |"
    assert row in (ROOT / "docs/operations.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_documents_name_are_there(document: Path) -> None:
    text = document.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+\.md)\)", text):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"
    for path in re.findall(r"`((?:tests|headwater|examples|benchmarks)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), f"{document.name} names {path}"


def test_the_tour_names_every_module() -> None:
    tour = (ROOT / "docs/architecture.md").read_text()
    rooms = [(ROOT / "headwater" / room).glob("*.py") for room in ("log", "broker")]
    rooms += [(ROOT / "headwater" / room).rglob("*.py") for room in ("client", "views", "streams", "serve")]
    rooms += [
        (ROOT / "headwater" / room).glob("*.py") for room in ("connect", "connect/cdc", "connect/cdc/sqlite")
    ]
    for modules in rooms:
        for module in modules:
            if module.name not in ("__init__.py", "context.py", "settings.py", "metadata_cache.py"):
                assert module.name in tour, f"docs/architecture.md does not mention {module.name}"


def test_every_setting_and_metric_of_streams_is_documented() -> None:
    operations = (ROOT / "docs/operations.md").read_text()
    variables = [
        value
        for module in (stream_settings, client_settings, serve_settings, jars)
        for name, value in vars(module).items()
        if name.endswith("_VARIABLE")
    ]
    assert len(variables) >= 9
    for variable in variables:
        assert f"`{variable}`" in operations, variable
    for name in metrics._COUNTERS:
        assert f"`headwater_{name}_total`" in operations, name
    for name in [*metrics._GAUGES, "up"]:
        assert f"`headwater_{name}`" in operations, name


def test_every_metric_and_option_of_sources_is_documented() -> None:
    operations = (ROOT / "docs/operations.md").read_text()
    for name in source_metrics._COUNTERS:
        assert f"`headwater_source_{name}_total`" in operations, name
    for name in [*source_metrics._GAUGES, "up", "snapshot_share"]:
        assert f"`headwater_source_{name}`" in operations, name
    page = (ROOT / "docs/connect.md").read_text()
    for parameter in inspect.signature(headwater.cdc).parameters:
        assert parameter == "settings" or f"| `{parameter}` |" in page, parameter


def test_the_guide_has_everything_that_applications_are_written_with() -> None:
    guide = (ROOT / "docs/streams.md").read_text()
    for name in headwater._HOMES:
        assert re.search(rf"\bhw\.{name}\b|from headwater import {name}\b", guide), name
    for method in (headwater.App.stream, headwater.App.view, headwater.App.topic, headwater.App.files):
        for parameter in inspect.signature(method).parameters:
            if parameter not in ("self", "topic", "path"):
                assert re.search(rf"`{parameter}\b|\b{parameter}=", guide), (method.__name__, parameter)
