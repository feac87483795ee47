"""Runs the shop: `headwater up` with everything, traffic, a summary in the terminal, and a verdict at the end."""

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from examples.shop.database import Shop
from examples.shop.summary import Summary
from examples.shop.traffic import Traffic
from examples.shop.verdict import Verdict, judge
from headwater.views.store import ViewStore, open_store

APPLICATION = Path(__file__).with_name("shop.py")
START_SECONDS, STOP_SECONDS = 120.0, 90.0
PORT = 8080
AGAIN_SECONDS = 1.0  # whoever stops a group of processes may send a signal twice
CHARTS = ("sales_per_minute", "top_products", "active_sessions", "stock_left", "temperatures")


class DemoFailed(Exception):
    """Something that should run does not."""


class Shopkeeper:
    """`headwater up` as a child in a session of its own, so that Ctrl-C reaches us first and it ends last."""

    def __init__(self, data: Path, database: Path, port: int) -> None:
        self.log = data / "up.log"
        command = [sys.executable, "-m", "headwater.cli.main", "up", str(APPLICATION), "--data", str(data)]
        command += ["--port", "0", "--http", str(port)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                env={**_clean(), "SHOP_DATABASE": str(database)},
            )

    def require_running(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise DemoFailed(f"headwater up ended with code {code}:\n{self.said()[-3000:]}")

    def said(self) -> str:
        """What it has printed."""
        return self.log.read_text(errors="replace")

    def find(self, pattern: str, stopping: threading.Event) -> str:
        """The first group of a pattern, once it was printed."""
        end = time.monotonic() + START_SECONDS
        while True:
            found = re.search(pattern, self.said())
            if found is not None:
                return found[1]
            self.require_running()
            if stopping.wait(0.05):
                raise KeyboardInterrupt
            if time.monotonic() > end:
                raise DemoFailed(
                    f"headwater up is not ready after {START_SECONDS:.0f} s:\n{self.said()[-3000:]}"
                )

    def stop(self) -> int:
        """SIGTERM, and wait; its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                raise DemoFailed(f"headwater up did not end within {STOP_SECONDS:.0f} s") from None
        return self._process.returncode


def run(seconds: float | None, port: int, data: Path | None, seed: int, rate: float) -> int:
    """The demo from beginning to end; 0 when every view equals its recompute."""
    stopping = threading.Event()
    asked: list[float] = []

    def stop(*_: object) -> None:
        """The first signal ends the demo with its verdict, one that comes a while later without."""
        asked.append(time.monotonic())
        is_again = stopping.is_set() and asked[-1] - asked[0] > AGAIN_SECONDS
        stopping.set()
        if is_again:
            asked[0] = float("inf")  # from here on it ends as quickly as it can
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    with _directory(data) as folder:
        try:
            return _run(folder, stopping, seconds, port, seed, rate)
        except DemoFailed as failure:
            print(f"the demo failed: {failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130


def _run(
    data: Path, stopping: threading.Event, seconds: float | None, port: int, seed: int, rate: float
) -> int:
    began = time.monotonic()
    database = data / "shop.db"
    Shop.open_anew(database).close()
    keeper = Shopkeeper(data, database, _free(port))
    traffic = None
    try:
        print("starting the shop: broker, capture, Spark, HTTP ...", flush=True)
        url = keeper.find(r"served at (https?://[\w.:-]+)", stopping)
        _await_health(url, keeper, stopping)
        print(f"\n  the dashboard is at {url} (after {time.monotonic() - began:.1f} s)\n", flush=True)
        bootstrap = keeper.find(r"starting shop on (\S+:\d+)", stopping)
        traffic = Traffic(database, url, bootstrap, seed, rate)
        traffic.start()
        with open_store(f"sqlite:///{data / 'views.db'}") as store:
            firsts = First(store, began)
            summary = Summary(store, data, url, traffic.counts, firsts.seconds, bootstrap)
            _watch(summary, firsts, keeper, stopping, seconds)
            for failure in traffic.counts.failures:
                print(f"the traffic had trouble: {failure}", flush=True)
            print("stopping the traffic; waiting until the views have all of it ...", flush=True)
            traffic.stop()
            verdict = judge(store, bootstrap, database)
        _report(verdict, firsts, traffic)
        is_right = verdict.is_right and not traffic.counts.failures
    finally:
        if traffic is not None:
            traffic.stop()
        code = keeper.stop()
    if code != 0:
        raise DemoFailed(f"headwater up ended with code {code}:\n{keeper.said()[-3000:]}")
    print("everything has stopped", flush=True)
    return 0 if is_right else 1


class First:
    """When each view had its first row, in seconds since the start."""

    def __init__(self, store: ViewStore, began: float) -> None:
        self._store, self._began = store, began
        self.seconds: dict[str, float] = {}

    def look(self) -> None:
        for info in self._store.views():
            if info.name not in self.seconds and any(each.progress.rows for each in info.versions):
                self.seconds[info.name] = time.monotonic() - self._began


def _watch(
    summary: Summary, firsts: First, keeper: Shopkeeper, stopping: threading.Event, seconds: float | None
) -> None:
    """Until it is time to stop: `seconds` count from when every chart has something to show."""
    end: float | None = None
    with summary:
        while not stopping.wait(0.25):
            keeper.require_running()
            firsts.look()
            summary.show()
            if end is None and seconds is not None and all(chart in firsts.seconds for chart in CHARTS):
                end = time.monotonic() + seconds
            if end is not None and time.monotonic() > end:
                return


def _report(verdict: Verdict, firsts: First, traffic: Traffic) -> None:
    counts = traffic.counts
    print(
        f"\nwritten: {counts.orders:,} orders with {counts.lines:,} lines into the database, "
        f"{counts.clicks:,} clicks over HTTP ({counts.refused} more did not fit), {counts.readings:,} readings"
    )
    for line in verdict.lines():
        print(f"  {line}")
    shown = ", ".join(f"{name} {at:.1f} s" for name, at in sorted(firsts.seconds.items(), key=lambda x: x[1]))
    print(f"first rows after: {shown}")
    slowest = max((firsts.seconds.get(chart, float("inf")) for chart in CHARTS), default=0.0)
    first = min((firsts.seconds.get(chart, float("inf")) for chart in CHARTS), default=0.0)
    print(f"start to first chart {first:.1f} s, to all of them {slowest:.1f} s")
    print(
        "every view equals its recompute from the log" if verdict.is_right else "NOT ALL IS AS IT SHOULD BE"
    )
    sys.stdout.flush()


def _await_health(url: str, keeper: Shopkeeper, stopping: threading.Event) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        keeper.require_running()
        if stopping.wait(0.1):
            raise KeyboardInterrupt
        if time.monotonic() > end:
            raise DemoFailed(f"{url} does not answer")


def _free(port: int) -> int:
    """The port, or another when somebody has it already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return port
        except OSError:
            print(f"port {port} is taken; another one it is", flush=True)
            return 0


@contextlib.contextmanager
def _directory(data: Path | None) -> Iterator[Path]:
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        yield data.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="headwater-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _end_with_parent() -> None:
    """In the child: SIGTERM when the demo is killed in a way that it cannot notice."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _clean() -> dict[str, str]:
    """The environment without what would send the demo elsewhere."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    # The first charts come sooner when Java's second compiler does not take the processors from the first batches.
    return {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1", **clean}
