"""The Spark session of a process, with the settings that make small batches quick.

Each setting says why it is there; whatever the user sets in ``[spark.settings]`` wins.
"""

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headwater.errors import EngineMissing
from headwater.streams.engine.background import STEADY_COMPILERS, compile_in_the_background
from headwater.streams.engine.early import answer_early
from headwater.streams.engine.filesystem import CHECKPOINT_MANAGER, use_plain_files
from headwater.streams.engine.java import find_java
from headwater.streams.settings import StreamSettings

MOST_SHUFFLE_PARTITIONS = 8

_LOG_SETTINGS = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


def start_session(
    settings: StreamSettings, name: str, *, jars: Sequence[Path] = (), slots: int | None = None
) -> SparkSession:
    """Starts Spark, or takes the session that runs in this process already.

    `slots` is how many tasks have to run at once; real-time queries keep theirs for ever.
    """
    master = settings.master
    if slots is not None and settings.is_local and (match := re.fullmatch(r"local\[(\d+|\*)\]", master)):
        cores = os.cpu_count() or 2 if match[1] == "*" else int(match[1])
        master = f"local[{max(cores, slots)}]"
    logs = settings.data / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    scratch = settings.data / "scratch" / name
    if SparkContext._active_spark_context is None:
        shutil.rmtree(scratch, ignore_errors=True)  # what a killed driver has left
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(find_java(settings.data).home)
    # Workers start with the Python that runs this, not with whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if settings.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    chosen = SparkConf(loadDefaults=False).setMaster(master).setAppName(name)
    chosen.setAll([*(quick_settings(settings, logs, scratch) | dict(settings.spark)).items()])
    if jars:
        chosen.set("spark.jars", ",".join(str(jar) for jar in jars))
    with _errors_into(logs / "spark.out"):
        try:
            _start_java(chosen)
            spark = SparkSession.builder.config(conf=chosen).getOrCreate()
        except Exception as error:
            raise EngineMissing(
                "start", f"Spark on {master}", _reason(error), f"Look at {logs / 'spark.out'}."
            ) from error
    # Its answer to the end of Java would be a traceback on the terminal.
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    if settings.is_local:
        use_plain_files(spark)
        answer_early(spark)
        compile_in_the_background(spark)
    _forget_where_hadoop_settings_came_from(spark)
    return spark


def _start_java(chosen: SparkConf) -> None:
    """Starts Java in a session of its own: what ends the group of this process must leave it the time to stop it."""
    if SparkContext._gateway is None:
        gateway = launch_gateway(chosen, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


def _forget_where_hadoop_settings_came_from(spark: SparkSession) -> None:
    """Makes Hadoop's configuration quick to send.

    A batch sends it once or twice for each operator with state, and compresses for each of its thousand settings
    the name of the file that it came from: a tenth of what a small batch takes.
    """
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.size()  # reads the files
    origins = configuration.getClass().getDeclaredField("updatingResource")
    origins.setAccessible(True)
    origins.get(configuration).clear()


def shuffle_partitions() -> int:
    """How many parts a shuffle has unless the user says otherwise."""
    return min(os.cpu_count() or 2, MOST_SHUFFLE_PARTITIONS)


def quick_settings(settings: StreamSettings, logs: Path, scratch: Path) -> dict[str, str]:
    """Spark's settings for small batches on a small machine."""
    log_settings = logs / "log4j2.properties"
    file = json.dumps(str(logs / "spark.log"))[1:-1]  # Java reads properties as Latin-1, with JSON's escapes
    log_settings.write_text(_LOG_SETTINGS.format(file=file))
    # G1 collects beside the tasks. With the parallel collector every batch stood still for 0.3 s, twice a minute.
    # Left to itself it lets what is new fill the heap before it looks: hundreds of megabytes that batches have left.
    options = [  # divided at blanks: the file's name is a URI, which has none
        f"-Dlog4j2.configurationFile={log_settings.absolute().as_uri()}",
        "-XX:+UseG1GC",
        "-XX:MaxNewSize=256m",
        *STEADY_COMPILERS,
    ]
    chosen = {
        "spark.ui.enabled": "false",
        # For pages that nobody sees Spark keeps a thousand executions, and the plan of each.
        "spark.sql.ui.retainedExecutions": "5",
        "spark.ui.retainedJobs": "5",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "50",
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Every shuffle partition is a task and a state file a batch: 200 of them make a batch take a second.
        "spark.sql.shuffle.partitions": str(shuffle_partitions()),
        "spark.sql.adaptive.enabled": "false",
        "spark.locality.wait": "0s",
        # A batch sends its plan and settings several times, a few KB each, and takes memory in whole blocks for that:
        # with the usual 4 MB, a third of all that Spark takes.
        "spark.broadcast.blockSize": "128k",
        "spark.broadcast.compress": "false",
        "spark.broadcast.checksum": "false",
        # How long Java and Python wait for each other to connect, rather than fail: 15 seconds are not much for a
        # machine that has other things to do.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # State beyond memory goes to disk, and a batch writes what changed, not what there is.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "256",
        "spark.sql.streaming.minBatchesToRetain": "50",
        "spark.sql.streaming.numRecentProgressUpdates": "60",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.driver.extraJavaOptions": " ".join(options),
    }
    if settings.is_local:
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            # Working copies of state, and what is spilled: gone with the session, or at the next start.
            "spark.local.dir": str(scratch),
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_MANAGER,
            "spark.sql.artifact.isolation.enabled": "false",
            # Over TCP a task waits 40 ms for nothing: each side holds back what it has until the other has answered.
            "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
            # On a cluster workers may have another headwater, or none before the first job.
            "spark.python.daemon.module": "headwater.streams.engine.daemon",
        }
    return chosen


@contextmanager
def _errors_into(path: Path) -> Iterator[None]:
    """What a started Java prints goes to a file: it says nothing that a person at a terminal needs."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
