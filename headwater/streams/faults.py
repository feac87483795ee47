"""What went wrong in the application's own Python, or in Spark, as one line of an error."""

from pathlib import Path

from pyspark.errors import PySparkException


def reason(error: BaseException, file: str | Path) -> str:
    """What Python says of it, with the last line of the file that led there.

    >>> reason(KeyError("page"), "shop.py")
    "KeyError: 'page'"
    >>> reason(AssertionError(), "shop.py")
    'AssertionError'
    """
    said = " ".join(str(error).split())
    line = line_in(error, file)
    return f"{type(error).__name__}{f': {said}' if said else ''}{f' (line {line})' if line else ''}"


def line_in(error: BaseException, file: str | Path) -> int | None:
    """The innermost line of the file on the way to the error."""
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def sentence(error: PySparkException) -> str:
    """Spark's reason without the error class before it, the plan behind it and the SQL state.

    >>> sentence(PySparkException("\\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601\\n== SQL =="))
    "Syntax error at or near 'x'"
    """
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__).strip()
    if text.startswith("["):
        text = text.partition("] ")[2]
    return text.partition(" SQLSTATE")[0].rstrip(".; ")
