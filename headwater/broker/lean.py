"""Importing kio alone, so that a broker starts as quickly where its tests are installed as elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast


@contextmanager
def without_hypothesis() -> Iterator[None]:
    """While this lasts, hypothesis is not found, unless it is loaded already.

    kio makes strategies for it where it is installed, and loading it takes as long as all the rest.
    """
    modules = cast("dict[str, Any]", sys.modules)
    if "hypothesis" in modules:
        yield
        return
    modules["hypothesis"] = None  # by which Python knows a module that cannot be imported
    try:
        yield
    finally:
        del modules["hypothesis"]
