"""`headwater consume`: tail -f for topics."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headwater.cli import options
from headwater.cli.output import note, reader_is_gone, write_out

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headwater.cli.rendering import Render
    from headwater.client.group_reader import GroupReader
    from headwater.client.reader import Reader, Start

COMMIT_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    app.command("consume", short_help="Print the records of topics as they come (tail -f).")(consume)


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="The topics to read.")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record that is there.")
    ] = False,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            help="Start at this time: ISO 8601, epoch milliseconds, or an age ('10 minutes ago', 1h).",
        ),
    ] = None,
    from_offset: Annotated[
        int | None,
        typer.Option("--from-offset", min=0, metavar="N", help="Start at this offset; wants --partition."),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            min=1,
            metavar="N",
            help="Start N offsets before the end of each partition: mostly its last N records.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="NAME",
            help="Read as a member of this group, from where it stopped; commits what was printed.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", metavar="N", min=0, help="Read only this partition; may be repeated."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", "-k", metavar="GLOB", help="Only records with this key; * ? [a-z] stand for more."
        ),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="TEXT", help="Only records with this text in their value."),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", "-n", min=1, metavar="N", help="Stop after so many records.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at what was the end when the command began.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="A JSON object a line: topic, partition, offset, timestamp, key, value, headers. "
            "Bytes that are not UTF-8 are in base64, marked by key_encoding or value_encoding.",
        ),
    ] = False,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="TEMPLATE",
            help="Text with {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers} in it.",
        ),
    ] = None,
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        typer.Option("--isolation", help="Whether to wait for transactions, or to show aborted records too."),
    ] = "read_committed",
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Print the records of topics as they come, from now on unless told otherwise.

    Prints values, a line each; see --json and --format for more. Ctrl-C ends it. With --group delivery is at
    least once: after a crash up to a second of records is printed again.

    \b
    Examples:
      headwater consume orders
      headwater consume orders --from-beginning --exit --json
      headwater consume orders --from-time '10 minutes ago' --key 'customer-1*'
      headwater consume orders --group billing --format '{partition}:{offset} {key}={value}'
    """
    from headwater.cli.rendering import as_json, as_template, as_value, key_filter, value_filter
    from headwater.errors import BadInput

    what = ", ".join(topics)
    if json and template is not None:
        raise BadInput("read", what, "--json and --format exclude each other")
    render = as_json if json else as_template(template) if template is not None else as_value
    filters = [key_filter(key)] if key is not None else []
    filters += [value_filter(value)] if value is not None else []
    start = _start(what, from_beginning, from_time, from_offset, last, group, partition)

    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.group_reader import GroupReader
    from headwater.client.reader import BEGINNING, Reader

    def on_outage(away: bool) -> None:
        state = "no broker answers; waiting for it" if away else "the broker answers again"
        note(f"headwater: {connection.bootstrap}: {state}")

    reader: Reader | GroupReader
    if group is not None:
        reader = GroupReader(
            connection,
            group,
            topics,
            unread="earliest" if start == BEGINNING else "latest",
            to_end=exit_at_end,
            isolation=isolation,
            on_outage=on_outage,
        )
    else:
        reader = Reader(
            connection,
            topics,
            start=start,
            partitions=partition,
            to_end=exit_at_end,
            isolation=isolation,
            on_outage=on_outage,
        )
    with catch_signals() as stop, reader:
        _print(reader, render, filters, max_records, stop)
    if stop.signal:
        raise typer.Exit(128 + stop.signal)


def _start(
    what: str,
    from_beginning: bool,
    from_time: str | None,
    from_offset: int | None,
    last: int | None,
    group: str | None,
    partition: list[int] | None,
) -> "Start":
    from headwater.cli.moments import parse_moment
    from headwater.client.reader import BEGINNING, END, Start
    from headwater.errors import BadInput

    named = [from_beginning, from_time is not None, from_offset is not None, last is not None]
    if sum(named) > 1:
        raise BadInput(
            "read", what, "it can start at one place only", "Give one of the --from options or --last."
        )
    if group is not None and (any(named[1:]) or partition):
        cause = "a group decides by itself where it reads"
        step = f"Leave the --from and --partition options away, or move it: headwater groups reset {group}."
        raise BadInput("read", what, cause, step)
    if from_offset is not None:
        if not partition:
            raise BadInput(
                "read", what, "an offset means something in a partition only", "Add --partition N."
            )
        return Start.at_offset(from_offset)
    if from_time is not None:
        return Start.at_time(parse_moment(from_time, "--from-time"))
    if last is not None:
        return Start.before_end(last)
    return BEGINNING if from_beginning else END


def _print(
    reader: "Reader | GroupReader",
    render: "Render",
    filters: Sequence[Callable[["Message"], bool]],
    limit: int | None,
    stop: "Stop",
) -> None:
    """Write batches out until the end, the limit, a signal, or until nobody reads the output any more."""
    from headwater.cli.rendering import keep
    from headwater.client.group_reader import GroupReader

    group_reader = reader if isinstance(reader, GroupReader) else None
    next_commit = time.monotonic() + COMMIT_SECONDS
    for batch in reader.batches():
        chosen = keep(batch, filters) if filters else batch
        if limit is not None and len(chosen) >= limit:
            # What comes after the last one printed is not done: the group gets it next time.
            chosen = chosen[:limit]
            batch = batch[: batch.index(chosen[-1]) + 1]
        if chosen:
            try:
                if not write_out(b"".join([render(message) for message in chosen]), stop.is_asked_for):
                    return
            except BrokenPipeError:
                return
        elif reader_is_gone():
            return
        if group_reader is not None:
            group_reader.done(batch)
            if not batch or time.monotonic() >= next_commit:
                group_reader.commit()
                next_commit = time.monotonic() + COMMIT_SECONDS
        if limit is not None:
            limit -= len(chosen)
            if limit == 0:
                return
        if stop.is_asked_for():
            return


class Stop:
    """SIGINT and SIGTERM end the loop between two batches, so that what was printed is committed.

    The same signal again ends the process as it always does.
    """

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, signal.SIG_DFL)

    def is_asked_for(self) -> bool:
        return self.signal != 0


@contextmanager
def catch_signals() -> Iterator[Stop]:
    """A Stop that hears of signals while the block runs."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
