"""What is wrong, why, and what to do about it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headwater.errors import HeadwaterError
from headwater.ui import texts
from headwater.ui.facts import Facts, in_words

Tone = Literal["bad", "warn"]

FAR_BEHIND = 60.0  # seconds a status is old before it says that something is stuck


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. ``short`` says it in the bar at the top; ``link`` is the page that shows more."""

    tone: Tone
    what: str
    why: str
    next_step: str
    short: str
    link: str = ""


def problems(facts: Facts, known: frozenset[str] = frozenset()) -> list[Problem]:
    """All that is wrong, worst first. `known` are the sources and sinks that the application declares."""
    found = [*_engine(facts), *_broker(facts), *_store(facts), *_queries(facts), *_connectors(facts, known)]
    return sorted(found, key=lambda problem: problem.tone != "bad")


def split_error(text: str) -> tuple[str, str]:
    """The cause and the next step of an error that was kept as one text.

    >>> split_error("cannot go on with words: KeyError: 'k'. It is started again from its last finished batch.")
    ("KeyError: 'k'", 'It is started again from its last finished batch.')
    """
    cause = text.partition(": ")[2] if text.startswith("cannot ") and ": " in text else text
    head, dot, step = cause.rpartition(". ") if cause.endswith((".", "!")) else (cause, "", "")
    return (head, step) if dot else (cause.rstrip("."), "")


def _engine(facts: Facts) -> Iterator[Problem]:
    document = facts.locals.document or {}
    since = texts.ago(document.get("at"), facts.at)
    command = "Start it: headwater up APP.PY."
    if facts.engine == "never":
        yield Problem(
            "warn",
            "The application is not running",
            "no engine has run with this data directory, so nothing is computed",
            command,
            "not running",
        )
    elif facts.engine == "stopped":
        yield Problem("warn", "The application is stopped", f"its engine stopped {since}", command, "stopped")
    elif facts.engine == "ended":
        why = (
            f"its engine (process {document.get('pid')}) has ended without stopping; it was last seen {since}"
        )
        step = "Look at what it printed, and start it again: it goes on where it was."
        yield Problem("bad", "The engine is gone", why, step, "gone")
    elif facts.engine == "stuck":
        why = f"its process lives, but has not said anything since {since.removesuffix(' ago')}"
        step = "Look at what it printed; restart it."
        yield Problem("bad", "The engine does not answer", why, step, "does not answer")


def _broker(facts: Facts) -> Iterator[Problem]:
    if facts.broker_error is not None:
        cause, step = in_words(facts.broker_error)
        where = f"{facts.broker_error.subject}: " if isinstance(facts.broker_error, HeadwaterError) else ""
        yield Problem("bad", "The broker does not answer", where + cause, step, "no broker", "topics")


def _store(facts: Facts) -> Iterator[Problem]:
    if facts.store_error is not None:
        cause, step = in_words(facts.store_error)
        yield Problem("bad", "The view store does not answer", cause, step, "no view store", "views")


def _queries(facts: Facts) -> Iterator[Problem]:
    for name, output in facts.outputs.items():
        if not output.get("error"):
            continue
        cause, step = split_error(output["error"])
        times = output.get("restarts", 0)
        tries = f" (restarted {texts.counted(times, 'time')})" if times else ""
        is_over = output["state"] == "failed"
        what = f"The query {name} " + ("has failed for good" if is_over else "keeps failing")
        yield Problem("bad", what, cause + tries, step, "a query fails", f"queries/{name}")


def _connectors(facts: Facts, known: frozenset[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for kind, documents in (("source", facts.locals.sources), ("sink", facts.locals.sinks)):
        for document in documents:
            name = document["name"]
            if known and name not in known:
                continue  # of another application with the same data directory
            seen.add(name)
            yield from _connector(facts, kind, document)
    for name in sorted(known - seen):
        step = "Run it: headwater up runs it with the application, headwater connect run by itself."
        why = "it is declared, and has never run with this data directory"
        short = "a source or sink is not running"
        yield Problem("warn", f"{name} is not running", why, step, short, "connect")


def _connector(facts: Facts, kind: str, document: Mapping[str, Any]) -> Iterator[Problem]:
    name, state, error = document["name"], document["state"], document.get("error") or ""
    cause, step = split_error(error) if error else ("", "")
    if state == "failed":
        why = cause or "it does not say why"
        yield Problem("bad", f"The {kind} {name} has failed", why, step, f"a {kind} failed", "connect")
    elif document["running"] and error:
        yield Problem("warn", f"The {kind} {name} is waiting", cause, step, f"a {kind} is waiting", "connect")
    elif not document["running"] and facts.engine == "running":
        why = f"its process ended {texts.ago(document.get('at'), facts.at)}"
        what, short = f"The {kind} {name} is not running", f"a {kind} is not running"
        yield Problem("warn", what, cause or why, step or "Start it again.", short, "connect")
