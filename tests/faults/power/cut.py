"""What a loss of power does to a data directory, done to it after a kill.

SIGKILL alone loses nothing that was written, because the operating system lives on. So the broker runs with a
``sitecustomize`` that keeps a journal of its syncs, and after the kill everything that was not synced is in
danger: cut off, zeroed, or lost in part.

Not imitated: directory entries that were not synced.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

_PAGE = 4096

# Pages reach the disk in any order, and a file's length may reach it before its pages.
CUT_AT_SYNC, CUT, ZEROED, HOLE = "cut at the last sync", "cut somewhere", "zeroed from somewhere on", "a hole"


class PowerSupply:
    """The journal of one broker's syncs, and the power cuts."""

    def __init__(self, journal: Path, losses: Sequence[str] = (CUT_AT_SYNC, CUT, ZEROED)) -> None:
        self._journal = journal
        self._losses = list(losses)
        self.lost = 0  # bytes so far
        self.damaged = 0  # files so far

    def environment(self, lie: str = "") -> Mapping[str, str]:
        """What makes a Python process keep the journal, but for files whose names end in ``lie``."""
        folder = str(Path(__file__).parent)
        journal = str(self._journal)
        return {"PYTHONPATH": folder, "HEADWATER_POWER_JOURNAL": journal, "HEADWATER_POWER_LIE": lie}

    def cut(self, data: Path, dice: random.Random) -> None:
        """Lose what was not synced. What is left afterwards is on disk, and counts as synced."""
        safe = self._safe()
        survivors = []
        for path in sorted(path for path in data.rglob("*") if path.is_file()):
            size = path.stat().st_size
            kept = min(size, safe.get(str(path.resolve()), 0))
            if size > kept and path.name != ".lock":
                self.lost += size - kept
                self.damaged += 1
                _spoil(path, kept, size, dice.choice(self._losses), dice)
            survivors.append(f"synced {path.stat().st_size} {path.resolve()}\n")
        self._journal.write_text("".join(survivors))

    def _safe(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for line in self._journal.read_text().splitlines():
            event, _, rest = line.partition(" ")
            if event == "synced":
                size, _, name = rest.partition(" ")
                sizes[name] = max(int(size), sizes.get(name, 0))
            else:
                before, _, after = rest.partition("\t")
                for name in list(sizes):
                    if name == before or name.startswith(before + "/"):
                        sizes[after + name.removeprefix(before)] = sizes.pop(name)
        return sizes


def _spoil(path: Path, kept: int, size: int, loss: str, dice: random.Random) -> None:
    content = path.read_bytes()
    start = kept if loss == CUT_AT_SYNC else dice.randrange(kept, size + 1)
    if loss in (CUT_AT_SYNC, CUT):
        path.write_bytes(content[:start])
    elif loss == ZEROED:
        path.write_bytes(content[:start] + bytes(size - start))
    else:
        end = min(size, (start // _PAGE + 1) * _PAGE)
        begin = max(kept, start // _PAGE * _PAGE)
        path.write_bytes(content[:begin] + bytes(end - begin) + content[end:])
