"""Open files, kept within the process's limit, and what makes files and directories durable.

A broker of thousands of partitions cannot hold every file open. Files are opened when used and the least
recently used are let go. A file that somebody still holds stays open until they drop it (an ``io.FileIO``
closes with its last reference), so that a sync or a read in another thread never meets a reused descriptor.
"""

import ctypes
import fcntl
import io
import os
import re
import sys
from collections import OrderedDict
from pathlib import Path
from threading import Lock

try:
    import resource
except ImportError:  # Windows has no such limits to raise
    resource = None  # type: ignore[assignment]


class OpenFiles:
    """A bounded cache of files opened for reading and writing.

    >>> files = OpenFiles(capacity=2)
    >>> with __import__("tempfile").TemporaryDirectory() as folder:
    ...     opened = [files.get(os.path.join(folder, name), create=True) for name in "abc"]
    ...     len(files), opened[0].closed
    ...     files.close()
    (2, False)
    """

    def __init__(self, capacity: int = 512) -> None:
        self._capacity = capacity
        self._open: OrderedDict[str, io.FileIO] = OrderedDict()
        self._lock = Lock()
        self._forgotten = 0  # rises whenever a path may have come to mean another file

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str, create: bool = False) -> io.FileIO:
        """The file, opened for reading and writing. Hold on to it while using its descriptor."""
        with self._lock:
            file = self._open.get(path)
            if file is not None:
                self._open.move_to_end(path)
                return file
            forgotten = self._forgotten
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        file = io.FileIO(os.open(path, flags, 0o644), "r+", closefd=True)
        with self._lock:
            already = self._open.get(path)
            if already is not None:
                return already
            if forgotten == self._forgotten:  # else it may be the file that was here before
                self._open[path] = file
                while len(self._open) > self._capacity:
                    self._open.popitem(last=False)
        return file

    def forget(self, path: str) -> None:
        """Let go of a file. Call it after the path was renamed, replaced or deleted, not before: who opens it
        in between would get the old file, and the cache would keep that."""
        with self._lock:
            self._open.pop(path, None)
            self._forgotten += 1

    def close(self) -> None:
        with self._lock:
            self._open.clear()
            self._forgotten += 1


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; returns the limit in force."""
    if resource is None:
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError):
            pass
    return soft


def sync_data(descriptor: int) -> None:
    """Make the content of a file durable, and its size."""
    if sys.platform == "darwin":  # where fsync leaves it in the disk's own cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_directory(path: str | Path) -> None:
    """Make creations, renames and deletions in the directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _kernel_version() -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return tuple(map(int, found.groups())) if found else (0, 0)


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
# Before Linux 5.8, syncfs did not tell of failed writes.
CAN_SYNC_FILE_SYSTEM = _libc is not None and hasattr(_libc, "syncfs") and _kernel_version() >= (5, 8)


def sync_file_system(descriptor: int) -> None:
    """Make all writes to the file system of an open file durable: one wait for any number of files."""
    if _libc is None or _libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def sync_directories(paths: list[Path]) -> None:
    """Make new directories, and the names of the files in them, durable."""
    if not paths:
        return
    if CAN_SYNC_FILE_SYSTEM and len(paths) > 4:
        descriptor = os.open(paths[0], os.O_RDONLY)
        try:
            sync_file_system(descriptor)
        finally:
            os.close(descriptor)
        return
    for path in {*paths, *(path.parent for path in paths)}:
        sync_directory(path)


def write_file(path: Path, content: bytes, sync: bool = True) -> None:
    """Write a whole new file, or none: after an error nothing is left of it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file so that after a crash it is either the old or the new one, whole."""
    temporary = path.with_name(path.name + ".tmp")
    write_file(temporary, content)
    os.replace(temporary, path)
    sync_directory(path.parent)
