"""Where the processor time of a Headwater application goes: in which process and kind of thread."""

from collections import defaultdict
from pathlib import Path

from benchmarks.processes import usage

# How Java's threads are named, by what they do. Linux keeps 15 letters of a name.
_JAVA = (
    ("Executor task", "Java: tasks"),
    ("C1 Compiler", "Java: compiling"),
    ("C2 Compiler", "Java: compiling"),
    ("GC Thread", "Java: collecting garbage"),
    ("ParallelGC", "Java: collecting garbage"),
    ("G1 ", "Java: collecting garbage"),
    ("rocksdb", "Java: state files"),
    ("stream executi", "Java: planning batches"),
)


def cpu_by_part(pids: list[int]) -> dict[str, float]:
    """Processor seconds of live threads so far, by part of the application."""
    parts: dict[str, float] = defaultdict(float)
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            for thread, seconds in usage(pid).threads.items():
                parts[_part(words, _thread_name(pid, thread))] += seconds
        except (FileNotFoundError, ProcessLookupError):
            continue
    return dict(parts)


def _part(words: list[str], thread: str) -> str:
    """
    >>> _part(["/usr/bin/java", "-cp"], "C2 CompilerThre")
    'Java: compiling'
    """
    if words[0].rpartition("/")[2] == "java":
        return next((part for prefix, part in _JAVA if thread.startswith(prefix)), "Java: other")
    if any("daemon" in word or "worker" in word for word in words[1:4]):
        return "Python: workers"
    if "broker" in words:
        return "broker"
    if any(word.startswith("pyspark.sql.streaming") or "data_source" in word for word in words):
        return "Python: source on the driver"
    return "Python: driver"


def _thread_name(pid: int, thread: int) -> str:
    try:
        return Path(f"/proc/{pid}/task/{thread}/comm").read_text().strip()
    except FileNotFoundError:
        return ""
