"""Settings of topics and of the broker: describe and alter."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.broker.answers import breathe, encoded
from headwater.broker.apis import serve
from headwater.broker.context import RequestContext
from headwater.broker.groups.own_settings import SETTINGS as GROUP_SETTINGS
from headwater.broker.live_settings import (
    ALL,
    FROM_ALL,
    FROM_DEFAULT,
    FROM_OWN,
    FROM_START,
    KNOWN,
    LIVE,
    OWN,
    Origin,
    setting_of,
)
from headwater.broker.messages import ErrorCode, Fields, error
from headwater.errors import HeadwaterError, InvalidConfig
from headwater.log.config import SETTINGS, Kind, Setting, check_overrides
from headwater.log.topic import check_topic_name

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
UNKNOWN_TYPE = 0
FROM_TOPIC, FROM_GROUP = 1, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


# -- describing ----------------------------------------------------------------------------------------


async def describe_configs(broker: "Broker", request: Any, context: RequestContext) -> Fields | bytes:
    """The settings in force, where each comes from, and what it would be otherwise."""
    known: dict[tuple[int, str, Any], dict[str, Any]] = {}  # a request may ask for one resource many times
    results = []
    entries = 0
    for number, resource in enumerate(request.resources):
        key = (resource.resource_type, resource.resource_name, resource.configuration_keys)
        if key not in known:
            known[key] = _described(broker, resource, request)
        results.append(known[key])
        entries += len(known[key]["configs"])
        await breathe(number)
    return await encoded(broker, context, {"results": results}, entries)


def _described(broker: "Broker", resource: Any, request: Any) -> dict[str, Any]:
    result: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": (),
    }
    try:
        configs = _describe(broker, resource.resource_type, resource.resource_name)
    except HeadwaterError as fault:
        return result | {"error_code": error(fault.kafka_code), "error_message": str(fault)}
    # An empty list means all of them, too: old clients send it for null.
    wanted = set(resource.configuration_keys or ())
    if wanted:
        configs = [config for config in configs if config["name"] in wanted]
    for config in configs:
        if not getattr(request, "include_synonyms", False):
            config["synonyms"] = ()
        if not getattr(request, "include_documentation", False):
            config["documentation"] = None
    return result | {"configs": configs}


def _describe(broker: "Broker", kind: int, name: str) -> list[dict[str, Any]]:
    if kind == TOPIC:
        check_topic_name(name)
        topic = broker.directory.topic(name)
        return [_topic_setting(broker, setting, topic.overrides) for setting in SETTINGS.values()]
    if kind in (BROKER, BROKER_LOGGER):
        _check_broker(broker, "describe", name)
        if kind == BROKER_LOGGER:
            return []
        return _broker_settings(broker) if name else _settings_of_all_brokers(broker)
    if kind == GROUP:
        return [_group_setting(broker, setting, name) for setting in GROUP_SETTINGS.values()]
    if kind == CLIENT_METRICS:
        return []
    raise Rejected("describe", f"resource {name}", f"resources of type {kind} have no settings here")


def _check_broker(broker: "Broker", operation: str, name: str) -> None:
    if name not in ("", str(broker.directory.node_id)):
        raise Rejected(operation, f"broker {name}", f"this is broker {broker.directory.node_id}")


class Rejected(HeadwaterError):
    """A request about settings that makes no sense."""

    kafka_code = ErrorCode.invalid_request
    next_step = "Name a topic or the broker, and every setting once."


def _topic_setting(broker: "Broker", setting: Setting, overrides: Mapping[str, str]) -> dict[str, Any]:
    origins = broker.live.origins(setting.broker_name) if setting.broker_name is not None else ()
    synonyms = [_synonym(each) for each in origins]
    if setting.name in overrides:
        own = Origin(setting.name, overrides[setting.name], FROM_TOPIC)
        synonyms.insert(0, _synonym(own))
    in_force = synonyms[0] if synonyms else {"value": setting.default, "source": FROM_DEFAULT}
    return {
        "name": setting.name,
        "value": in_force["value"],
        "read_only": False,
        "config_source": in_force["source"],
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": setting.kind.value,
        "documentation": setting.doc,
    }


def _synonym(origin: Origin) -> dict[str, Any]:
    return {"name": origin.name, "value": origin.value, "source": origin.source}


def _broker_settings(broker: "Broker") -> list[dict[str, Any]]:
    fixed = {
        "node.id": str(broker.directory.node_id),
        "log.dirs": str(broker.directory.path),
        "advertised.listeners": f"PLAINTEXT://{broker.address}",
        "listeners": f"PLAINTEXT://{broker.address}",
    }
    settings = [
        _broker_setting(setting_of(name), [Origin(name, value, FROM_START)]) for name, value in fixed.items()
    ]
    others = [name for name in (*broker.live.of(OWN), *broker.live.of(ALL)) if name not in KNOWN]
    names = dict.fromkeys((*KNOWN, *others))
    return settings + [_broker_setting(setting_of(name), broker.live.origins(name)) for name in names]


def _settings_of_all_brokers(broker: "Broker") -> list[dict[str, Any]]:
    """What is set for all brokers, and nothing else."""
    return [
        _broker_setting(setting_of(name), [Origin(name, value, FROM_ALL)])
        for name, value in broker.live.of(ALL).items()
    ]


def _broker_setting(setting: Setting, origins: Sequence[Origin]) -> dict[str, Any]:
    origins = origins or [Origin(setting.name, setting.default, FROM_DEFAULT)]
    described: dict[str, Any] = {
        "name": setting.name,
        "value": origins[0].value,
        "read_only": setting.name not in LIVE,
        "config_source": origins[0].source,
        "is_sensitive": False,
        "synonyms": [_synonym(each) for each in origins],
        "config_type": setting.kind.value,
        "documentation": setting.doc,
    }
    if setting.name not in KNOWN and origins[0].source in (FROM_OWN, FROM_ALL):
        # Nothing is known of it: it may be a password.
        described |= {"value": None, "is_sensitive": True, "config_type": UNKNOWN_TYPE}
        described["synonyms"] = [synonym | {"value": None} for synonym in described["synonyms"]]
    return described


def _group_setting(broker: "Broker", setting: Setting, group_id: str) -> dict[str, Any]:
    own, common = broker.groups.own_settings.of(group_id), broker.groups.own_settings.common(setting.name)
    source = FROM_DEFAULT if common == setting.default else FROM_START
    origins = [Origin(setting.broker_name or "", common, source)]
    if setting.name in own:
        origins.insert(0, Origin(setting.name, own[setting.name], FROM_GROUP))
    return _broker_setting(setting, origins) | {"read_only": False}


def topic_config_fields(broker: "Broker", overrides: Mapping[str, str]) -> list[dict[str, Any]]:
    """The settings of a topic as CreateTopics answers them."""
    told = ("name", "value", "read_only", "config_source", "is_sensitive")
    settings = (_topic_setting(broker, setting, overrides) for setting in SETTINGS.values())
    return [{name: setting[name] for name in told} for setting in settings]


def list_config_resources(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The resources that have settings; version 0 asks for client metrics, of which there are none."""
    kinds = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
    wanted = {CLIENT_METRICS} if context.version == 0 else set(request.resource_types) or set(kinds)
    if not wanted <= set(kinds):
        return {"error_code": ErrorCode.unsupported_version, "config_resources": ()}
    resources = []
    if TOPIC in wanted:
        names = list(broker.directory.topics)
        resources += [{"resource_name": name, "resource_type": TOPIC} for name in names]
    node = str(broker.directory.node_id)
    resources += [
        {"resource_name": node, "resource_type": kind} for kind in (BROKER, BROKER_LOGGER) if kind in wanted
    ]
    if GROUP in wanted:
        names = broker.groups.own_settings.groups()
        resources += [{"resource_name": name, "resource_type": GROUP} for name in names]
    return {"error_code": ErrorCode.none, "config_resources": resources}


