"""A sink that is a table: a row outside for each key, as the newest record of the topic has it."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from headwater.client.bare_requests import EARLIEST, Place
from headwater.client.columns import Columns
from headwater.client.connection import Connection
from headwater.connect.sinks.changes import Change, ChangeReader
from headwater.connect.sinks.dead import DeadLetters
from headwater.connect.sinks.identity import Unreadable
from headwater.connect.sinks.reading import fetcher_for
from headwater.connect.sinks.sink import Sink, SinkCounts

AT_ONCE = 5000  # records whose effect becomes visible together


class TableSink(Sink):
    """Of the records taken at once only the newest of each key counts."""

    def __init__(self, name: str, topic: str, reader: ChangeReader) -> None:
        self.name, self.topic, self._reader = name, topic, reader
        self._positions: dict[Place, int] = {}
        self._counts = SinkCounts()

    def attach(self, log: Connection) -> None:
        self._log = log
        self._dead = DeadLetters(log, self.topic, self.name)

    def counts(self) -> SinkCounts:
        return self._counts

    @abstractmethod
    def write(self, place: Place, changes: Sequence[Change], after: int) -> Mapping[int, str]:
        """Makes the changes, of different rows each; gives the offsets of those that were refused, and why.

        When it returns, they are durable as far as the system outside makes them so.
        """

    @abstractmethod
    def moved(self, place: Place, after: int) -> None:
        """What was written of this partition is complete up to here, and what was refused is set aside."""

    def take(self, place: Place, columns: Columns, after: int) -> None:
        keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
        offsets = columns.offsets.tolist()
        self._count(
            records=len(keys), bytes=sum(len(value) for value in values if value is not None), commits=0
        )
        for first in range(0, len(keys), AT_ONCE):
            last = min(first + AT_ONCE, len(keys))
            behind = after if last == len(keys) else offsets[last]
            self._take(place, columns, keys, values, offsets, range(first, last), behind)

    def _take(
        self,
        place: Place,
        columns: Columns,
        keys: list[bytes | None],
        values: list[bytes | None],
        offsets: list[int],
        span: range,
        behind: int,
    ) -> None:
        changes: dict[str, Change] = {}
        dead: dict[int, str] = {}
        read = self._reader.read
        first = span.start  # of the records behind the last that emptied the table
        before: dict[int, int] | None = None
        for index in newest(keys, span):
            try:
                found = read(keys[index], values[index], offsets[index])
            except Unreadable as error:
                dead[index] = str(error)
                # It says nothing of its row: what does is the last record before it that can be used.
                before = before if before is not None else predecessors(keys, span)
                for change in self._read_before(index, first, before, keys, values, offsets, dead):
                    if change.id not in changes or changes[change.id].offset < change.offset:
                        changes[change.id] = change
                continue
            if found is None:
                self._finish(place, columns, changes, dead, offsets[index])
                changes, dead = {}, {}
                self._empty(place, offsets[index])
                first = index + 1
            else:
                for change in found:
                    changes[change.id] = change
        self._finish(place, columns, changes, dead, behind)

    def _read_before(
        self,
        index: int,
        first: int,
        before: Mapping[int, int],
        keys: list[bytes | None],
        values: list[bytes | None],
        offsets: list[int],
        dead: dict[int, str],
    ) -> list[Change]:
        """The changes of the last record of the same key that can be used, from `first` on; `dead` gets the others."""
        while (index := before.get(index, -1)) >= first:
            try:
                return self._reader.read(keys[index], values[index], offsets[index]) or []
            except Unreadable as error:
                dead[index] = str(error)
        return []

    def _finish(
        self, place: Place, columns: Columns, changes: dict[str, Change], dead: dict[int, str], after: int
    ) -> None:
        wanted = sorted(changes.values(), key=lambda change: change.offset)
        if dead:  # what they say is lost here; so it is in the log before the position is behind it
            self._dead.write(place, columns, dead)
        refused = self.write(place, wanted, after)
        if refused:
            places = {offset: index for index, offset in enumerate(columns.offsets.tolist())}
            self._dead.write(place, columns, {places[at]: why for at, why in refused.items()})
        self.moved(place, after)
        self._positions[place] = after
        gone = sum(1 for change in wanted if change.row is None)
        written = len(wanted) - gone - len(refused)
        self._count(written=written, deleted=gone, dead=len(dead) + len(refused))

    def _empty(self, place: Place, offset: int) -> None:
        """The table was truncated: each key that the topic has had so far is deleted.

        The topic is the record of which those are. In other partitions, which have no order with this one, it is all
        that was read of them. To be killed in here does no harm: the same keys are deleted again.
        """
        ends = {**self._positions, place: offset}
        with fetcher_for(self._log) as fetcher:
            for other, end in ends.items():
                start = fetcher.offsets([other], EARLIEST)[other]
                for columns in fetcher.columns(other, start, end) if start < end else ():
                    version = offset if other == place else end - 1
                    gone = [Change(each, version, None) for each in self._ids(columns)]
                    for first in range(0, len(gone), AT_ONCE):
                        part = gone[first : first + AT_ONCE]
                        self.write(other, part, end)
                        self._count(deleted=len(part))

    def _ids(self, columns: Columns) -> Iterable[str]:
        """All rows that records speak of."""
        read, found = self._reader.read, dict[str, None]()
        keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
        for index in newest(keys, range(len(keys))):
            try:
                changes = read(keys[index], values[index] if keys[index] is None else None, 0)
            except Unreadable:
                continue
            found.update((change.id, None) for change in changes or ())
        return found

    def _took(self, seconds: float) -> None:
        """A commit outside took so long."""
        self._counts = replace(self._counts, commit_seconds=seconds)

    def _count(self, *, commits: int = 1, **more: int) -> None:
        now = self._counts
        added = {name: getattr(now, name) + value for name, value in more.items()}
        self._counts = replace(now, commits=now.commits + commits, **added)


def newest(keys: Sequence[bytes | None], span: range) -> Iterator[int]:
    """Of each key the index of its last record, and of those without a key all, in order.

    >>> list(newest([b"a", b"b", None, b"a"], range(4)))
    [1, 2, 3]
    """
    last = {key: index for index in span if (key := keys[index]) is not None}
    if len(last) == len(span):
        return iter(span)
    without = [index for index in span if keys[index] is None]
    return iter(sorted([*last.values(), *without]))


def predecessors(keys: Sequence[bytes | None], span: range) -> dict[int, int]:
    """For each record with a key the index of the one before it with the same key, if there is one.

    >>> predecessors([b"a", b"b", None, b"a", b"a", None], range(6))
    {3: 0, 4: 3}
    """
    last: dict[bytes, int] = {}
    found = {}
    for index in span:
        if (key := keys[index]) is not None:
            if key in last:
                found[index] = last[key]
            last[key] = index
    return found
