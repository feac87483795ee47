"""Rows over HTTP for a table that declares no columns: before it is built, and after."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.serve import fitting
from headwater.serve.serving import Serving
from headwater.streams.app import App
from headwater.streams.settings import load_stream_settings
from headwater.views.model import Column, ViewSchema
from headwater.views.store import open_store
from tests.serve.ingesting import content, running
from tests.support.servers import Headwater


def test_a_table_without_columns_takes_any_row_with_its_key_until_it_is_built(
    headwater: Headwater, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "LOOK_SECONDS", 0.0)
    app = App("shop")
    app.table(topic, key="id", name="users")
    settings = load_stream_settings(
        data=tmp_path, bootstrap=headwater.bootstrap, environ={}, directory=tmp_path
    )
    store = open_store(settings.store)
    serving = Serving(app, settings, store, Connection(headwater.bootstrap, {"log_level": "0"}))
    with running(serving) as client:

        def described() -> dict[str, Any]:
            document = client.get("/openapi.json").json()
            body = document["paths"][f"/topics/{topic}"]["post"]["requestBody"]
            schema: dict[str, Any] = body["content"]["application/json"]["schema"]["oneOf"][0]
            return schema

        assert described() == {
            "type": "object",
            "properties": {"id": {"type": ["string", "number", "boolean"]}},
            "required": ["id"],
        }
        answer = client.post(f"/topics/{topic}", json=[{"id": 7, "n": "any"}, {"n": 1}, {"id": None}])
        refused = "it has no 'id', which is the table's key"
        assert [each.get("refused") for each in answer.json()["events"]] == [None, refused, refused]
        assert [each["key"] for each in content(headwater.bootstrap, topic)] == [b'{"id":7}']

        schema = ViewSchema("users", 1, (Column("id", "bigint"), Column("n", "bigint")), ("id",))
        rows = {"schema": "`id` bigint, `n` bigint", "found": None}
        store.define(schema, json.dumps({"version": 1, "kind": "table", "rows": rows}))
        assert set(described()["properties"]) == {"id", "n"}
        answer = client.post(f"/topics/{topic}", json=[{"id": 8, "n": "any"}, {"id": 9, "n": 1}])
        assert [each.get("refused") for each in answer.json()["events"]] == ['n: "any" is not a long', None]
    store.close()