# -- altering ------------------------------------------------------------------------------------------


async def alter_configs(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Replace all settings of topics, groups and the broker."""

    def wanted(resource: Any, owner: _Owner) -> dict[str, str]:
        _check_once(config.name for config in resource.configs)
        for config in resource.configs:
            if config.value is None:
                raise Rejected("alter", config.name, "there is no value to set")
        return {config.name: config.value for config in resource.configs}

    return await _alter_all(broker, request, wanted)


async def incremental_alter_configs(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Change single settings of topics, groups and the broker."""

    def wanted(resource: Any, owner: _Owner) -> dict[str, str]:
        return apply_changes(
            owner.overrides,
            ((config.name, config.config_operation, config.value) for config in resource.configs),
            owner.defaults,
            owner.settings,
        )

    return await _alter_all(broker, request, wanted)


@dataclass(frozen=True)
class _Owner:
    """Whose settings change: what can be set, what is set, and what takes its place otherwise."""

    settings: Mapping[str, Setting]
    overrides: Mapping[str, str]
    defaults: Mapping[str, str]
    check: Callable[[Mapping[str, str]], None]
    replace: Callable[[str, Mapping[str, str]], None]


async def _alter_all(
    broker: "Broker", request: Any, wanted: Callable[[Any, _Owner], dict[str, str]]
) -> Fields:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        fault: HeadwaterError | None = None
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise Rejected("alter", resource.resource_name, "the request names it twice")
            if request.validate_only:
                _alter(broker, resource, wanted, validate_only=True)
            else:
                await broker.change_catalog(_alter, broker, resource, wanted)
        except HeadwaterError as refused:
            fault = refused
        responses.append(_altered(resource, fault))
    return {"responses": responses}


def _alter(
    broker: "Broker",
    resource: Any,
    wanted: Callable[[Any, _Owner], dict[str, str]],
    validate_only: bool = False,
) -> None:
    """One change, which begins with what the one before it left: they come one after another."""
    owner = _owner(broker, resource)
    overrides = {name: value.strip() for name, value in wanted(resource, owner).items()}
    owner.check(overrides)
    if not validate_only:
        owner.replace(resource.resource_name, overrides)


def _check_once(names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise Rejected("alter", name, "the request changes it twice")


def apply_changes(
    overrides: Mapping[str, str],
    changes: Iterable[tuple[str, int, str | None]],
    defaults: Mapping[str, str] | None = None,
    settings: Mapping[str, Setting] = SETTINGS,
) -> dict[str, str]:
    """``overrides`` after set, delete, append and subtract.

    >>> apply_changes({"cleanup.policy": "delete"}, [("cleanup.policy", APPEND, "compact")])
    {'cleanup.policy': 'delete,compact'}
    """
    changed = dict(overrides)
    changes = list(changes)
    _check_once(name for name, _, _ in changes)
    for name, operation, value in changes:
        if operation == DELETE:
            changed.pop(name, None)
            continue
        setting = settings.get(name)
        if setting is None:
            raise InvalidConfig("alter", name, "no setting has this name")
        if value is None:
            raise Rejected("alter", name, "there is no value to set")
        if operation == SET:
            changed[name] = value
        elif operation in (APPEND, SUBTRACT) and setting.kind is Kind.LIST:
            current = changed.get(name, (defaults or {}).get(name, setting.default))
            items = list(setting.parse(current))
            for item in (part.strip() for part in value.split(",")):
                if operation == APPEND and item not in items:
                    items.append(item)
                elif operation == SUBTRACT and item in items:
                    items.remove(item)
            changed[name] = ",".join(items)
        else:
            raise InvalidConfig("alter", name, f"operation {operation} does not fit a {setting.kind.name}")
    return changed


def _owner(broker: "Broker", resource: Any) -> _Owner:
    kind, name = resource.resource_type, resource.resource_name
    if kind == BROKER:
        return _broker_as_owner(broker, name, [config.name for config in resource.configs])
    if kind not in (TOPIC, GROUP):
        cause = "only topics, groups and the broker have settings that change"
        raise Rejected("alter", f"resource {name!r}", cause)
    if not name:
        raise Rejected("alter", "all topics or groups", "they are altered one by one")
    if kind == GROUP:
        own = broker.groups.own_settings
        return _Owner(GROUP_SETTINGS, own.of(name), {}, own.check, own.replace)
    check_topic_name(name)
    topic, directory = broker.directory.topic(name), broker.directory
    return _Owner(SETTINGS, topic.overrides, directory.defaults, check_overrides, directory.set_config)


def _broker_as_owner(broker: "Broker", name: str, named: Iterable[str]) -> _Owner:
    """The broker by its number, or all of them, without one. Kafka appends to the default, whatever is set."""
    _check_broker(broker, "alter", name)
    whose = OWN if name else ALL

    def check(changed: Mapping[str, str]) -> None:
        broker.check_settings(whose, changed)

    def change(_: str, changed: Mapping[str, str]) -> None:
        broker.change_settings(whose, changed)

    settings = {each: setting_of(each) for each in named}
    return _Owner(settings, broker.live.of(whose), {}, check, change)


def _altered(resource: Any, fault: HeadwaterError | None) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none if fault is None else error(fault.kafka_code),
        "error_message": None if fault is None else str(fault),
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


serve(32, 1, 4, describe_configs)
serve(33, 0, 2, alter_configs)
serve(44, 0, 1, incremental_alter_configs)
serve(74, 0, 1, list_config_resources)
