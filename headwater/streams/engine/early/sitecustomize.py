"""Has the Python process of a source answer Spark before it imports anything: Python runs this when it starts.

Spark waits ten seconds for that process to connect, which no setting changes, and it connects when all is imported: on
a machine with much else to do that takes longer, again and again. The connection that is made here is what its own
attempt becomes. This folder is on the path of Spark's workers; of others there nothing changes, and a module of this
name that stands behind it runs as ever.
"""

import os
import sys


def connect_at_once(path: str) -> None:
    """Connects to Spark's socket of this path; the first socket that is to be connected to it takes that over."""
    import socket

    early = socket.socket(socket.AF_UNIX)
    early.connect(path)
    connect = socket.socket.connect

    def take_over(own: socket.socket, address: object) -> None:
        if address != path:
            connect(own, address)  # type: ignore[arg-type]
            return
        socket.socket.connect = connect  # type: ignore[method-assign]
        os.dup2(early.fileno(), own.fileno(), inheritable=False)
        early.close()

    socket.socket.connect = take_over  # type: ignore[assignment, method-assign]


def run_the_one_behind() -> None:
    """Runs what this module stands before, if there is such a thing."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    behind = PathFinder.find_spec(__name__, [each for each in sys.path if os.path.abspath(each) != here])
    if behind is not None and behind.loader is not None:
        behind.loader.exec_module(module_from_spec(behind))


if __name__ == "sitecustomize":
    if sys.orig_argv[-2:] == ["-m", "pyspark.sql.streaming.python_streaming_source_runner"]:
        socket_path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
        if socket_path is not None:
            connect_at_once(socket_path)
    run_the_one_behind()
