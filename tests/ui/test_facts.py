"""Gathering: once for all who look, nothing while nobody does, and whatever breaks is said."""

import time
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.errors import Unreachable
from headwater.serve.serving import Serving
from headwater.streams.loading import load_app
from headwater.streams.settings import load_stream_settings
from headwater.ui import looking
from headwater.ui.broker import BrokerFacts
from headwater.ui.facts import Facts, Gatherer, Locals
from headwater.ui.looking import Interest, Look
from headwater.views.model import Column, Progress, VersionInfo, ViewInfo, ViewSchema
from headwater.views.store import open_store
from tests.support.servers import Headwater
from tests.ui.conftest import APPLICATION
from tests.ui.world import World, wait_until


def serving(data: Path, bootstrap: str) -> Serving:
    settings = load_stream_settings(data=data, bootstrap=bootstrap, environ={}, directory=data)
    return Serving(load_app(str(APPLICATION)), settings, open_store(settings.store), Connection(bootstrap))


def test_work_rests_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "PATIENCE", 0.2)
    interest, seen = Interest(), []

    def work() -> int:
        seen.append(1)
        if len(seen) == 2:
            raise ValueError("for once")
        return len(seen)

    look = Look("a thing", interest, 0.01, work, 0)
    time.sleep(0.1)
    assert seen == []
    interest.show()
    wait_until(lambda: len(seen) >= 2)

    def rests() -> bool:
        before = len(seen)
        time.sleep(0.15)
        return len(seen) == before

    wait_until(rests)
    interest.show()
    before = len(seen)
    wait_until(lambda: len(seen) > before and look.error is None)
    assert look.value == len(seen) or look.value >= 1
    interest.stop()


def test_facts_of_a_running_application(world: World) -> None:
    gatherer = Gatherer(serving(world.data, world.bootstrap))
    try:
        facts = gatherer.fresh(20)
        assert facts.engine == "running"
        assert facts.broker.topics["shop.clicks"].partitions == 3
        assert facts.broker.topics["shop.clicks"].size
        assert facts.views["users"].versions[0].progress.rows == 40
        assert [reader.name for reader in facts.readers("shop.clicks")] == ["clicks_by_country"]
        wait_until(lambda: (gatherer.facts().row_rates.get("clicks_by_country") or 0) > 0)
        wait_until(lambda: len(gatherer.history("clicks_by_country").rows()) >= 2)
        assert {setting.name for setting in gatherer.broker.configs("shop.clicks")} >= {"retention.ms"}
    finally:
        gatherer.stop()


def test_a_broker_that_is_away_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    broker = Headwater(tmp_path / "log")
    world = None
    with broker:
        world = World(tmp_path, broker.bootstrap)
        world.make()
    gatherer = Gatherer(serving(tmp_path, broker.bootstrap))
    try:
        facts = gatherer.fresh(20)
        wait_until(lambda: isinstance(gatherer.facts().broker_error, Unreachable))
        assert facts.engine == "running"
        assert set(facts.views) == {"clicks_by_country", "sales_per_minute", "top_products", "users"}
    finally:
        gatherer.stop()
        world.close()


def test_how_many_batches_a_view_over_a_view_is_behind() -> None:
    def info(name: str, batch: int, offsets: dict[str, Any]) -> ViewInfo:
        schema = ViewSchema(name, 1, (Column("k", "string"),), ("k",))
        progress = Progress(1, batch, offsets, None, None, 1)
        return ViewInfo(name, 1, 1, (VersionInfo(schema, "f", "serving", progress),))

    views = {
        "sales": info("sales", 9, {"orders": {"0": 4}}),
        "top": info("top", 3, {"orders": {"0": 4}, "views": {"sales": [1, 7]}}),
        "old": info("old", 3, {"views": {"sales": [2, 7]}}),
    }
    facts = Facts("shop", Locals(), BrokerFacts(), views, {}, {})
    assert facts.batches_behind("top", "sales") == 2
    assert facts.batches_behind("old", "sales") is None  # its batches are those of another version
    assert facts.batches_behind("sales", "orders") is None
