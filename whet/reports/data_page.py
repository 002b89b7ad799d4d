"""A static HTML page of statistics: bars in the style of the report, without a script."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.reports.page import render_static
from whet.store.files import write_atomic

MAX_BARS = 60
"""Bars of one chart; the rest is one bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Counts by label."""

    title: str
    bars: Sequence[tuple[str, int]]
    note: str = ""

    @property
    def most(self) -> int:
        return max((count for _, count in self.bars), default=0) or 1

    @property
    def total(self) -> int:
        return sum(count for _, count in self.bars) or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPage:
    """The content of a page."""

    title: str
    headline: str
    facts: Sequence[tuple[str, str]]
    charts: Sequence[BarChart]


def write_page(page: DataPage, path: Path) -> None:
    """Write the page atomically."""
    write_atomic(path, render_page(page).encode("utf-8", "replace"))


def render_page(page: DataPage) -> str:
    """Render the document; its content security policy allows its style and nothing else."""
    charts = [shorten_chart(chart) for chart in page.charts if chart.bars]
    return render_static("data.html", page=page, charts=charts)


def shorten_chart(chart: BarChart) -> BarChart:
    """Merge the bars beyond the most that are shown."""
    rest = chart.bars[MAX_BARS:]
    if not rest:
        return chart
    bars = [*chart.bars[:MAX_BARS], (f"{len(rest):,} others", sum(count for _, count in rest))]
    return BarChart(title=chart.title, bars=bars, note=chart.note)
