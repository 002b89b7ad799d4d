"""The page of several runs side by side: one static HTML file in the style of the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.errors import DataError
from whet.evals.charts import (
    Bar,
    BarRow,
    ForestRow,
    draw_bars,
    draw_curves,
    draw_forest,
    draw_legend,
    tone,
)
from whet.evals.comparison import PairedComparison
from whet.evals.page import render_static
from whet.evals.report_data import Curve
from whet.evals.stats import Estimate
from whet.store.files import write_atomic

MARK = "<!-- whet compare -->"
"""In the page, so that a later comparison may replace it, and no file of another kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFacts:
    """One setting with its runs."""

    name: str
    seeds: Sequence[str]
    folders: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """A setting that differs, and its value in each arm."""

    key: str
    meaning: str
    values: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmScore:
    """What one arm scored: over its seeds, for each seed, and against the first arm."""

    estimate: Estimate
    by_seed: Sequence[float]
    comparison: PairedComparison | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One figure of all arms; None where an arm has none."""

    stage: str
    figure: str
    scores: Sequence[ArmScore | None]
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.stage} {self.figure}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPage:
    """Everything on the page, from top to bottom."""

    title: str
    headline: str
    detail: str
    """The numbers behind the headline."""
    arms: Sequence[ArmFacts]
    settings: Sequence[SettingRow]
    scores: Sequence[ScoreRow]
    curves: Mapping[str, Mapping[str, Sequence[Curve]]]
    """By stage and metric, a curve for each arm."""
    notes: Sequence[str] = ()
    """What a reader should know before believing the numbers."""


def write_comparison(page: ComparisonPage, path: Path) -> None:
    """Write the page atomically; a file that is no comparison is not replaced."""
    if path.is_file() and MARK.encode() not in path.read_bytes()[:200]:
        raise DataError(f"{path} is there already and is no comparison: choose another --out")
    write_atomic(path, render_comparison(page).encode("utf-8", "replace"))


def render_comparison(page: ComparisonPage) -> str:
    """Render the page, without a script."""
    names = [arm.name for arm in page.arms]
    panels = {
        stage: [drawn for name, curves in metrics.items() if (drawn := draw_curves(name, curves))]
        for stage, metrics in page.curves.items()
    }
    return render_static(
        "comparison.html",
        page=page,
        legend=draw_legend(names),
        bars=_draw_scores(page, names),
        forests=_draw_differences(page, names),
        panels={stage: drawn for stage, drawn in panels.items() if drawn},
        tones=[tone(index) for index in range(len(names))],
    )


def _draw_scores(page: ComparisonPage, names: Sequence[str]) -> str:
    rows = []
    for row in page.scores:
        bars = [
            Bar(name=name, estimate=score.estimate, tone=tone(index))
            for index, (name, score) in enumerate(zip(names, row.scores, strict=True))
            if score is not None
        ]
        rows.append(BarRow(label=row.stage, note=row.figure, bars=bars))
    return draw_bars(rows) if rows else ""


def _draw_differences(page: ComparisonPage, names: Sequence[str]) -> str:
    rows = [
        ForestRow(label=f"{name}, {row.name}", difference=score.comparison.difference)
        for row in page.scores
        for name, score in zip(names, row.scores, strict=True)
        if score is not None and score.comparison is not None
    ]
    return draw_forest(rows) if rows else ""
