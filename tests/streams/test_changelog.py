"""The thread that writes changelogs, when one of them cannot be written."""

from typing import Any

from headwater.client.connection import Connection
from headwater.streams.engine.changelog import Changelog
from tests.streams.conftest import wait_for


class WithAFault(Changelog):
    """Of which one view cannot be written."""

    def __init__(self) -> None:
        store: Any = None
        topics = {name: f"shop.{name}" for name in ("before", "broken", "behind")}
        super().__init__(store, Connection("127.0.0.1:1"), topics, "shop")
        self.published: list[str] = []

    def publish(self, view: str) -> None:
        if view == "broken":
            raise ValueError("a row is larger than a record may be")
        self.published.append(view)


def test_a_changelog_that_cannot_be_written_keeps_none_back() -> None:
    changelog = WithAFault()
    changelog.begin()
    wait_for(lambda: changelog.published[:2] == ["before", "behind"])
    changelog.end()
    assert changelog.published[-2:] == ["before", "behind"]
