"""Whose a data directory is: what marks it as ours, its cluster and node, and the one process that has it.

``DIR/meta.properties``  cluster id and node id, by Kafka's names, with a checksum over them that files of Kafka
                         or of an earlier version lack; its being there makes the directory ours
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
from headwater.log.sealed import BY_HAND, CHECKSUM, checksum

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
        return read_identity(meta)
    cluster_id = kafka_uuid(uuid.uuid4())
    seal = _checksum(cluster_id, "1")
    replace_file(meta, f"version=1\ncluster.id={cluster_id}\nnode.id=1\nchecksum={seal}\n".encode())
    return cluster_id, 1


def read_identity(meta: Path) -> tuple[str, int]:
    """Cluster id and node id as the file has them. DirectoryInvalid when it is damaged: clients take another
    cluster id for another cluster, so there is none made up."""
    text = meta.read_text(errors="replace")
    lines = (line.partition("=") for line in text.splitlines() if "=" in line)
    properties = {key.strip(): value.strip() for key, _, value in lines}
    cluster_id, node_id = properties.get("cluster.id"), properties.get("node.id", "1")
    damage = None
    if not cluster_id:
        damage = "it has no cluster.id"
    elif not (node_id.isascii() and node_id.isdigit()):
        damage = f"node.id {node_id!r} is not a number"
    elif properties.get(CHECKSUM, seal := _checksum(cluster_id, node_id)) != seal:
        damage = "its checksum does not match: an id in it is not as it was written"
    if damage is not None or cluster_id is None:
        advice = f"Restore the file from a copy, or write what belongs there; {BY_HAND}."
        raise DirectoryInvalid("open", str(meta), f"it is damaged: {damage}", advice)
    return cluster_id, int(node_id)


def _checksum(cluster_id: str, node_id: str) -> str:
    return checksum(f"{cluster_id} {node_id}".encode())


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
