"""A crash at every step: copies of a directory, made before each call that changes a file in it."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHANGES = (
    "replace", "rename", "unlink", "remove", "rmdir", "mkdir", "ftruncate", "truncate", "write", "pwrite",
    "pwritev", "open",
)  # fmt: skip


@contextmanager
def crash_points(directory: Path, copies: Path, *others: Path) -> Iterator[list[Path]]:
    """While this is open, ``directory`` is copied before each change of a file; the copies, in order.

    Each copy is what a kill at that moment would leave. The last is made at the end. ``others`` are copied
    with it, to the same folders.
    """
    made: list[Path] = []
    is_busy = False

    def snapshot() -> None:
        nonlocal is_busy
        if is_busy:
            return
        is_busy = True
        try:
            target = copies / f"{len(made):04d}"
            for each in (directory, *others):
                shutil.copytree(each, target / each.name)
            made.append(target / directory.name)
        finally:
            is_busy = False

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if function is not real["open"] or (len(arguments) > 1 and arguments[1] & os.O_CREAT):
                snapshot()
            return function(*arguments, **options)

        return call

    real = {name: getattr(os, name) for name in CHANGES}
    for name, function in real.items():
        setattr(os, name, watched(function))
    try:
        yield made
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        snapshot()
