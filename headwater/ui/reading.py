"""Rows of views for open pages: read when the view has changed, once for all pages that want the same."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headwater.errors import HeadwaterError
from headwater.streams.declarations import Chart
from headwater.ui import charting
from headwater.ui.charting import Points
from headwater.views.filters import Filter, Order
from headwater.views.model import VersionInfo, ViewInfo
from headwater.views.store import ViewStore

T = TypeVar("T")

KEPT = 200  # answers


@dataclass(frozen=True)
class ChartData:
    """What a chart shows, or the cause why it cannot."""

    points: Points = field(default_factory=Points)
    total: float | None = None
    is_part: bool = False  # of the view: it has more rows than a chart reads
    cause: str = ""


@dataclass(frozen=True)
class RowsData:
    """A page of rows, or the cause why there is none."""

    version: VersionInfo | None = None
    rows: tuple[dict[str, Any], ...] = ()
    cause: str = ""
    has_more: bool = False


class _Answer(Generic[T]):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.mark: Hashable = None  # what the view was when it was read
        self.value: T | None = None
        self.until = 0.0  # not read again before


class Reads:
    """Answers that are kept until their view changes. A read that takes long is repeated less often."""

    def __init__(self, store: ViewStore) -> None:
        self._store = store
        self._answers: OrderedDict[Hashable, _Answer[Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._infos: tuple[float, dict[str, ViewInfo]] = (0.0, {})

    def info(self, view: str) -> ViewInfo | None:
        """The view as it is in the store, at most a fifth of a second old."""
        at, infos = self._infos
        if time.monotonic() - at > 0.2:
            infos = {info.name: info for info in self._store.views()}
            self._infos = (time.monotonic(), infos)
        return infos.get(view)

    def chart(self, chart: Chart) -> ChartData:
        """What a chart shows now."""

        def read(version: VersionInfo) -> ChartData:
            if (cause := charting.missing(chart, version.schema)) is not None:
                return ChartData(cause=cause[0].upper() + cause[1:] + ".")
            order = charting.order(chart, version.schema)
            rows = self._store.rows(chart.view, order=order, limit=charting.MOST_ROWS)
            if chart.kind == "number":
                is_part = version.progress.rows > len(rows)
                return ChartData(total=charting.total(chart, rows), is_part=is_part)
            return ChartData(charting.points(chart, rows))

        return self._kept(("chart", chart), chart.view, read, lambda cause: ChartData(cause=cause))

    def rows(
        self, view: str, where: Filter | None, order: tuple[Order, ...], offset: int, limit: int
    ) -> RowsData:
        """A page of rows now."""

        def read(version: VersionInfo) -> RowsData:
            found = self._store.rows(view, where=where, order=order, offset=offset, limit=limit + 1)
            return RowsData(version, tuple(found[:limit]), has_more=len(found) > limit)

        key = ("rows", view, where, order, offset, limit)
        return self._kept(key, view, read, lambda cause: RowsData(cause=cause))

    def _kept(
        self, key: Hashable, view: str, read: Callable[[VersionInfo], T], failed: Callable[[str], T]
    ) -> T:
        with self._lock:
            answer: _Answer[T] = self._answers.setdefault(key, _Answer())
            self._answers.move_to_end(key)
            while len(self._answers) > KEPT:
                self._answers.popitem(last=False)
        with answer.lock:  # whoever asks for the same meanwhile gets the same
            try:
                info = self.info(view)
                version = _serving(info)
                mark: Hashable = None if info is None else (info.last_change, info.serving)
                if answer.value is not None and (mark == answer.mark or time.monotonic() < answer.until):
                    return answer.value
                began = time.monotonic()
                if version is None:
                    answer.value = failed(
                        f"The view {view} has not been built yet; it appears with its first rows."
                    )
                else:
                    answer.value = read(version)
                answer.mark = mark
                answer.until = time.monotonic() + 4 * (time.monotonic() - began)
            except HeadwaterError as error:
                answer.value, answer.mark = failed(f"{error.cause}. {error.next_step}"), None
                answer.until = time.monotonic() + 1.0
            return answer.value


def _serving(info: ViewInfo | None) -> VersionInfo | None:
    if info is None:
        return None
    return next((version for version in info.versions if version.version == info.serving), None)
