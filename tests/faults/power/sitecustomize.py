"""Loaded by Python itself when this folder is on PYTHONPATH: notes which bytes of a file are safe on disk.

Each line of the file ``HEADWATER_POWER_JOURNAL`` is ``synced <size> <path>`` after a sync has returned, or
``moved <old path> TAB <new path>``. A line is one write in append mode: it is there whole or not at all, and
before whatever the process does next. Files that end in ``HEADWATER_POWER_LIE`` are left out, as if the disk
had said that it holds them when it does not.
"""

import os
import time
from collections.abc import Callable
from typing import Any

_journal = os.environ.get("HEADWATER_POWER_JOURNAL")
_lie = os.environ.get("HEADWATER_POWER_LIE", "")


def _watch(journal: int) -> None:
    def syncing(real: Callable[[int], None]) -> Callable[[Any], None]:
        def sync(file: Any) -> None:
            descriptor = file if isinstance(file, int) else file.fileno()
            size = os.fstat(descriptor).st_size  # what is written during the sync may not be part of it
            time.sleep(0.01)  # a slow disk, so that a cut finds something that is not synced
            real(descriptor)
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if not (_lie and path.endswith(_lie)):
                os.write(journal, f"synced {size} {path}\n".encode())

        return sync

    def moving(real: Callable[..., None]) -> Callable[..., None]:
        def move(source: Any, target: Any, **options: Any) -> None:
            before, after = os.path.abspath(os.fspath(source)), os.path.abspath(os.fspath(target))
            real(source, target, **options)
            os.write(journal, f"moved {before}\t{after}\n".encode())

        return move

    os.fsync = syncing(os.fsync)  # type: ignore[assignment]
    os.fdatasync = syncing(os.fdatasync)  # type: ignore[assignment]
    os.replace = moving(os.replace)
    os.rename = moving(os.rename)


if _journal:
    _watch(os.open(_journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
