"""Printing: tables for people on a terminal, tab-separated lines for programs, JSON when asked for."""

import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

STDOUT = 1


def say(text: str) -> None:
    """A line on standard output that says what was done."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """A line for the person at the keyboard, on standard error, out of the way of the data."""
    print(text, file=sys.stderr, flush=True)


def complain(text: str) -> None:
    """One line on standard error that says what went wrong."""
    note("headwater: " + " ".join(text.split()))


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on a line of its own."""
    import orjson

    sys.stdout.write(orjson.dumps(value).decode() + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, kind: str | None = None) -> None:
    """Rows under column names on a terminal, and as tab-separated lines without names elsewhere.

    ``kind`` stands in front of each line when a verb prints several sorts of lines to a pipe. None is shown
    as "-", and columns that hold only numbers stand to the right.
    """
    rows = [tuple(row) for row in rows]
    if not sys.stdout.isatty():
        for row in rows:
            fields = ([kind] if kind else []) + [_cell(value) for value in row]
            sys.stdout.write("\t".join(fields) + "\n")
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, name in enumerate(columns):
        numeric = all(isinstance(row[index], int | float | None) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    Console().print(table)


def print_heading(text: str) -> None:
    """A line above a table; only people need it."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        Console().print(Text("\n" + text, style="bold"))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    # A tab or a line break in a name would break the line for programs that read it.
    return str(value).replace("\t", " ").replace("\n", " ")


def write_out(data: bytes, give_up: Callable[[], bool]) -> bool:
    """Write all of ``data`` to standard output, past Python's buffer: when this returns True, it is out.

    While nobody takes the output (a pager waits, a terminal is stopped) it asks ``give_up`` now and then.
    """
    poller = select.poll()
    poller.register(STDOUT, select.POLLOUT)
    # A pipe that takes anything takes this much without making us wait, where nothing could interrupt us.
    piece = 1 << 20 if stat.S_ISREG(os.fstat(STDOUT).st_mode) else select.PIPE_BUF
    view = memoryview(data)
    while view:
        if poller.poll(100):
            view = view[os.write(STDOUT, view[:piece]) :]
        elif give_up():
            return False
    return True


def reader_is_gone() -> bool:
    """Whether standard output is a pipe whose other end was closed, as by ``| head``."""
    poller = select.poll()
    poller.register(STDOUT, 0)
    return any(events & select.POLLERR for _, events in poller.poll(0))
