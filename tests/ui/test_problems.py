"""What the banner says: what is wrong, why, and the next step."""

import os
import time
from typing import Any

import pytest

from headwater.errors import StoreFailed, Unreachable
from headwater.streams.engine.status import OutputStatus, document_of
from headwater.ui.broker import BrokerFacts
from headwater.ui.facts import Facts, Locals
from headwater.ui.problems import Problem, problems, split_error


def facts(document: dict[str, Any] | None = None, **more: Any) -> Facts:
    found = None if document is None else {"running": True, **document}
    sources, sinks = more.pop("sources", ()), more.pop("sinks", ())
    return Facts("shop", Locals(time.time(), found, sources, sinks), BrokerFacts(), {}, {}, {}, **more)


def running(*outputs: OutputStatus, **more: Any) -> dict[str, Any]:
    return {**document_of("shop", list(outputs)), **more}


def only(found: list[Problem]) -> Problem:
    assert len(found) == 1, found
    return found[0]


def test_nothing_is_wrong_with_a_running_application() -> None:
    assert problems(facts(running(OutputStatus("pages", "view", state="running")))) == []


def test_a_failing_query_says_why_and_what_happens() -> None:
    output = OutputStatus("pages", "view", state="restarting", restarts=2)
    output.error = (
        "cannot go on with shop.pages: ValueError: no such column. It is started again from its last batch."
    )
    found = only(problems(facts(running(output))))
    assert found.what == "The query pages keeps failing"
    assert found.why == "ValueError: no such column (restarted 2 times)"
    assert found.next_step == "It is started again from its last batch."
    assert found.link == "queries/pages"


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (None, "The application is not running"),
        (running(stopped=True) | {"running": False}, "The application is stopped"),
        (running() | {"running": False, "pid": 99}, "The engine is gone"),
        (running() | {"at": time.time() - 60}, "The engine does not answer"),
    ],
)
def test_the_engine(document: dict[str, Any] | None, what: str) -> None:
    found = only(problems(facts(document)))
    assert found.what == what
    assert found.next_step


def test_broker_and_store_away() -> None:
    found = problems(
        facts(
            running(),
            broker_error=Unreachable("reach", "a broker at 127.0.0.1:1", "connection refused"),
            store_error=StoreFailed("list", "the views", "the disk is full"),
        )
    )
    assert [(each.what, each.why) for each in found] == [
        ("The broker does not answer", "a broker at 127.0.0.1:1: connection refused"),
        ("The view store does not answer", "the disk is full"),
    ]


def connector(name: str, state: str, **more: Any) -> dict[str, Any]:
    document = {
        "name": name,
        "state": state,
        "error": "",
        "at": time.time(),
        "pid": os.getpid(),
        "running": True,
    }
    return {**document, **more}


def test_connectors_that_failed_wait_or_never_ran() -> None:
    failed = connector(
        "shop", "failed", running=False, error="cannot capture shop: no log. Run `headwater doctor`."
    )
    waiting = connector(
        "cache", "waiting", error="cannot reach redis: connection refused. Look at the server."
    )
    other = connector("elsewhere", "failed", running=False, error="cannot x y: z. W.")
    found = problems(
        facts(running(), sources=(failed, other), sinks=(waiting,)), frozenset(("shop", "cache", "new"))
    )
    assert [(each.tone, each.what, each.why) for each in found] == [
        ("bad", "The source shop has failed", "no log"),
        ("warn", "The sink cache is waiting", "connection refused"),
        ("warn", "new is not running", "it is declared, and has never run with this data directory"),
    ]


def test_errors_without_a_next_step() -> None:
    assert split_error("KeyError: 'k'") == ("KeyError: 'k'", "")
    assert split_error("cannot read x: it is broken") == ("it is broken", "")
