"""Where an application runs: the addresses that turn a laptop into a cluster, and nothing else.

Besides what every part knows (see ``headwater.client.settings``), ``headwater.toml`` may say::

    store = "postgresql://..."                 # HEADWATER_STORE; else SQLite in the data directory
    jars = "/opt/headwater/jars"               # HEADWATER_JARS: a folder with the jars of Spark's Kafka connector

    [spark]
    master = "spark://127.0.0.1:7077"          # HEADWATER_SPARK_MASTER; else local mode in this process
    checkpoints = "s3a://bucket/checkpoints"   # HEADWATER_CHECKPOINTS; else in the data directory
    source = "connector"                       # HEADWATER_SOURCE: Spark's Kafka connector; else "python", ours
    [spark.settings]                           # any of Spark's own
    "spark.executor.memory" = "4g"
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.client.settings import FILE, flatten, load_settings, read_toml
from headwater.errors import BadInput

STORE_VARIABLE = "HEADWATER_STORE"
MASTER_VARIABLE = "HEADWATER_SPARK_MASTER"
CHECKPOINTS_VARIABLE = "HEADWATER_CHECKPOINTS"
SOURCE_VARIABLE = "HEADWATER_SOURCE"
JARS_VARIABLE = "HEADWATER_JARS"


@dataclass(frozen=True)
class StreamSettings:
    """The addresses and directories of a running application."""

    bootstrap: str
    data: Path
    store: str
    master: str
    checkpoints: str
    properties: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    jars: Path | None = None
    source: str = "python"

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in this process."""
        return self.master.startswith("local")


def load_stream_settings(
    *,
    application: Path | None = None,
    bootstrap: str | None = None,
    data: Path | None = None,
    store: str | None = None,
    master: str | None = None,
    properties: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> StreamSettings:
    """The settings of this process; the named arguments are what its flags said.

    The data directory lies beside the application unless somebody says otherwise.

    >>> load_stream_settings(application=Path("/srv/shop.py"), environ={}, directory=Path("/nonexistent")).store
    'sqlite:////srv/.headwater/views.db'
    """
    environ = os.environ if environ is None else environ
    common = load_settings(
        bootstrap=bootstrap, data=data, properties=properties, environ=environ, directory=directory
    )
    path = (directory or Path.cwd()) / FILE
    document = read_toml(path)
    folder = common.data
    if not folder.is_absolute():
        named = data is not None or environ.get("HEADWATER_DATA") or "data" in document
        beside = application.parent if application is not None and not named else Path.cwd()
        folder = (beside / folder).absolute()
    section = document.get("spark", {})
    if not isinstance(section, dict):
        raise BadInput("read", str(path), "[spark] is not a table", "Write [spark] and its keys below it.")
    jars = environ.get(JARS_VARIABLE) or _text(document, "jars", path)
    source = environ.get(SOURCE_VARIABLE) or _text(section, "source", path) or "python"
    if source not in ("python", "connector"):
        raise BadInput(
            "use", f"the source {source!r}", "there is no such source", "Say 'python' or 'connector'."
        )
    return StreamSettings(
        bootstrap=common.bootstrap,
        data=folder,
        store=store
        or environ.get(STORE_VARIABLE)
        or _text(document, "store", path)
        or f"sqlite:///{folder / 'views.db'}",
        master=master
        or environ.get(MASTER_VARIABLE)
        or _text(section, "master", path)
        or f"local[{max(2, os.cpu_count() or 2)}]",
        checkpoints=environ.get(CHECKPOINTS_VARIABLE)
        or _text(section, "checkpoints", path)
        or str(folder / "checkpoints"),
        properties=common.properties,
        spark=flatten(section.get("settings", {})),
        jars=Path(jars) if jars else None,
        source=source,
    )


def _text(table: Mapping[str, Any], key: str, path: Path) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise BadInput("read", str(path), f"{key} is not a text", f'Write {key} = "...".')
    return value
