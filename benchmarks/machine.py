"""The machine a benchmark was taken on, as its table names it."""

import datetime
import importlib.metadata
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path


def fsync_milliseconds(directory: Path, times: int = 200) -> tuple[float, float]:
    """Median and 99th percentile of a 4 KB write and fdatasync there: what durability costs at least."""
    taken = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(times):
            os.write(file.fileno(), bytes(4096))
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - started) * 1000)
    taken.sort()
    return statistics.median(taken), taken[int(times * 0.99)]


def description(directory: Path, kafka_version: str | None = None) -> list[str]:
    """Sentences about cores, memory, disk and versions."""
    middle, high = fsync_milliseconds(directory)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    version = importlib.metadata.version
    kafka = f"Apache Kafka {kafka_version} on {_java()}, -Xmx1g" if kafka_version else _java()
    return [
        f"{datetime.date.today().isoformat()}; {os.cpu_count()} cores ({_processor()}), "
        f"{memory:.0f} GB of memory, Linux {platform.release()}",
        f"disk: {_file_system(directory)}, write and fdatasync of 4 KB {middle:.2f} ms (p99 {high:.2f} ms)",
        f"Headwater {version('headwater')} on Python {platform.python_version()}; "
        f"{kafka}; client confluent-kafka {version('confluent-kafka')}",
    ]


def load_average() -> float:
    """Processes running or waiting over the last minute: what else went on."""
    return os.getloadavg()[0]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found = line.split()[:3]
        if str(directory.resolve()).startswith(mount) and len(mount) > len(best):
            best, kind = mount, found
    return kind


def _java() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return "Java " + (said.split('"')[1] if '"' in said else "?")
