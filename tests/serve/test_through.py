"""Tokens of a topic that a view reads through another topic of the application, with a real log in between."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.transactions import TransactionalWriter
from headwater.serve.serving import Serving
from headwater.streams.app import App
from headwater.streams.engine.status import OutputStatus, StatusFile, document_of
from headwater.streams.settings import load_stream_settings
from headwater.views import Batch, open_store
from tests.serve.served import WORDS, running, table
from tests.support.servers import Headwater


def declared(prefix: str) -> App:
    """Clicks become alerts in a topic, and a view counts the words of these."""
    app = App("shop")
    app.stream(f"{prefix}.clicks", "page string", name="clicks")

    @app.topic(f"{prefix}.alerts", name="alerts")
    def alerts(clicks: Any) -> Any:
        return clicks

    @app.view(key="word")
    def words(alerts: Any) -> Any:
        return alerts

    return app


def test_a_token_waits_for_the_topic_in_between_and_then_for_the_view(
    headwater: Headwater, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    prefix = unique("through")
    connection = Connection(headwater.bootstrap, {"log_level": "0"})
    Admin(connection).create_topic(f"{prefix}.alerts", partitions=2)
    app = declared(prefix)
    settings = load_stream_settings(
        data=tmp_path, bootstrap=headwater.bootstrap, environ={}, directory=tmp_path
    )
    token = f"{prefix}.clicks:0:4"
    with open_store(settings.store) as store:
        store.define(WORDS, "f")
        covered = {f"{prefix}.alerts": {"0": 0, "1": 0}}
        store.apply("words", 1, Batch(0, table(WORDS, [{"word": "a", "n": 1}]), offsets=covered))
        with running(Serving(app, settings, store, connection)) as client:
            query = {"at_least": token, "wait": "0.3"}
            # Nobody has said how far the topic in between is.
            answer = client.get("/views/words/a", params=query)
            assert answer.status_code == 504
            assert f"the topic {prefix}.alerts" in answer.json()["subject"]

            # It has taken the click, and written its alerts in a transaction; the view has not seen them.
            with TransactionalWriter(connection, unique("writer")) as writer, writer.transaction():
                for number in range(3):
                    writer.write(f"{prefix}.alerts", b"{}", partition=number % 2)
            status = OutputStatus("alerts", "topic", offsets={f"{prefix}.clicks": {0: 5}})
            StatusFile(tmp_path, "shop").write(document_of("shop", [status]))
            answer = client.get("/views/words/a", params=query)
            assert answer.status_code == 504
            assert answer.json()["subject"] == "the view words"
            wanted = answer.json()["wanted"]
            assert {each.rpartition(":")[0] for each in wanted} == {
                f"{prefix}.alerts:0",
                f"{prefix}.alerts:1",
            }

            ends = Admin(connection).latest(
                [(f"{prefix}.alerts", 0), (f"{prefix}.alerts", 1)], committed=True
            )
            after = {f"{prefix}.alerts": {str(number): end for (_, number), end in ends.items()}}
            batch = Batch(1, table(WORDS, [{"word": "a", "n": 4}]), offsets=after)
            timer = threading.Timer(0.3, lambda: store.apply("words", 1, batch))
            timer.start()
            answer = client.get("/views/words/a", params={"at_least": token})
            timer.join()
            assert answer.json() == {"word": "a", "n": 4}

            refused = client.get("/views/words/a?at_least=nobody:0:0")
            assert refused.status_code == 400
            assert f"it reads {prefix}.alerts, {prefix}.clicks" in refused.json()["cause"]
