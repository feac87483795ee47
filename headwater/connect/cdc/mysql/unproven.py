"""When a snapshot may be believed whose place proves nothing: no group of the log ends there. Pure."""

from headwater.connect.cdc.mysql.state import Place

SECONDS = 12.0  # longer than servers wait for a standby, unless they are told to wait longer
_CHANGES = 6  # more do not make it shorter: it is nothing then


class Unproven:
    """How long the last groups are known, when the place of a snapshot does not prove that they can be seen.

    Groups that follow and are not proven either halve the time: else a log whose every transaction fills a file would
    never have a snapshot.

    >>> unproven = Unproven()
    >>> unproven.is_over(("binlog.1", 700), began=50.0, now=50.1), unproven.is_over(("binlog.1", 700), 62.2, 62.3)
    (False, True)
    """

    def __init__(self) -> None:
        self._end: Place | None = None
        self._since = 0.0
        self._changes = -1

    def is_over(self, groups_end: Place | None, began: float, now: float) -> bool:
        """Whether a snapshot that began at a time has the groups up to an end, which are known now."""
        if groups_end != self._end:
            self._end, self._since = groups_end, now
            self._changes += 1
        return self._changes > _CHANGES or began - self._since > SECONDS / 2**self._changes

    def forget(self) -> None:
        """A snapshot was proven: the next doubt is a new one."""
        self._end, self._changes = None, -1
