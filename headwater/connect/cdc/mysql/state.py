"""Where a reader of the log is: GTIDs, file and place, and what is under way. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.connect.cdc.mysql.gtid import MariaGtids, MySQLGtids

Place = tuple[str, int]  # a file of the log and an offset in it


def before(place: Place, other: Place) -> bool:
    """Whether a place comes before another one of the same server.

    >>> before(("binlog.999999", 4000), ("binlog.1000000", 4))
    True
    """
    return (_number(place[0]), place[1]) < (_number(other[0]), other[1])


def _number(file: str) -> int:
    digits = file.rpartition(".")[2]
    return int(digits) if digits.isdigit() else -1


@dataclass
class LogState:
    """After the last whole group of events that was read."""

    is_mariadb: bool
    gtids: MariaGtids | MySQLGtids
    uses_gtids: bool = True  # MySQL may run without
    file: str = ""
    place: int = 0
    server: str = ""  # server_id of MariaDB, server_uuid of MySQL
    # XA transactions that were prepared and neither committed nor rolled back: where their rows are in the log
    prepared: dict[str, Place] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "gtid": str(self.gtids) if self.uses_gtids else None,
            "file": self.file,
            "pos": self.place,
            "server": self.server,
        }
        if self.prepared:
            found["prepared"] = {xid: list(place) for xid, place in self.prepared.items()}
        return found

    @classmethod
    def from_json(cls, position: Mapping[str, Any], is_mariadb: bool) -> "LogState":
        text = position.get("gtid")
        gtids: MariaGtids | MySQLGtids
        gtids = MariaGtids.parse(text or "") if is_mariadb else MySQLGtids.parse(text or "")
        prepared = {xid: (file, place) for xid, (file, place) in position.get("prepared", {}).items()}
        return cls(
            is_mariadb,
            gtids,
            is_mariadb or text is not None,
            position.get("file") or "",
            position.get("pos") or 0,
            position.get("server") or "",
            prepared,
        )
