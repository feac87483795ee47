"""What administrators set for users and clients: quotas, and passwords for SCRAM.

They are kept and shown as Kafka does on a listener without security, so that tools that manage them work.
Nothing here limits or authenticates anybody: all clients are anonymous, and quotas are not enforced.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from headwater.broker.messages import ErrorCode
from headwater.errors import DirectoryInvalid
from headwater.log.files import replace_file
from headwater.log.segment import storage_error

Entity = frozenset[tuple[str, str | None]]  # kinds and names; None is the default of its kind
Quotas = dict[str, float]

OF_CLIENTS = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
OF_ADDRESSES = frozenset({"connection_creation_rate"})
WHOLE_NUMBERS = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
ENTITY_KINDS = frozenset({"user", "client-id", "ip"})

EXACT, DEFAULT, ANY = 0, 1, 2  # how a filter matches names

SCRAM_MECHANISMS = (1, 2)  # SHA-256, SHA-512
FEWEST_ITERATIONS, MOST_ITERATIONS = 4096, 16384


class NotAccepted(Exception):
    """A change or question that Kafka refuses."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Component(NamedTuple):
    """A part of a filter for quotas: one kind of entity, and which of them."""

    kind: str
    match: int
    name: str | None

    def accepts(self, entity: Mapping[str, str | None]) -> bool:
        if self.kind not in entity:
            return False
        if self.match == ANY:
            return True
        return entity[self.kind] == (self.name if self.match == EXACT else None)


class Accounts:
    """Quotas and credentials, in one file that is replaced whole.

    >>> import tempfile
    >>> user = frozenset({("user", "ada")})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     accounts = Accounts(Path(folder) / "accounts.json")
    ...     accounts.alter_quotas({user: {"producer_byte_rate": 1024.0}})
    ...     Accounts(Path(folder) / "accounts.json").quotas([Component("user", EXACT, "ada")], strict=True)
    [(frozenset({('user', 'ada')}), {'producer_byte_rate': 1024.0})]
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._quotas: dict[Entity, Quotas] = {}
        self._credentials: dict[str, dict[int, dict[str, Any]]] = {}
        self._load()

    def _load(self) -> None:
        try:
            content = orjson.loads(self._path.read_bytes())
        except FileNotFoundError:
            return
        except orjson.JSONDecodeError as error:
            cause = f"it is damaged: {error}"
            raise DirectoryInvalid("read", str(self._path), cause, "Restore the file from a copy.") from None
        for item in content["quotas"]:
            entity = frozenset((kind, name) for kind, name in item["entity"])
            self._quotas[entity] = item["values"]
        for user, mechanisms in content["credentials"].items():
            self._credentials[user] = {int(number): values for number, values in mechanisms.items()}

    def _save(self) -> None:
        content = {
            "quotas": [
                {"entity": sorted(entity, key=str), "values": values}
                for entity, values in self._quotas.items()
            ],
            "credentials": {
                user: {str(number): values for number, values in mechanisms.items()}
                for user, mechanisms in self._credentials.items()
            },
        }
        try:
            replace_file(self._path, orjson.dumps(content, option=orjson.OPT_INDENT_2))
            self._path.chmod(0o600)
        except OSError as error:
            raise storage_error("write", str(self._path), error) from error

    # -- quotas -----------------------------------------------------------------------------------

    def quotas(self, components: Iterable[Component], strict: bool) -> list[tuple[Entity, Quotas]]:
        """The entities that all components accept; ``strict``: and that have no other kinds."""
        wanted = list(components)
        kinds = {component.kind for component in wanted}
        found = []
        for entity, values in self._quotas.items():
            names = dict(entity)
            if all(c.accepts(names) for c in wanted) and not (strict and set(names) - kinds):
                found.append((entity, dict(values)))
        return found

    def alter_quotas(self, changes: Mapping[Entity, Mapping[str, float | None]]) -> None:
        """Set quotas, or with None take them away."""
        before = {entity: dict(values) for entity, values in self._quotas.items()}
        for entity, values in changes.items():
            quotas = self._quotas.setdefault(entity, {})
            for key, value in values.items():
                if value is None:
                    quotas.pop(key, None)
                else:
                    quotas[key] = value
            if not quotas:
                del self._quotas[entity]
        if self._quotas != before:
            try:
                self._save()
            except BaseException:
                self._quotas = before
                raise

    # -- credentials ------------------------------------------------------------------------------

    def credentials(self, user: str) -> list[tuple[int, int]]:
        """Mechanisms and iterations of a user's passwords."""
        mechanisms = self._credentials.get(user, {})
        return sorted((number, values["iterations"]) for number, values in mechanisms.items())

    def users(self) -> list[str]:
        return sorted(self._credentials)

    def alter_credentials(self, changes: Iterable[tuple[str, int, Mapping[str, Any] | None]]) -> None:
        """Set passwords (user, mechanism, values), or with None take them away."""
        before = {user: dict(mechanisms) for user, mechanisms in self._credentials.items()}
        for user, mechanism, values in changes:
            mechanisms = self._credentials.setdefault(user, {})
            if values is None:
                mechanisms.pop(mechanism, None)
            else:
                mechanisms[mechanism] = dict(values)
            if not mechanisms:
                del self._credentials[user]
        if self._credentials != before:
            try:
                self._save()
            except BaseException:
                self._credentials = before
                raise


