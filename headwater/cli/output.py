"""Printing: tables for people on a terminal, tab-separated lines for programs, JSON when asked for."""

import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import typer

from headwater.errors import BadInput

STDIN, STDOUT, STDERR = 0, 1, 2
READER_GONE = 141  # the exit code of a program that SIGPIPE has ended


def hold_standard_streams() -> None:
    """Put nothing in the place of standard streams that were closed: else the next files to be opened get their
    numbers, and what is printed, by whatever library, is written into the log."""
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or open(STDIN, closefd=False)
    sys.stdout = sys.stdout or open(STDOUT, "w", closefd=False)
    sys.stderr = sys.stderr or open(STDERR, "w", closefd=False)


def finish_output() -> None:
    """Bring everything that was said to where it goes, as long as it can be reported that it does not."""
    with _reported(), suppress(BrokenPipeError):
        sys.stdout.flush()


def drop_output() -> None:
    """Let go of what standard output did not take: Python would try again as it ends, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


@contextmanager
def _reported() -> Iterator[None]:
    """Say it when standard output takes nothing, because its disk is full for one. A reader that has seen
    enough is no fault."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput("write to", "standard output", reason, "Send it somewhere else.") from error


def say(text: str) -> None:
    """A line on standard output that says what was done."""
    try:
        with _reported():
            sys.stdout.write(text + "\n")
    except BrokenPipeError:
        raise typer.Exit(READER_GONE) from None


def note(text: str) -> None:
    """A line for the person at the keyboard, on standard error, out of the way of the data."""
    print(text, file=sys.stderr, flush=True)


def complain(text: str) -> None:
    """One line on standard error that says what went wrong."""
    note("headwater: " + " ".join(text.split()))


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on a line of its own."""
    import orjson

    say(orjson.dumps(value).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, kind: str | None = None) -> None:
    """Rows under column names on a terminal, and as tab-separated lines without names elsewhere.

    ``kind`` stands in front of each line when a verb prints several sorts of lines to a pipe. None is shown
    as "-", and columns that hold only numbers stand to the right.
    """
    rows = [tuple(row) for row in rows]
    if not sys.stdout.isatty():
        for row in rows:
            fields = ([kind] if kind else []) + [_cell(value) for value in row]
            say("\t".join(fields))
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
            with _reported():
                view = view[os.write(STDOUT, view[:piece]) :]
        elif give_up():
            return False
    return True


def reader_is_gone() -> bool:
    """Whether standard output is a pipe whose other end was closed, as by ``| head``."""
    poller = select.poll()
    poller.register(STDOUT, 0)
    return any(events & select.POLLERR for _, events in poller.poll(0))
