"""The group coordinator's APIs, as the broker serves them."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any

from headwater.broker.apis import serve
from headwater.broker.context import RequestContext
from headwater.broker.groups import handlers_admin, handlers_classic, handlers_consumer, handlers_offsets
from headwater.broker.groups.coordinator import GroupCoordinator
from headwater.broker.messages import Fields

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

GroupHandler = Callable[[GroupCoordinator, Any, RequestContext], Coroutine[Any, Any, Fields]]


def _of_broker(handler: GroupHandler) -> Callable[["Broker", Any, RequestContext], Any]:
    @wraps(handler)
    def handle(broker: "Broker", request: Any, context: RequestContext) -> Coroutine[Any, Any, Fields]:
        return handler(broker.groups, request, context)

    return handle


for _key, _low, _high, _handler in (
    (8, 2, 10, handlers_offsets.offset_commit),
    (9, 1, 10, handlers_offsets.offset_fetch),
    (11, 0, 9, handlers_classic.join_group),
    (12, 0, 4, handlers_classic.heartbeat),
    (13, 0, 5, handlers_classic.leave_group),
    (14, 0, 5, handlers_classic.sync_group),
    (15, 0, 6, handlers_admin.describe_groups),
    (16, 0, 5, handlers_admin.list_groups),
    (42, 0, 2, handlers_admin.delete_groups),
    (47, 0, 0, handlers_offsets.offset_delete),
    (68, 0, 1, handlers_consumer.consumer_group_heartbeat),
    (69, 0, 1, handlers_consumer.consumer_group_describe),
):
    serve(_key, _low, _high, _of_broker(_handler))
