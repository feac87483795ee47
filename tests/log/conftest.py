"""Where the tests of the storage keep their files."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where there is such a file system: thousands of syncs then take no time."""
    in_memory = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)
    path = Path(tempfile.mkdtemp(prefix="headwater-", dir=_MEMORY if in_memory else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)
