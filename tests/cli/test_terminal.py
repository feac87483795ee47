"""On a terminal: tables for people, and questions before something is deleted."""

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable

from tests.cli.conftest import PROGRAM, Headwater, environment, run
from tests.support.servers import Server


class Terminal:
    """The command on a pseudo-terminal of its own."""

    def __init__(self, server: Server, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        env = environment(HEADWATER_BOOTSTRAP=server.bootstrap, COLUMNS="160", TERM="xterm")
        self.process = subprocess.Popen(
            [PROGRAM, *arguments], stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, text: str, seconds: float = 30) -> str:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            self._read(0.2)
        return self.seen

    def end(self) -> tuple[int, str]:
        """The exit code, and everything shown, without colours."""
        deadline = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen
            self._read(0.1)
        while self._read(0.1):
            pass
        os.close(self.master)
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen)
        return self.process.returncode, plain.replace("\r\n", "\n")

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        except OSError:
            return False
        return True


def cells(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


def test_tables_have_headings(server: Server, hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic, "-p", "2", "-c", "retention.ms=5000")
    hw("produce", topic, "-p", "0", input="a\n")
    code, shown = Terminal(server, "topics", "describe", topic).end()
    assert code == 0 and f"{topic}: 2 partitions, id " in shown
    assert ["partition", "leader", "in sync", "earliest", "latest", "records"] in cells(shown)
    assert ["name", "value", "set by"] in cells(shown)
    assert ["retention.ms", "5000", "topic"] in cells(shown)
    code, shown = Terminal(server, "topics", "list").end()
    assert code == 0 and ["topic", "partitions"] in cells(shown) and [topic, "2"] in cells(shown)


def test_groups_on_a_terminal(server: Server, hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic)
    hw("produce", topic, input="a\nb\n")
    hw("consume", topic, "--group", topic, "--from-beginning", "-n", "1")
    code, shown = Terminal(server, "groups", "describe", topic).end()
    assert code == 0 and f"{topic}: Empty, classic protocol, 0 members, total lag 1" in shown
    assert [topic, "0", "1", "2", "1", "-", "-"] in cells(shown)
    code, shown = Terminal(server, "groups", "reset", topic, "--to-end").end()
    assert code == 0 and [topic, "0", "1", "2"] in cells(shown)


def test_a_deletion_is_asked_about(server: Server, hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic)
    terminal = Terminal(server, "topics", "delete", topic)
    terminal.read_until(f"Delete {topic} with all records? [y/N]")
    terminal.type("n\n")
    assert terminal.end()[0] == 130
    assert topic in hw("topics", "list").out
    terminal = Terminal(server, "topics", "delete", topic)
    terminal.read_until("[y/N]")
    terminal.type("y\n")
    code, shown = terminal.end()
    assert code == 0 and f"deleted {topic}" in shown
    assert topic not in hw("topics", "list").out


def test_yes_does_not_ask(server: Server, hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic)
    hw("produce", topic, input="a\n")
    hw("consume", topic, "--group", topic, "--from-beginning", "--exit")
    code, shown = Terminal(server, "groups", "delete", topic, "-y").end()
    assert code == 0 and "[y/N]" not in shown
    code, shown = Terminal(server, "topics", "delete", topic, "--yes").end()
    assert code == 0 and "[y/N]" not in shown


def test_typing_records(server: Server, hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic)
    terminal = Terminal(server, "produce", topic)
    terminal.read_until("Type a record a line; Ctrl-D ends.")
    terminal.type("typed by hand\n\x04")
    code, shown = terminal.end()
    assert code == 0 and "1 record, 13 bytes" in shown
    assert hw("consume", topic, "--from-beginning", "--exit").lines == ["typed by hand"]


def test_hints_where_there_is_nothing(unique: Callable[[str], str]) -> None:
    """Against a broker of its own, which has neither topics nor groups."""
    from tests.support.servers import Headwater as HeadwaterServer

    with HeadwaterServer() as own:
        topics = run("topics", "list", "-b", own.bootstrap)
        assert (topics.code, topics.out) == (0, "") and "headwater topics create NAME" in topics.err
        groups = run("groups", "list", "-b", own.bootstrap)
        assert (groups.code, groups.out) == (0, "") and "--group NAME" in groups.err
        assert run("topics", "list", "--json", "-b", own.bootstrap) == run(
            "groups", "list", "--json", "-b", own.bootstrap
        )
