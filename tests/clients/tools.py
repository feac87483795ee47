"""Kafka's own command line tools, run one after the other in one JVM."""

from typing import Any, NamedTuple

from tests.clients import jvm
from tests.clients.peer import Peer


class Printed(NamedTuple):
    """What a tool printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.out.splitlines() if line.strip()]

    def table(self) -> list[dict[str, str]]:
        """The rows of a table whose first line names the columns.

        >>> Printed(0, "A   B\\n1   x\\n", "").table()
        [{'A': '1', 'B': 'x'}]
        """
        header, *rows = (line.split() for line in self.lines)
        return [dict(zip(header, row, strict=False)) for row in rows]


class Tools:
    """The JVM in which the tools run."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._peer = Peer("kafka-tools", jvm.program("Tools"), bootstrap)

    def run(self, tool: str, *arguments: str, stdin: str = "", fails: bool = False) -> Printed:
        """Run ``org.apache.kafka.tools.TOOL`` (or a class of ``kafka.``) against the broker.

        A tool with subcommands wants the address in front of them, others anywhere: it comes first.
        """
        name = tool if tool.startswith("kafka.") else f"org.apache.kafka.tools.{tool}"
        return self.main(name, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin, fails=fails)

    def main(self, name: str, *arguments: str, stdin: str = "", fails: bool = False) -> Printed:
        """Run the main class with exactly these arguments."""
        self._peer.tell("run", tool=name, arguments=list(arguments), stdin=stdin)
        answer: dict[str, Any] = self._peer.result(name, timeout=90)
        printed = Printed(**answer)
        assert (printed.code != 0) == fails, f"{name} {arguments} ended with {printed}"
        return printed

    def close(self) -> None:
        self._peer.close()
