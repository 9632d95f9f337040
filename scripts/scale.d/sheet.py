"""What was measured: one row for each thing, at little and at much, and how they stand to each other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple


class Figure(NamedTuple):
    group: str  # of which the two sizes are told once
    what: str
    few: float | None
    many: float
    unit: str

    @property
    def ratio(self) -> float | None:
        return None if self.few is None or self.few <= 0 else self.many / self.few


class Sheet:
    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self.group = ""
        self._begun = time.monotonic()

    def begin(self, group: str) -> None:
        self.group = group
        self._begun = time.monotonic()
        say(group)

    def end(self) -> None:
        say(f"  {time.monotonic() - self._begun:.0f} s")

    def add(self, what: str, few: float | None, many: float, unit: str = "ms") -> None:
        figure = Figure(self.group, what, few, many, unit)
        self.figures.append(figure)
        say("  " + "  ".join(each for each in _cells(figure)[1:] if each))

    def compare(self, what: str, few: Callable[[], Any], many: Callable[[], Any], *, times: int) -> None:
        """Medians, in turn: whatever else the machine does meets both alike. Each is done once before, uncounted."""
        few()
        many()
        spent: tuple[list[float], list[float]] = ([], [])
        for _ in range(times):
            for each, act in zip(spent, (few, many), strict=True):
                begun = time.perf_counter()
                act()
                each.append((time.perf_counter() - begun) * 1e3)
        self.add(what, median(spent[0]), median(spent[1]))

    def table(self) -> str:
        rows = [("of", "what", "at few", "at many", "ratio"), *(_cells(each) for each in self.figures)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        rows.insert(1, tuple("-" * width for width in widths))
        last = ""
        lines: list[str] = []
        for row in rows:
            group, last = ("" if row[0] == last else row[0]), row[0]
            texts = (group.ljust(widths[0]), row[1].ljust(widths[1]))
            lines.append(
                f"| {' | '.join([*texts, *(text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True))])} |"
            )
        return "\n".join(lines)


def _cells(figure: Figure) -> tuple[str, str, str, str, str]:
    ratio = figure.ratio
    few = "" if figure.few is None else f"{number(figure.few)} {figure.unit}"
    return (
        figure.group,
        figure.what,
        few,
        f"{number(figure.many)} {figure.unit}",
        "" if ratio is None else f"{ratio:.2f}",
    )


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
