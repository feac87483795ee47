"""Finding the application in a Python file."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.errors import ApplicationInvalid, HeadwaterError
from headwater.streams.app import App
from headwater.streams.faults import line_in, reason

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
        with _types_of_functions_unread():
            spec.loader.exec_module(module)
    except HeadwaterError:
        raise
    except Exception as error:
        if _asks_for_spark(error):
            raise ApplicationInvalid(
                "load",
                f"the application {path.name}",
                f"line {line_in(error, path)} needs Spark, which is started when the file has been read",
                "Write it inside of the function that uses it.",
            ) from error
        raise _unloadable(path, error) from error
    except SystemExit as error:  # the process would end without a word
        raise _unloadable(path, error) from error
    return vars(module)


def _unloadable(path: Path, error: BaseException) -> ApplicationInvalid:
    return ApplicationInvalid(
        "load", f"the application {path.name}", reason(error, path), "Correct the file."
    )


@contextmanager
def _types_of_functions_unread() -> Iterator[None]:
    """Lets a file declare functions for Spark's workers, as in ``@F.udf("string")``, before there is a Spark.

    PySpark asks Spark at once what the text of the type means, only to show it as an attribute of the function; when
    the function is used it asks again.
    """
    from pyspark import SparkContext
    from pyspark.sql.udf import UserDefinedFunction

    asking: Any = UserDefinedFunction.returnType

    def unread(function: UserDefinedFunction) -> Any:
        if isinstance(function._returnType, str) and SparkContext._active_spark_context is None:
            return function._returnType
        return asking.__get__(function)

    UserDefinedFunction.returnType = property(unread)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        UserDefinedFunction.returnType = asking  # type: ignore[method-assign]


def _asks_for_spark(error: BaseException) -> bool:
    """Whether PySpark itself failed because there is no Spark yet: it says so in several ways."""
    import pyspark
    from pyspark.errors import PySparkRuntimeError

    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    inside = trace is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(
        Path(pyspark.__file__).parent
    )
    return (
        inside
        and pyspark.SparkContext._active_spark_context is None
        and isinstance(error, AssertionError | AttributeError | PySparkRuntimeError)
    )
