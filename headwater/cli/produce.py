"""`headwater produce`: lines in, records out, and every one of them accounted for."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from headwater.cli import options
from headwater.cli.output import complain, note

if TYPE_CHECKING:
    from headwater.cli.lines import Parse
    from headwater.client.writer import Writer
    from headwater.errors import HeadwaterError

LONGEST_TIMEOUT = 1_000_000  # seconds; librdkafka counts milliseconds up to 2^31


def register(app: typer.Typer) -> None:
    app.command("produce", short_help="Write lines to a topic, a record each.")(produce)


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Read lines from here instead of standard input.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every record.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="What stands between key and value in a line, such as ':' or '\\t'. Else there is no key.",
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Each line is an object: value, and if wanted key, headers, partition, timestamp; "
            "as `consume --json` prints it.",
        ),
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="KEY=VALUE", help="A header of every record; may be repeated."
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", metavar="N", min=0, help="The partition to write to, whatever the key."
        ),
    ] = None,
    tombstones: Annotated[
        bool,
        typer.Option("--tombstones", help="An empty value deletes its key (null) instead of being empty."),
    ] = False,
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        typer.Option("--compression", "-z", help="How batches are compressed."),
    ] = "none",
    acks: Annotated[
        Literal["0", "1", "all"],
        typer.Option("--acks", help="Who has to have a record before it counts as delivered."),
    ] = "all",
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=1, metavar="SECONDS", help="How long to try to deliver a record."),
    ] = 30,
    rejects: Annotated[
        Path | None,
        typer.Option(
            "--rejects",
            metavar="FILE",
            help="Keep lines that are not valid or were not delivered here; else they go to standard error.",
        ),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the topic when it is not there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")] = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Write the lines of standard input (or of FILE) to a topic, a record each.

    It ends when every record has been acknowledged. Lines that cannot be sent are named and kept aside, the
    others are sent, and the command fails at the end: nothing is dropped silently.

    \b
    Examples:
      echo 'hello' | headwater produce greetings
      headwater produce orders --key-separator : < orders.txt
      headwater consume orders --from-beginning --exit --json | headwater produce copy --json
    """
    from headwater.cli.lines import json_lines, plain_lines, unescape
    from headwater.errors import BadInput

    if json and (key is not None or key_separator is not None or tombstones):
        raise BadInput("write to", topic, "--key, --key-separator and --tombstones do not go with --json")
    if key is not None and key_separator is not None:
        raise BadInput("write to", topic, "--key and --key-separator exclude each other")
    if key_separator == "":
        raise BadInput("write to", topic, "--key-separator is empty")
    if not timeout <= LONGEST_TIMEOUT:
        raise BadInput("write to", topic, f"--timeout {timeout} is not a number of seconds")
    headers = [_header(text) for text in header or ()]
    if json:
        parse = json_lines(headers=headers, partition=partition)
    else:
        parse = plain_lines(
            key=None if key is None else key.encode("utf-8", "surrogateescape"),
            separator=None if key_separator is None else unescape(key_separator),
            tombstones=tombstones,
            headers=headers,
            partition=partition,
        )

    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin
    from headwater.client.writer import Writer

    admin = Admin(connection)
    if create:
        admin.create_topic(topic, exist_ok=True)
    partitions = len(admin.partitions(topic, "write to"))
    if partition is not None and partition >= partitions:
        raise BadInput("write to", f"{topic}-{partition}", f"the topic has partitions 0 to {partitions - 1}")

    source = _open(file, "rb") if file is not None and str(file) != "-" else sys.stdin.buffer
    # Without a buffer: each line is there, or it is said that it is not.
    aside = _open(rejects, "wb", buffering=0) if rejects is not None else None
    if source.isatty():
        note("Type a record a line; Ctrl-D ends.")
    writer = Writer(connection, acks=acks, compression=compression, delivery_seconds=timeout)
    session = Session(topic, parse, partitions, writer, aside)
    try:
        session.send_all(source)
    finally:
        if aside is not None:
            aside.close()
    if not quiet:
        note(session.summary())
    session.conclude()


def _header(text: str) -> tuple[str, bytes]:
    """A header as it stands: the same name may come again, and spaces are part of it."""
    from headwater.errors import BadInput

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadInput("read", f"--header {text}", "it is not of the form key=value")
    return name, value.encode("utf-8", "surrogateescape")


