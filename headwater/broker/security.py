"""What a broker without security says to who asks for it: as Kafka does on a plain listener.

There are no access control lists, tokens, passwords or quotas. Who asks for them is told so, in the answers
that Kafka gives where none are set; who wants to set a quota or a password finds that there is no such API.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from headwater.broker.apis import serve
from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode, Fields, moment

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
    """Nobody has a password."""
    results = []
    for name, count in Counter(user.name for user in request.users or ()).items():
        code, message = ErrorCode.resource_not_found, "the user has no credentials"
        if count > 1:
            code, message = ErrorCode.duplicate_resource, "the request names the user twice"
        results.append({"user": name, "error_code": code, "error_message": message, "credential_infos": ()})
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


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


KINDS = frozenset({"user", "client-id", "ip"})
EXACT, DEFAULT, ANY = 0, 1, 2  # how a filter matches names


def describe_client_quotas(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """There are no quotas; a filter that makes no sense is refused nevertheless."""
    kinds = [component.entity_type for component in request.components]
    code, message = ErrorCode.none, None
    if not KINDS.issuperset(kinds):
        code, message = ErrorCode.unsupported_version, "quotas are of users, client ids and addresses"
    elif len(set(kinds)) != len(kinds):
        code, message = ErrorCode.invalid_request, "a kind of entity is there twice"
    for component in request.components:
        if component.match_type not in (EXACT, DEFAULT, ANY):
            code, message = ErrorCode.invalid_request, "there is no such way to match"
        elif (component.match_type == EXACT) != (component.match is not None):
            code, message = ErrorCode.invalid_request, "an exact match needs a name, another has none"
    entries = () if code is ErrorCode.none else None
    return {"error_code": code, "error_message": message, "entries": entries}


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
serve(50, 0, 0, describe_user_scram_credentials)
