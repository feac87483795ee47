"""Finding the application in a Python file."""

import importlib.util
import sys
from pathlib import Path

from headwater.errors import ApplicationInvalid, HeadwaterError
from headwater.streams.app import App

folders: list[Path] = []  # of the applications that were loaded; their modules are nowhere else to be found


def load_app(text: str) -> App:
    """The application of ``shop.py`` or ``shop.py:app``.

    Without a name it is the only one in the file, or the one called ``app``. The file's directory is on the
    path while it is loaded, so that it can import its neighbours.
    """
    file, _, name = text.partition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise ApplicationInvalid(
            "load", f"the application {file}", "there is no such file", "Name a Python file."
        )
    found = {key: value for key, value in _globals(path).items() if isinstance(value, App)}
    if name:
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise ApplicationInvalid(
                "load", f"the application {text}", f"its applications are: {known}", "Name one of them."
            )
        return found[name]
    distinct = {id(app): app for app in found.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if "app" in found:
        return found["app"]
    cause = f"it has {len(distinct)} applications: {', '.join(sorted(found))}" if found else "it has none"
    raise ApplicationInvalid(
        "load",
        f"the application {file}",
        cause,
        f"Name one: {file}:{min(found)}." if found else 'Write app = hw.App("name") in it.',
    )


def _globals(path: Path) -> dict[str, object]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Under its name, so that Spark finds its functions again when it sends them to workers by reference.
    sys.modules[path.stem] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    if path.parent not in folders:
        folders.append(path.parent)
    try:
        spec.loader.exec_module(module)
    except HeadwaterError:
        raise
    except Exception as error:
        line = _line_in(error, path)
        raise ApplicationInvalid(
            "load",
            f"the application {path.name}",
            f"{type(error).__name__}: {error}{f' (line {line})' if line else ''}",
            "Correct the file.",
        ) from error
    return vars(module)


def _line_in(error: Exception, path: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