def _open(path: Path, mode: Literal["rb", "wb"], buffering: int = -1) -> IO[bytes]:
    from headwater.errors import BadInput

    try:
        return path.open(mode, buffering)
    except OSError as error:
        raise BadInput(
            "open", str(path), (error.strerror or str(error)).lower(), "Name another file."
        ) from error


class Session:
    """One run: what was read, sent, refused and lost."""

    def __init__(
        self, topic: str, parse: "Parse", partitions: int, writer: "Writer", aside: IO[bytes] | None
    ) -> None:
        self.topic = topic
        self.parse = parse
        self.partitions = partitions
        self.writer = writer
        self.aside = aside
        self.lines = 0
        self.invalid = 0
        self.bytes = 0
        self.interrupted = False
        self.gave_up = False  # no broker: the rest of the input was not read
        self.started = time.monotonic()
        self.seconds = 0.0

    def send_all(self, source: IO[bytes]) -> None:
        from headwater.cli.lines import InvalidLine

        try:
            for line in self._lines(source):
                try:
                    self._send(line)
                except InvalidLine as reason:
                    self.invalid += 1
                    self._set_aside(self.lines, line, str(reason))
                if self.gave_up:
                    break
        except KeyboardInterrupt:
            self.interrupted = True
        self.writer.settle()
        self.seconds = time.monotonic() - self.started

    def _lines(self, source: IO[bytes]) -> Iterator[bytes]:
        for line in source:
            self.lines += 1
            yield line.removesuffix(b"\n")

    def _send(self, line: bytes) -> None:
        from headwater.cli.lines import InvalidLine

        record = self.parse(line)
        if record.partition is not None and record.partition >= self.partitions:
            raise InvalidLine(f"partition {record.partition} is not one of 0 to {self.partitions - 1}")
        number = self.lines
        self.bytes += len(record.value or b"") + len(record.key or b"")
        self.writer.write(
            self.topic,
            record.value,
            record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp=record.timestamp,
            on_failure=lambda fault: self._lost(number, line, fault),
        )

    def _lost(self, number: int, line: bytes, fault: "HeadwaterError") -> None:
        from headwater.errors import Unreachable

        self.gave_up = self.gave_up or isinstance(fault, Unreachable)
        self._set_aside(number, line, f"not delivered: {fault.cause}")

    def _set_aside(self, number: int, line: bytes, reason: str) -> None:
        if self.aside is not None:
            try:
                rest = memoryview(line + b"\n")
                while rest:
                    rest = rest[self.aside.write(rest) :]
            except OSError as error:
                complain(f"cannot write to the --rejects file: {(error.strerror or str(error)).lower()}")
                self.aside = None
            else:
                complain(f"line {number}: {reason}")
                return
        sys.stderr.buffer.write(f"headwater: line {number}: {reason}: ".encode() + line + b"\n")
        sys.stderr.buffer.flush()

    def summary(self) -> str:
        delivered = self.writer.written - self.writer.failed
        rate = delivered / self.seconds if self.seconds > 0 else 0.0
        return (
            f"{delivered:,} record{'' if delivered == 1 else 's'}, {self.bytes:,} bytes "
            f"to {self.topic} in {self.seconds:.2f} s ({rate:,.0f} records/s)"
        )

    def _what_to_do(self) -> str:
        from headwater.errors import Unreachable

        fault = self.writer.first_failure
        if fault is None or isinstance(fault, Unreachable):
            return "Send them again when the broker answers."
        return fault.next_step

    def conclude(self) -> None:
        """Fail when anything of the input is not in the topic."""
        from headwater.errors import BadInput, NotDelivered

        kept = "They are named above." if self.aside is None else "They are in the --rejects file."
        if self.writer.failed:
            cause = self.writer.first_failure.cause if self.writer.first_failure else "unknown"
            subject = f"{self.writer.failed} of {self.writer.written} records"
            if self.invalid:
                cause += f" (and {self.invalid} lines were not valid)"
            if self.gave_up:
                cause += f"; stopped after line {self.lines}"
            raise NotDelivered("deliver", subject, cause, f"{kept} {self._what_to_do()}")
        if self.invalid:
            subject = f"{self.invalid} of {self.lines} lines"
            raise BadInput(
                "send", subject, "they are not valid records", f"{kept} Correct and send them again."
            )
        if self.interrupted:
            raise typer.Exit(130)
