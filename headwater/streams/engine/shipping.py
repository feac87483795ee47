"""How Spark's workers get an application's own code: by value, since they cannot import its file.

A function that Spark sends to a worker is named there by its module, and the module is imported. An application is a
file that somebody named on the command line, with its neighbours beside it; no worker knows where that is, and on a
cluster it is on another machine. So the functions of these modules are sent as they are. (Modules that are installed
are imported as ever: they have to be there.)
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle


def send_by_value(folders: Iterable[Path]) -> list[str]:
    """Has what was loaded from these folders sent by value from now on; the names of these modules."""
    sent = []
    for folder in folders:
        for module in list(sys.modules.values()):
            if _lies_in(folder, module):
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
                sent.append(module.__name__)
    return sent


def _lies_in(folder: Path, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not file or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "headwater":
        return False
    path = Path(file)
    if not path.is_absolute() or not path.is_relative_to(folder):
        return False
    return not {"site-packages", "dist-packages"} & set(path.relative_to(folder).parts)