# -- what may be set -------------------------------------------------------------------------------------


def check_entity(entity: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity, if Kafka has quotas for such a combination."""
    listed = list(entity)
    kinds = {kind for kind, _ in listed}
    if not kinds:
        raise NotAccepted(ErrorCode.invalid_request, "a quota is of somebody")
    if not kinds <= ENTITY_KINDS or len(kinds) != len(listed):
        raise NotAccepted(ErrorCode.invalid_request, "quotas are of users, client ids and addresses")
    if "ip" in kinds and len(kinds) > 1:
        raise NotAccepted(ErrorCode.invalid_request, "an address has quotas of its own")
    if any(name == "" for _, name in listed):
        raise NotAccepted(ErrorCode.invalid_request, "a name is empty")
    return frozenset(listed)


def check_quota(entity: Entity, key: str, value: float | None) -> None:
    """Refuse a quota that the entity cannot have; None takes it away."""
    known = OF_ADDRESSES if any(kind == "ip" for kind, _ in entity) else OF_CLIENTS
    if key not in known:
        raise NotAccepted(ErrorCode.invalid_request, f"the quotas here are {', '.join(sorted(known))}")
    if value is None:
        return
    if value <= 0:
        raise NotAccepted(ErrorCode.invalid_request, "a quota is more than 0")
    if key in WHOLE_NUMBERS and not value.is_integer():
        raise NotAccepted(ErrorCode.invalid_request, "this quota is a whole number")


def check_components(components: Iterable[Component]) -> list[Component]:
    """The parts of a filter, if they make sense."""
    listed = list(components)
    for component in listed:
        if component.kind not in ENTITY_KINDS:
            message = "quotas are of users, client ids and addresses"
            raise NotAccepted(ErrorCode.unsupported_version, message)
        if component.match not in (EXACT, DEFAULT, ANY):
            raise NotAccepted(ErrorCode.invalid_request, "there is no such way to match")
        if component.match == EXACT and component.name is None:
            raise NotAccepted(ErrorCode.invalid_request, "an exact match needs a name")
        if component.match != EXACT and component.name is not None:
            raise NotAccepted(ErrorCode.invalid_request, "only an exact match has a name")
    if len({component.kind for component in listed}) != len(listed):
        raise NotAccepted(ErrorCode.invalid_request, "a kind of entity is there twice")
    return listed


def check_upsertion(user: str, mechanism: int, iterations: int) -> None:
    """Refuse a password that Kafka would."""
    if not user:
        raise NotAccepted(ErrorCode.unacceptable_credential, "the name is empty")
    if mechanism not in SCRAM_MECHANISMS:
        raise NotAccepted(ErrorCode.unsupported_sasl_mechanism, "there is no such mechanism")
    if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        message = f"iterations are {FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
        raise NotAccepted(ErrorCode.unacceptable_credential, message)
