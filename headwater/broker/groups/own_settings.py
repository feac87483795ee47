"""Settings that single groups have of their own (KIP-848), by name, whether or not there is such a group.

They are kept in ``DIR/groups.json``: ``{"version": 1, "groups": {group: {setting: value}}}`` with a checksum
(headwater.log.sealed). The file is replaced whole.
"""

from collections.abc import Mapping
from pathlib import Path

from headwater.broker.groups.limits import MAX_CHARACTERS
from headwater.broker.groups.settings import GroupSettings
from headwater.errors import DirectoryInvalid, InvalidConfig
from headwater.log.config import Kind, Setting
from headwater.log.files import replace_file
from headwater.log.sealed import BY_HAND, Spoilt, seal, unseal
from headwater.log.segment import storage_error

VERSION = 1
MOST_GROUPS = 10_000  # all are in memory, and the file is written whole with each change
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

# Kafka has limits for them (45 to 60 s, 5 to 15 s) that spare a cluster its heartbeats; one broker need not.
SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            SESSION, Kind.INT, "45000", f"group.{SESSION}", "A member that is silent so long is out.", low=1
        ),
        Setting(HEARTBEAT, Kind.INT, "5000", f"group.{HEARTBEAT}", "How often members report.", low=1),
    )
}


class OwnSettings:
    """What is set for single groups; without a path it is kept in memory alone.

    >>> own = OwnSettings(GroupSettings())
    >>> own.replace("quick", {"consumer.session.timeout.ms": "6000"})
    >>> own.session_timeout_ms("quick"), own.session_timeout_ms("another"), own.groups()
    (6000, 45000, ['quick'])
    """

    def __init__(self, common: GroupSettings, path: Path | None = None) -> None:
        self._common = common
        self._path = path
        self._own: dict[str, dict[str, str]] = {}
        if path is not None and path.exists():
            self._own = _read(path)

    def groups(self) -> list[str]:
        """The groups that something is set for."""
        return list(self._own)

    def of(self, group_id: str) -> Mapping[str, str]:
        """What is set for the group."""
        return self._own.get(group_id, {})

    def common(self, name: str) -> str:
        """What groups have that nothing is set for."""
        both = {
            SESSION: self._common.consumer_session_timeout_ms,
            HEARTBEAT: self._common.consumer_heartbeat_interval_ms,
        }
        return str(both[name])

    def session_timeout_ms(self, group_id: str) -> int:
        return self._value(self.of(group_id), SESSION)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._value(self.of(group_id), HEARTBEAT)

    def _value(self, own: Mapping[str, str], name: str) -> int:
        return int(own[name] if name in own else self.common(name))

    def check(self, own: Mapping[str, str]) -> None:
        """Raise InvalidConfig for settings that no group can have."""
        for name, value in own.items():
            if name not in SETTINGS:
                raise InvalidConfig("alter", name, "no group setting has this name")
            SETTINGS[name].parse(value)
        session, heartbeat = self._value(own, SESSION), self._value(own, HEARTBEAT)
        if session <= heartbeat:
            cause = f"a session of {session} ms is not longer than {heartbeat} ms between heartbeats"
            raise InvalidConfig("alter", SESSION, cause)

    def replace(self, group_id: str, own: Mapping[str, str]) -> None:
        """Set these for the group and no others; durable when this returns. Members hear of it as they report."""
        self.check(own)
        if own and len(group_id) > MAX_CHARACTERS:
            cause = f"no group has a name of {len(group_id)} characters: {MAX_CHARACTERS} is the most"
            raise InvalidConfig("alter", "a group", cause)
        if own and group_id not in self._own and len(self._own) >= MOST_GROUPS:
            cause = f"{MOST_GROUPS} groups have settings of their own already"
            advice = "Delete those of groups that are gone: headwater broker keeps them until then."
            raise InvalidConfig("alter", f"group {group_id}", cause, advice)
        future = {**self._own, group_id: dict(own)}
        if not own:
            del future[group_id]
        if self._path is not None:
            try:
                replace_file(self._path, seal({"version": VERSION, "groups": future}))
            except OSError as error:
                raise storage_error("set the configuration of", f"group {group_id}", error) from error
        self._own = future


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        content = unseal(path.read_bytes())
        found = content["groups"] if content.get("version") == VERSION else content  # as it was before
        return {str(group): {str(k): str(v) for k, v in own.items()} for group, own in found.items()}
    except OSError as error:
        raise storage_error("read", str(path), error) from error
    except (AttributeError, KeyError, Spoilt) as error:
        advice = "Restore the file from a copy, or delete it and set again what groups had of their own"
        advice = f"{advice}; {BY_HAND}."
        raise DirectoryInvalid("open", str(path), f"it is damaged: {error}", advice) from None
