"""Where the stream stops until something outside of it has been done. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.connect.cdc.mysql.history import Consequence
from headwater.connect.cdc.mysql.state import Place


class EndOfStream(Exception):
    """The server sent an error, or the end, in the place of an event."""

    def __init__(self, packet: bytes) -> None:
        super().__init__("the server ended the stream")
        self.packet = packet


class DdlPause(NamedTuple):
    """A statement that means something for captured tables. `position` is before it."""

    consequences: Sequence[Consequence]
    position: dict[str, Any]
    first_time: bool  # False when a part of the group is in the log of a former run already
    text: str
    when: int
    server: int
    place: int


class ReplayPause(NamedTuple):
    """Rows that lie elsewhere in the log belong here: those of an XA transaction, or of a group read twice."""

    start: Place
    end: int  # where the group ends that they belong to
    dropped: frozenset[int] = frozenset()  # events whose rows in transactional tables were rolled back


Pause = DdlPause | ReplayPause
