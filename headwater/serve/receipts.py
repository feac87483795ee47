"""What a request that writes events is answered: for every event where it is, or why it was refused. Pure."""

from collections.abc import Sequence
from typing import Any

import orjson

from headwater.errors import EventsRefused, HeadwaterError, NotDelivered
from headwater.serve.delivery import Outcome, Place, token_of
from headwater.serve.idempotency import Answer

TAKEN, SOME_REFUSED, ALL_REFUSED = 200, 207, 422


def receipt(topic: str, problems: Sequence[str | None], places: Sequence[Place]) -> Answer:
    """The answer when all is in the log: events in the topic, refused ones among the dead letters.

    >>> receipt("t", [None], [Place("t", 0, 7)]).body
    b'{"topic":"t","taken":1,"refused":0,"token":"t:0:7","events":[{"partition":0,"offset":7}]}'
    >>> receipt("t", [None, "n: x is not a long"], [Place("t", 0, 7), Place("t.dead", 0, 0)]).status
    207
    """
    refused = sum(problem is not None for problem in problems)
    content = _content(topic, problems, places)
    if refused == len(problems):
        first = next(problem for problem in problems if problem is not None)
        what = "the event" if refused == 1 else f"all {refused} events"
        error = EventsRefused("write to", topic, f"{what} did not fit: {first}")
        return Answer(ALL_REFUSED, orjson.dumps({**_problem(error, ALL_REFUSED), **content}))
    return Answer(SOME_REFUSED if refused else TAKEN, orjson.dumps(content))


def failure(topic: str, problems: Sequence[str | None], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What is known of the events when not all were acknowledged, for the problem that says so."""
    return _content(topic, problems, outcomes)


def failed(topic: str, outcomes: Sequence[Outcome]) -> HeadwaterError | None:
    """The error of a request of which not all was acknowledged.

    >>> failed("t", [Place("t", 0, 7)])
    """
    errors = [outcome for outcome in outcomes if isinstance(outcome, HeadwaterError)]
    if not errors:
        return None
    if len({type(error) for error in errors}) == 1 and not isinstance(errors[0], NotDelivered):
        kind: type[HeadwaterError] = type(errors[0])
    else:
        kind = NotDelivered
    return kind(
        "write",
        f"{len(errors)} of {len(outcomes)} events to {topic}",
        errors[0].cause,
        "Send those again that have no offset. With an Idempotency-Key all may be sent again.",
    )


def _content(topic: str, problems: Sequence[str | None], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    events = [_event(problem, outcome) for problem, outcome in zip(problems, outcomes, strict=True)]
    written = [
        outcome
        for problem, outcome in zip(problems, outcomes, strict=True)
        if problem is None and isinstance(outcome, Place)
    ]
    return {
        "topic": topic,
        "taken": len(written),
        "refused": sum(problem is not None for problem in problems),
        "token": token_of(written),
        "events": events,
    }


def _event(problem: str | None, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, HeadwaterError):
        return {"failed": outcome.cause} | ({"refused": problem} if problem is not None else {})
    if problem is None:
        return {"partition": outcome.partition, "offset": outcome.offset}
    return {"refused": problem, "kept": outcome._asdict()}


def _problem(error: HeadwaterError, status: int) -> dict[str, Any]:
    return {
        "title": str(error),
        "status": status,
        "operation": error.operation,
        "subject": error.subject,
        "cause": error.cause,
        "next_step": error.next_step,
    }
