"""Whose a data directory is: what marks it as ours, its cluster and node, and the one process that has it.

``DIR/meta.properties``  cluster id and node id, by Kafka's names; its being there makes the directory ours
``DIR/.lock``            held by the process that has the directory open

A directory that holds anything else and has no such mark is somebody's own: nothing is written into it.
"""

import base64
import fcntl
import os
import uuid
from pathlib import Path

from headwater.errors import DirectoryInUse, DirectoryInvalid
from headwater.log.files import replace_file

META = "meta.properties"
CATALOG = "catalog.json"
LOCK = ".lock"
# What is in a directory before it is marked: of a new file system, or of a first start that was cut short.
BEFORE_THE_MARK = frozenset({"lost+found", LOCK, f"{META}.tmp"})
NAMED_STRANGERS = 3


def claim(path: Path) -> tuple[str, int]:
    """Make ``path`` a data directory, or find that it is one; its cluster id and node id.

    DirectoryInvalid for a directory that is somebody else's.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     identity = claim(Path(folder) / "data")
    ...     identity == claim(Path(folder) / "data"), identity[1]
    (True, 1)
    """
    refuse_strange(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DirectoryInvalid("open", str(path), (error.strerror or str(error)).lower()) from error
    meta = path / META
    if meta.exists():
        text = meta.read_text(errors="replace")
        lines = (line.partition("=") for line in text.splitlines() if "=" in line)
        properties = {key.strip(): value.strip() for key, _, value in lines}
        node_id = properties.get("node.id", "1")
        if "cluster.id" in properties:
            if not (node_id.isascii() and node_id.isdigit()):
                raise DirectoryInvalid("open", str(meta), f"node.id {node_id!r} is not a number")
            return properties["cluster.id"], int(node_id)
    cluster_id = kafka_uuid(uuid.uuid4())
    replace_file(meta, f"version=1\ncluster.id={cluster_id}\nnode.id=1\n".encode())
    return cluster_id, 1


def refuse_strange(path: Path) -> None:
    """Raise DirectoryInvalid for a directory with content that is not a data directory."""
    try:
        names = set(os.listdir(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise DirectoryInvalid("open", str(path), (error.strerror or str(error)).lower()) from error
    strangers = sorted(names - BEFORE_THE_MARK)
    if not strangers or META in names or CATALOG in names:
        return
    shown = ", ".join(strangers[:NAMED_STRANGERS])
    others = f" and {len(strangers) - NAMED_STRANGERS} more" if len(strangers) > NAMED_STRANGERS else ""
    cause = f"it is not a data directory: it has no {META}, but {shown}{others}"
    raise DirectoryInvalid("open", str(path), cause)


def take_lock(path: Path) -> int:
    """A descriptor that keeps other processes out of the directory until it is closed."""
    refuse_strange(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DirectoryInvalid("open", str(path), (error.strerror or str(error)).lower()) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise DirectoryInUse("open", str(path), "another process has it open") from None
    return lock


def kafka_uuid(value: uuid.UUID) -> str:
    """A UUID as Kafka prints it: URL-safe base64 without padding.

    >>> kafka_uuid(uuid.UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
