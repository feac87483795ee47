"""A client library at work in a process of its own, told what to do over its standard input.

Each program of ``drivers/`` reads one JSON object a line (``{"do": NAME, ...}``) and answers with one line:
``{"ok": RESULT}``, or ``{"error": NAME, "message": TEXT}`` where NAME is the client's own name of the error.
A process of its own is what lets a test kill a group member as a crash would. The commands:

==================  ============================================  ============================================
``hello``                                                         the client and its version, a string
``produce``         topic, codec, acks, idempotent, records       ``[[partition, offset], ...]``, as sent
``read``            topic, isolation, first, last, quiet_ms       records from the offsets ``first`` (by
                                                                  partition) until those of ``last`` were
                                                                  seen, or none came for ``quiet_ms``
``offset_at``       topic, partition, timestamp                   an offset; -1 asks for the end, -2 the start
``join``            group, topics, protocol, assignor,            starts a member that consumes in the
                    session_ms, instance, isolation, client_id    background; offsets are never committed by
                                                                  themselves
``assigned``                                                      ``[[topic, partition], ...]`` of the member
``taken``                                                         records since it was last asked, each with
                                                                  ``topic``
``commit``                                                        commits what was taken
``leave``                                                         the member leaves the group
``set_offsets``     group, offsets ``[[topic, p, o, text]]``      commits for a group without members
``committed``       group, partitions ``[[topic, p]]``            ``[[topic, p, o or null, text], ...]``
``txn_open``        id, timeout_ms, codec                         a producer with that transactional.id
``txn_begin``, ``txn_commit``, ``txn_abort``, ``txn_close``
``txn_send``        topic, records                                as ``produce``
``txn_offsets``     group, offsets ``[[topic, p, o]]``            in the transaction; as the joined member of
                                                                  the group, when there is one
``create_topic``    topic, partitions, config
``partitions``      topic                                         how many it has
``add_partitions``  topic, total
``config``          topic                                         names and values
``set_config``      topic, config                                 changes these and leaves the others
``delete_records``  topic, before ``{partition: offset}``         the new starts, by partition
``delete_topic``    topic
``topics``                                                        their names
``groups``                                                        their names
``group``           group                                         ``state``, client ids of its ``members`` and
                                                                  (the reference) how many partitions each
                                                                  has ``held``
``delete_group``    group
``reset``                                                         leaves the group, closes the transactional
                                                                  producer: ready for another test
==================  ============================================  ============================================

A driver that lacks a command answers with the error ``Unsupported``; ``matrix.py`` says what each can do.
"""

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.clients.records import Record

REPOSITORY = Path(__file__).resolve().parents[2]


class PeerError(AssertionError):
    """The client reported an error: ``name`` is its own name for it."""

    def __init__(self, client: str, command: str, name: str, message: str) -> None:
        super().__init__(f"{client}: {command} failed: {name}: {message}")
        self.name = name


class PeerSilent(AssertionError):
    """The driver ended or did not answer in time."""


class Peer:
    """One driver process. ``kill`` ends it as a crash would."""

    def __init__(self, client: str, command: Sequence[str], bootstrap: str) -> None:
        self.client = client
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*command, bootstrap],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read_answers, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, do: str, timeout: float = 60, **fields: Any) -> Any:
        """Give a command and wait for its result."""
        self.tell(do, **fields)
        return self.result(do, timeout)

    def tell(self, do: str, **fields: Any) -> None:
        """Give a command without waiting; ``result`` must follow."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerSilent(f"{self.client}: ended before {do}. It said:\n{self._said()}") from None

    def result(self, do: str, timeout: float = 60) -> Any:
        """The answer to the command given last."""
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise PeerSilent(
                f"{self.client}: no answer to {do} in {timeout} s. It said:\n{self._said()}"
            ) from None
        if not line:
            raise PeerSilent(f"{self.client}: ended during {do}. It said:\n{self._said()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(self.client, do, answer["error"], f"{answer['message']}\n{self._said()}")
        return answer["ok"]

    # -- commands with records, typed -----------------------------------------------------------------

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[Record]:
        """Write the records; the same with the offsets that the broker gave them."""
        sent = list(records)
        placed = self.ask(
            "produce",
            topic=topic,
            codec=codec,
            acks=acks,
            idempotent=idempotent,
            records=[record.to_json() for record in sent],
        )
        return _place(sent, placed)

    def txn_open(self, id: str, timeout_ms: int = 60_000, codec: str = "none") -> None:
        """Make a transactional producer, which ends what an older one of that id has under way."""
        self.ask("txn_open", id=id, timeout_ms=timeout_ms, codec=codec)

    def txn_send(self, topic: str, records: Iterable[Record]) -> list[Record]:
        """As ``produce``, in the open transaction."""
        sent = list(records)
        return _place(sent, self.ask("txn_send", topic=topic, records=[record.to_json() for record in sent]))

    def read(
        self,
        topic: str,
        last: Mapping[int, int],
        first: Mapping[int, int] | None = None,
        isolation: str = "read_uncommitted",
        quiet_ms: int = 15_000,
    ) -> list[Record]:
        """What the partitions named in ``last`` hold, up to those offsets, by partition and offset."""
        start = {str(partition): (first or {}).get(partition, 0) for partition in last}
        end = {str(partition): offset for partition, offset in last.items()}
        found = self.ask("read", topic=topic, first=start, last=end, isolation=isolation, quiet_ms=quiet_ms)
        records = [Record.from_json(fields) for fields in found]
        # A stable sort: the order within a partition is the client's, and the test sees it when it is wrong.
        return sorted(records, key=lambda record: record.partition)

    def join(
        self,
        group: str,
        topics: Sequence[str],
        protocol: str = "classic",
        assignor: str = "",
        session_ms: int = 6000,
        instance: str | None = None,
        isolation: str = "read_uncommitted",
        client_id: str = "member",
    ) -> None:
        """Start a group member in this process."""
        self.ask(
            "join",
            group=group,
            topics=list(topics),
            protocol=protocol,
            assignor=assignor,
            session_ms=session_ms,
            instance=instance,
            isolation=isolation,
            client_id=client_id,
        )

    def assigned(self) -> set[tuple[str, int]]:
        """The partitions that the member holds now."""
        return {(topic, partition) for topic, partition in self.ask("assigned")}

    def taken(self) -> list[Record]:
        """What the member has consumed since this was last asked."""
        return [Record.from_json(fields) for fields in self.ask("taken")]

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int | None]:
        """The group's offsets in the topic."""
        found = self.ask("committed", group=group, partitions=[[topic, one] for one in partitions])
        return {partition: offset for _, partition, offset, _ in found}

    # -- the process ----------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL: the client says goodbye to nobody."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End of input: the driver ends by itself, or is killed."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._errors.close()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        output: IO[bytes] = self._process.stdout
        for line in output:
            self._answers.put(line)
        self._answers.put(b"")

    def _said(self) -> str:
        time.sleep(0.1)  # its last words may still be on their way
        if self._errors.closed:
            return ""
        # pread, because the child shares the file's position and must go on writing at its end.
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), 4000, max(0, size - 4000)).decode("utf-8", "replace")


def _place(records: list[Record], placed: list[list[int]]) -> list[Record]:
    assert len(placed) == len(records), f"{len(placed)} answers for {len(records)} records"
    return [record.at(offset, partition) for record, (partition, offset) in zip(records, placed, strict=True)]
