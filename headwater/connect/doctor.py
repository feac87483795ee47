"""What a database needs for capture, checked one by one, each with how to mend it."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["fine", "warning", "wrong"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `mend` is a command or a sentence that a person can follow."""

    what: str
    verdict: Verdict
    found: str
    mend: str = ""

    @property
    def stands_in_the_way(self) -> bool:
        """Whether capture cannot begin before it is mended."""
        return self.verdict == "wrong"
