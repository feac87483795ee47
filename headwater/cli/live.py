"""What `headwater up` shows while it runs: a table that follows the outputs on a terminal, else lines."""

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from headwater.cli.output import note

if TYPE_CHECKING:
    from headwater.streams.engine.engine import Engine

REFRESH_SECONDS = 0.5
LINE_SECONDS = 30.0

COLUMNS = (
    "output",
    "kind",
    "state",
    "batches",
    "rows/s",
    "lag",
    "ms",
    "watermark",
    "late",
    "dead",
    "state rows",
)


def cells(status: Any) -> tuple[Any, ...]:
    """The columns of one output."""
    watermark = status.watermark
    return (
        status.name,
        status.kind,
        status.state,
        status.batches,
        f"{status.rate:,.0f}",
        status.lag,
        round(status.batch_ms),
        watermark if watermark and not watermark.startswith("1970") else None,
        status.late,
        status.dead,
        status.state_rows,
    )


class Display:
    """Shows an engine until it is time to stop."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._errors: dict[str, str | None] = {}

    def show(self, stopping: threading.Event, seconds: float | None) -> None:
        """Returns when `stopping` is set, or after so many seconds."""
        end = time.monotonic() + seconds if seconds is not None else float("inf")
        if sys.stdout.isatty():
            self._live(stopping, end)
        else:
            self._lines(stopping, end)

    def _live(self, stopping: threading.Event, end: float) -> None:
        from rich.live import Live

        with Live(self._table(), refresh_per_second=4) as live:
            while time.monotonic() < end and not stopping.wait(REFRESH_SECONDS):
                live.update(self._table())

    def _table(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, title=f"{self._engine.app.name} on {self._engine.settings.bootstrap}")
        for number, name in enumerate(COLUMNS):
            table.add_column(name, justify="left" if number in (0, 1, 2, 7) else "right")
        for status in list(self._engine.status.values()):
            style = "red" if status.error else None
            table.add_row(*("-" if value is None else str(value) for value in cells(status)), style=style)
            if status.error:
                table.add_row("", "", status.error, style="red")
        return table

    def _lines(self, stopping: threading.Event, end: float) -> None:
        said = time.monotonic()
        while time.monotonic() < end and not stopping.wait(min(1.0, max(0.0, end - time.monotonic()))):
            for status in list(self._engine.status.values()):
                if status.error and status.error != self._errors.get(status.name):
                    note(f"{status.name}: {status.error}")
                self._errors[status.name] = status.error
            if time.monotonic() - said >= LINE_SECONDS:
                said = time.monotonic()
                for status in list(self._engine.status.values()):
                    lag = "-" if status.lag is None else status.lag
                    note(
                        f"{status.name}: {status.state}, {status.batches} batches, "
                        f"{status.rate:,.0f} rows/s, lag {lag}, late {status.late}, dead {status.dead}"
                    )
