"""What a broker without security says to who asks for it: as Kafka does on a plain listener.

There are no access control lists and no tokens. Quotas and passwords can be set and looked at, and that is
all: see headwater.broker.accounts.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from headwater.broker.accounts import (
    SCRAM_MECHANISMS,
    Component,
    Entity,
    NotAccepted,
    check_components,
    check_entity,
    check_quota,
    check_upsertion,
)
from headwater.broker.apis import serve
from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode, Fields, error, moment
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

NO_AUTHORIZER = "No Authorizer is configured."


# -- access control lists --------------------------------------------------------------------------------


def describe_acls(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    return {"error_code": ErrorCode.security_disabled, "error_message": NO_AUTHORIZER, "resources": []}


def create_acls(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    refused = {"error_code": ErrorCode.security_disabled, "error_message": NO_AUTHORIZER}
    return {"results": [refused for _ in request.creations]}


def delete_acls(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    refused = {"error_code": ErrorCode.security_disabled, "error_message": NO_AUTHORIZER, "matching_acls": []}
    return {"filter_results": [refused for _ in request.filters]}


# -- who is who ------------------------------------------------------------------------------------------


def sasl_handshake(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}


def sasl_authenticate(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    message = "SaslAuthenticate request received after successful authentication"
    return {"error_code": ErrorCode.illegal_sasl_state, "error_message": message}


def describe_user_scram_credentials(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The mechanisms that users have passwords for; of all users when none is named."""
    accounts = broker.accounts
    asked = Counter(user.name for user in request.users or ()) or Counter(accounts.users())
    results = []
    for name, count in asked.items():
        credentials = accounts.credentials(name) if count == 1 else []
        code, message = ErrorCode.none, None
        if count > 1:
            code, message = ErrorCode.duplicate_resource, "the request names the user twice"
        elif not credentials:
            code, message = ErrorCode.resource_not_found, "the user has no credentials"
        infos = [{"mechanism": mechanism, "iterations": iterations} for mechanism, iterations in credentials]
        results.append(
            {"user": name, "error_code": code, "error_message": message, "credential_infos": infos}
        )
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


async def alter_user_scram_credentials(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Set passwords and take them away; each user's changes stand for themselves."""
    counts = Counter((change.name, change.mechanism) for change in (*request.deletions, *request.upsertions))
    results: dict[str, Fields] = {}
    for change in (*request.deletions, *request.upsertions):
        code, message = ErrorCode.none, None
        try:
            if counts[change.name, change.mechanism] > 1:
                raise NotAccepted(ErrorCode.duplicate_resource, "the request changes a credential twice")
            values = None
            if hasattr(change, "iterations"):
                check_upsertion(change.name, change.mechanism, change.iterations)
                values = {
                    "iterations": change.iterations,
                    "salt": change.salt.hex(),
                    "salted_password": change.salted_password.hex(),
                }
            else:
                if change.mechanism not in SCRAM_MECHANISMS:
                    raise NotAccepted(ErrorCode.unsupported_sasl_mechanism, "there is no such mechanism")
                if change.mechanism not in dict(broker.accounts.credentials(change.name)):
                    raise NotAccepted(ErrorCode.resource_not_found, "the user has no such credential")
            new = [(change.name, change.mechanism, values)]
            await broker.change_catalog(broker.accounts.alter_credentials, new)
        except NotAccepted as refused:
            code, message = refused.code, refused.message
        except HeadwaterError as fault:
            code, message = error(fault.kafka_code), str(fault)
        if change.name not in results or code is not ErrorCode.none:
            results[change.name] = {"user": change.name, "error_code": code, "error_message": message}
    return {"results": tuple(results.values())}


NO_TIME = moment(-1)


def create_delegation_token(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    return {
        "error_code": ErrorCode.delegation_token_request_not_allowed,
        "principal_type": "User",
        "principal_name": "ANONYMOUS",
        "token_requester_principal_type": "User",
        "token_requester_principal_name": "ANONYMOUS",
        "issue_timestamp": NO_TIME,
        "expiry_timestamp": NO_TIME,
        "max_timestamp": NO_TIME,
    }


def renew_delegation_token(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    return {"error_code": ErrorCode.delegation_token_request_not_allowed, "expiry_timestamp": NO_TIME}


def expire_delegation_token(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    return {"error_code": ErrorCode.delegation_token_request_not_allowed, "expiry_timestamp": NO_TIME}


def describe_delegation_token(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    return {"error_code": ErrorCode.delegation_token_request_not_allowed, "tokens": ()}


# -- quotas ----------------------------------------------------------------------------------------------


def describe_client_quotas(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The quotas that are set."""
    try:
        components = check_components(
            Component(c.entity_type, c.match_type, c.match) for c in request.components
        )
    except NotAccepted as refused:
        return {"error_code": refused.code, "error_message": refused.message, "entries": None}
    entries = [
        {"entity": _entity(entity), "values": [{"key": key, "value": value} for key, value in values.items()]}
        for entity, values in broker.accounts.quotas(components, request.strict)
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}


async def alter_client_quotas(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Set quotas and take them away."""
    entries = []
    for entry in request.entries:
        listed = [(item.entity_type, item.entity_name) for item in entry.entity]
        code, message = ErrorCode.none, None
        try:
            entity = check_entity(listed)
            changes = {item.key: None if item.remove else float(item.value) for item in entry.ops}
            for key, value in changes.items():
                check_quota(entity, key, value)
            if not request.validate_only:
                await broker.change_catalog(broker.accounts.alter_quotas, {entity: changes})
        except NotAccepted as refused:
            code, message = refused.code, refused.message
        except HeadwaterError as fault:
            code, message = error(fault.kafka_code), str(fault)
        names = [{"entity_type": kind, "entity_name": name} for kind, name in listed]
        entries.append({"error_code": code, "error_message": message, "entity": names})
    return {"entries": entries}


def _entity(entity: Entity) -> list[Fields]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in sorted(entity, key=str)]


serve(17, 0, 1, sasl_handshake)
serve(29, 1, 3, describe_acls)
serve(30, 1, 3, create_acls)
serve(31, 1, 3, delete_acls)
serve(36, 0, 2, sasl_authenticate)
serve(38, 1, 3, create_delegation_token)
serve(39, 1, 2, renew_delegation_token)
serve(40, 1, 2, expire_delegation_token)
serve(41, 1, 3, describe_delegation_token)
serve(48, 0, 1, describe_client_quotas)
serve(49, 0, 1, alter_client_quotas)
serve(50, 0, 0, describe_user_scram_credentials)
serve(51, 0, 0, alter_user_scram_credentials)
