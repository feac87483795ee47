"""Unhandled errors in a broker's log, each kind once."""

import re
from collections import Counter

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<error>\S.*)$", re.M)
_OTHER = re.compile(
    r"^.*(?:Unhandled|never retrieved|never awaited|Exception ignored|Fatal Python|MemoryError).*$", re.M
)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def complaints(log: str) -> dict[str, str]:
    """Kinds of unhandled errors, most frequent first, with how often and one example of each.

    >>> kinds = complaints('''before
    ... Traceback (most recent call last):
    ...   File "/x/fetch.py", line 31, in start
    ...     for topic in None:
    ... TypeError: 'NoneType' object is not iterable
    ... after''')
    >>> list(kinds)
    ["1 times fetch.py:31 start: TypeError: 'NoneType' object is not iterable"]
    >>> complaints("all is well")
    {}
    """
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for found in _TRACEBACK.finditer(log):
        places = _PLACE.findall(found[0])
        path, line, function = places[-1] if places else ("?", "?", "?")
        kind = f"{path.rpartition('/')[2]}:{line} {function}: {found['error'][:120]}"
        counts[kind] += 1
        examples.setdefault(kind, found[0])
    for found in _OTHER.finditer(log):
        kind = _ADDRESS.sub("", found[0].rpartition("RuntimeWarning: ")[2])[:120]
        counts[kind] += 1
        examples.setdefault(kind, log[found.start() : found.start() + 2000])
    return {f"{count} times {kind}": examples[kind] for kind, count in counts.most_common()}
