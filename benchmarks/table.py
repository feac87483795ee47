"""A table of measurements: ours, the peer's, and by what factor ours is better."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Cell:
    """One measure, taken several times on both sides; the median counts."""

    group: str
    name: str
    unit: str
    more_is_better: bool
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    target: float | None = None  # what ours is meant to reach, in the same unit, whatever the peer does

    @property
    def factor(self) -> float | None:
        """Above 1, ours is the better one.

        >>> Cell("produce", "100 B", "records/s", True, [300.0, 200.0, 100.0], [100.0]).factor
        2.0
        >>> Cell("memory", "idle", "MB", False, [50.0], [300.0]).factor
        6.0
        """
        if not self.ours or not self.theirs:
            return None
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        if not ours or not theirs:
            return None
        return ours / theirs if self.more_is_better else theirs / ours

    def row(self) -> list[str]:
        factor = self.factor
        return [
            self.group,
            f"{self.name}, {self.unit}",
            _show(self.ours),
            _show(self.theirs),
            "" if factor is None else f"{factor:.2f}",
        ]


class Table:
    """The cells in the order in which they were first measured."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def add(
        self, side: str, group: str, name: str, unit: str, value: float, more_is_better: bool = False
    ) -> None:
        """One more measurement of a cell; ``side`` is ``ours`` or ``theirs``."""
        for cell in self.cells:
            if (cell.group, cell.name) == (group, name):
                break
        else:
            cell = Cell(group, name, unit, more_is_better)
            self.cells.append(cell)
        (cell.ours if side == "ours" else cell.theirs).append(value)

    def rows(self, headings: Sequence[str]) -> list[list[str]]:
        groups = list(dict.fromkeys(cell.group for cell in self.cells))
        ordered = sorted(self.cells, key=lambda cell: groups.index(cell.group))
        rows = [list(headings)]
        previous = ""
        for cell in ordered:
            row = cell.row()
            if row[0] == previous:
                row[0] = ""
            else:
                previous = row[0]
            rows.append(row)
        return rows


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """
    >>> print(markdown([["what", "n"], ["a", "10"]]))
    | what |  n |
    | :--- | -: |
    | a    | 10 |
    """
    widths = [max(2, *(len(row[column]) for row in rows)) for column in range(len(rows[0]))]
    left = [True, *(not _numeric(rows, column) for column in range(1, len(widths)))]

    def line(row: Sequence[str], pad: Callable[[str, int, bool], str]) -> str:
        cells = zip(row, widths, left, strict=True)
        return "| " + " | ".join(pad(text, width, is_left) for text, width, is_left in cells) + " |"

    def padded(text: str, width: int, is_left: bool) -> str:
        return text.ljust(width) if is_left else text.rjust(width)

    def rule(_: str, width: int, is_left: bool) -> str:
        return ":" + "-" * (width - 1) if is_left else "-" * (width - 1) + ":"

    return "\n".join([line(rows[0], padded), line(rows[0], rule), *(line(row, padded) for row in rows[1:])])


def _numeric(rows: Sequence[Sequence[str]], column: int) -> bool:
    return all(not row[column] or row[column][0].isdigit() for row in rows[1:])


def _show(values: Sequence[float]) -> str:
    """The median, and the range it comes from."""
    if not values:
        return ""
    middle = _number(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    """
    >>> [_number(value) for value in (1234567.0, 123.4, 12.34, 0.1234)]
    ['1,234,567', '123', '12.3', '0.12']
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
