"""The APIs that the broker serves: key, name, versions, handler. What is not here is not advertised."""

from collections.abc import Callable
from typing import Any, NamedTuple

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18


class Api(NamedTuple):
    """One API in all its versions."""

    key: int
    name: str
    low: int
    high: int
    handler: Callable[..., Any]


APIS: dict[int, Api] = {}


def serve(key: int, low: int, high: int, handler: Callable[..., Any]) -> None:
    """Serve versions ``low`` to ``high`` of the API by ``handler(broker, request, context)``.

    The handler returns the response's fields (see headwater.broker.messages), or a coroutine of them, or the
    response's bytes.
    """
    name = handler.__name__.replace("_", " ").title().replace(" ", "")
    APIS[key] = Api(key, name, low, high, handler)


def _not_a_handler(*_: Any) -> Any:
    raise AssertionError("Produce and Fetch are started by the connection")


APIS[PRODUCE] = Api(PRODUCE, "Produce", 3, 13, _not_a_handler)
APIS[FETCH] = Api(FETCH, "Fetch", 4, 18, _not_a_handler)
