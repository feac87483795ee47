"""CPU time, memory and threads of a process, from /proc: what a benchmark says about cost."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """CPU seconds of a process so far, by thread."""

    threads: dict[int, float]

    @property
    def total(self) -> float:
        return sum(self.threads.values())

    def since(self, before: "Usage") -> "Usage":
        """What was used between two looks. A thread that ended in between is not seen."""
        return Usage({tid: used - before.threads.get(tid, 0.0) for tid, used in self.threads.items()})

    @property
    def busiest(self) -> float:
        """CPU seconds of the thread that used most."""
        return max(self.threads.values(), default=0.0)


def usage(pid: int) -> Usage:
    """What the process has used by now.

    >>> usage(os.getpid()).total > 0
    True
    """
    threads = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            # The name in parentheses may hold spaces; user and system time are fields 14 and 15.
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        threads[int(task.name)] = (int(fields[11]) + int(fields[12])) / _TICK
    return Usage(threads)


def resident(pid: int) -> int:
    """Bytes of memory the process has resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
