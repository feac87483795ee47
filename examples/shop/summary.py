"""What the demo shows in the terminal while it runs: a table that follows, or a line now and then."""

import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.shop.traffic import Counts
from headwater.streams.engine.status import StatusFile
from headwater.views.store import ViewStore

LINE_SECONDS = 10.0
KEPT_ALERTS = 4


class Summary:
    """The views, how quick they are, what was sent, and the last alerts."""

    def __init__(
        self,
        store: ViewStore,
        data: Path,
        url: str,
        counts: Counts,
        firsts: dict[str, float],
        bootstrap: str,
    ) -> None:
        self._store, self._url, self._counts, self._firsts = store, url, counts, firsts
        self._status = StatusFile(data, "shop")
        self._live: Live | None = None
        self._said = time.monotonic()
        self._shown: set[str] = set()
        self._alerts: deque[str] = deque(maxlen=KEPT_ALERTS)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "shop-demo",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._follows = False

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            self._live = Live(Text("waiting for the first rows ..."), refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*failure)
            self._live = None
        self._consumer.close()

    def show(self) -> None:
        """Brings it up to date."""
        self._follow_alerts()
        for name, at in self._firsts.items():
            if name not in self._shown:
                self._shown.add(name)
                if self._live is None:
                    print(f"first rows of {name} after {at:.1f} s", flush=True)
        if self._live is not None:
            self._live.update(self._table())
        elif time.monotonic() - self._said > LINE_SECONDS:
            self._said = time.monotonic()
            print(self._line(), flush=True)

    def _line(self) -> str:
        counts = self._counts
        return (
            f"{counts.orders:,} orders, {counts.clicks:,} clicks, {counts.readings:,} readings; "
            f"{sum(self._rows().values()):,} rows in {len(self._rows())} views"
        )

    def _rows(self) -> dict[str, int]:
        return {info.name: info.versions[-1].progress.rows for info in self._store.views()}

    def _table(self) -> Group:
        table = Table(box=SIMPLE_HEAD, title=f"the shop is open: {self._url}")
        for number, name in enumerate(
            ("output", "rows", "rows/s in", "lag", "batch ms", "late", "first row")
        ):
            table.add_column(name, justify="left" if number == 0 else "right")
        outputs = (self._status.read() or {}).get("outputs", [])
        rows = self._rows()
        for each in outputs:
            name = each["name"]
            first = self._firsts.get(name)
            table.add_row(
                name,
                f"{rows[name]:,}" if name in rows else f"{each['rows_out']:,} written",
                f"{each['rate']:,.1f}",
                "-" if each["lag"] is None else f"{each['lag']:,}",
                f"{each['batch_ms']:,.0f}" if each["batch_ms"] else "-",
                str(each["late"]),
                "-" if first is None else f"{first:.1f} s",
                style="red" if each["error"] else None,
            )
        alerts = Text("\n".join(self._alerts) or "no alerts yet", style="yellow" if self._alerts else "dim")
        return Group(table, Text(self._line()), alerts, Text("Ctrl-C ends it", style="dim"))

    def _follow_alerts(self) -> None:
        if not self._follows:
            if "alerts" not in self._consumer.list_topics(timeout=1.0).topics:
                return
            self._consumer.assign([TopicPartition("alerts", 0, 0)])
            self._follows = True
        for message in self._consumer.consume(100, 0.0):
            value = message.value()
            if message.error() is None and value is not None:
                alert = json.loads(value)
                text = f"{alert['at'][11:19]} {alert['alert']}: {alert['about']} ({alert['value']:g})"
                self._alerts.append(text)
                if self._live is None:
                    print(f"alert: {text}", flush=True)
