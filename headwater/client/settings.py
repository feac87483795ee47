"""Where settings come from: headwater.toml, then the environment, then flags, each overriding the one before.

The file ``headwater.toml`` in the working directory::

    bootstrap = "127.0.0.1:9092"      # or a list of addresses
    data = ".headwater"

    [client]                          # properties of every Kafka client, by librdkafka's names
    "security.protocol" = "SASL_SSL"

    [broker]                          # defaults of `headwater broker`
    port = 9092
    [broker.settings]
    "log.retention.hours" = 24

Keys that this module does not know belong to other parts and are left alone.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import BadInput

FILE = "headwater.toml"
BOOTSTRAP_VARIABLE = "HEADWATER_BOOTSTRAP"
DATA_VARIABLE = "HEADWATER_DATA"
CONFIG_FILE_VARIABLE = "HEADWATER_CONFIG_FILE"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_DATA = ".headwater"


@dataclass(frozen=True)
class Settings:
    """What the parts of Headwater agree on: where the log is, and how to speak to it."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    data: Path = Path(DEFAULT_DATA)
    properties: Mapping[str, str] = field(default_factory=dict)
    broker: Mapping[str, Any] = field(default_factory=dict)


def load_settings(
    *,
    bootstrap: str | None = None,
    data: Path | None = None,
    config_file: Path | None = None,
    properties: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """The settings of this process; the named arguments are what its flags said.

    >>> empty = Path("/nonexistent")
    >>> load_settings(environ={"HEADWATER_BOOTSTRAP": "kafka:9092"}, directory=empty).bootstrap
    'kafka:9092'
    >>> load_settings(bootstrap="other:9092", environ={"HEADWATER_BOOTSTRAP": "kafka:9092"}).bootstrap
    'other:9092'
    """
    if bootstrap == "":  # of a variable that is not set: nobody means any broker that may be near
        raise BadInput("use", "--bootstrap", "it is empty", "Give HOST:PORT.")
    environ = os.environ if environ is None else environ
    path = (directory or Path.cwd()) / FILE
    document = read_toml(path)

    client = dict(_strings(document, "client", path))
    from_flags: dict[str, str] = {}
    if config_file is None and environ.get(CONFIG_FILE_VARIABLE):
        client |= read_properties(Path(environ[CONFIG_FILE_VARIABLE]))
    elif config_file is not None:
        from_flags |= read_properties(config_file)
    from_flags |= parse_pairs(properties, "-X")

    # A property `bootstrap.servers` names the address as well as --bootstrap does, from wherever it comes.
    chosen = (
        bootstrap
        or from_flags.pop("bootstrap.servers", None)
        or environ.get(BOOTSTRAP_VARIABLE)
        or client.pop("bootstrap.servers", None)
        or _address(document, path)
        or DEFAULT_BOOTSTRAP
    )
    client.pop("bootstrap.servers", None)
    from_flags.pop("bootstrap.servers", None)
    return Settings(
        bootstrap=chosen,
        data=data or Path(environ.get(DATA_VARIABLE) or _text(document, "data", path) or DEFAULT_DATA),
        properties=client | from_flags,
        broker=_table(document, "broker", path),
    )


def parse_pairs(pairs: Iterable[str], flag: str) -> dict[str, str]:
    """The ``key=value`` arguments of a repeated flag.

    >>> parse_pairs(["cleanup.policy=compact", "retention.ms=-1"], "--config")
    {'cleanup.policy': 'compact', 'retention.ms': '-1'}
    """
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise BadInput("read", f"{flag} {pair}", "it is not of the form key=value")
        result[key.strip()] = value.strip()
    return result


def read_properties(path: Path) -> dict[str, str]:
    """The ``key=value`` lines of a properties file; ``#`` and ``!`` begin a comment."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("read", str(path), _reason(error), "Name a file of key=value lines.") from error
    lines = [line.strip() for line in text.splitlines()]
    return parse_pairs([line for line in lines if line and line[0] not in "#!"], f"{path}:")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise BadInput("read", str(path), _reason(error), "Correct the file.") from error


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _bad(path: Path, key: str, wanted: str) -> BadInput:
    return BadInput("read", str(path), f"{key!r} must be {wanted}", "Correct the file.")


def _text(document: Mapping[str, Any], key: str, path: Path) -> str | None:
    value = document.get(key)
    if value is None or isinstance(value, str):
        return value
    raise _bad(path, key, "a string")


def _address(document: Mapping[str, Any], path: Path) -> str | None:
    value = document.get("bootstrap")
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if value is None or isinstance(value, str):
        return value
    raise _bad(path, "bootstrap", "an address or a list of addresses")


def _table(document: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise _bad(path, key, "a table")
    return value


def _strings(document: Mapping[str, Any], key: str, path: Path) -> dict[str, str]:
    """A table of properties. TOML's numbers and truths are allowed; tables inside stand for dotted names."""
    return flatten(_table(document, key, path))


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Properties from a TOML table, in which an unquoted dotted key has become nested tables.

    >>> flatten({"log": {"retention": {"hours": 24}}, "auto.create.topics.enable": True})
    {'log.retention.hours': '24', 'auto.create.topics.enable': 'true'}
    """
    result: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            result |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            result[prefix + key] = ",".join(str(item) for item in value)
        else:
            result[prefix + key] = str(value).lower() if isinstance(value, bool) else str(value)
    return result
