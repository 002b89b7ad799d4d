"""The report of a run, and of several runs side by side: self-contained HTML files, from templates
in `static/`, with charts as SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.errors import DataError
from whet.evals.comparison import PairedComparison
from whet.evals.stats import Estimate
from whet.evals.summary import UNKNOWN
from whet.level_bands import NUM_LEVELS
from whet.reports.charts import (
    Bar,
    BarRow,
    ForestRow,
    Plot,
    draw_bars,
    draw_curves,
    draw_forest,
    draw_legend,
    make_plot,
    share_axis,
    tone,
)
from whet.reports.page import build_environment, csp_hash, read_static, render_static
from whet.reports.report_data import Curve, NamedEval, ReportData
from whet.store.files import write_atomic
from whet.types import Verdict

MAX_LINES = 300
_VERDICTS = {
    Verdict.CORRECT: ("good", "✓", "right"),
    Verdict.WRONG: ("bad", "✗", "wrong"),
    Verdict.NO_ANSWER: ("bad", "✗", "no answer"),
    Verdict.UNSCORED: ("unsure", "?", "not graded"),
}
MARKS = {True: ("good", "✓", "right"), False: ("bad", "✗", "wrong"), None: ("plain", "", "")}
LEVEL_NOTES = {
    **{
        str(i + 1): f"difficulty {i / NUM_LEVELS:g} to {(i + 1) / NUM_LEVELS:g}"
        for i in range(NUM_LEVELS)
    },
    UNKNOWN: "difficulty not known",
}
"""A level is a band of the scale from 0, the easiest, to 1, and not a share of the problems."""
TIME_PHASES = {
    "start": "before the first step",
    "sample": "responses by the engine",
    "grade": "waiting for graders after sampling",
    "logprobs": "log-probabilities and values",
    "update": "forward, backward and optimizer",
    "validate": "validations",
    "save": "checkpoints",
    "rest": "all else",
}
_MARK = "<!-- whet compare -->"
"""A mark in the page: a later comparison may replace a file that has it, and no other."""


def write_report(data: ReportData, path: Path) -> None:
    """Write the page atomically."""
    write_atomic(path, render_report(data).encode())


def render_report(data: ReportData) -> str:
    """Render the document; its content security policy names its style and script by hash."""
    style = read_static("report.css")
    script = read_static("report.js")
    sources = f"style-src '{csp_hash(style)}'; script-src '{csp_hash(script)}'"
    names = list(dict.fromkeys(item.name for item in data.evals))
    overall, levels = (rows(data.evals, _tones(names)) for rows in (_overall_rows, _level_rows))
    axis = share_axis(overall + levels)
    return (
        build_environment()
        .get_template("report.html")
        .render(
            data=data,
            style=style,
            script=script,
            policy=f"default-src 'none'; {sources}; base-uri 'none'",
            overall=draw_bars(overall, axis) if overall else "",
            levels=draw_bars(levels, axis) if levels else "",
            ks=sorted({k for item in data.evals for k in item.summary.pass_at}),
            subsets=sorted({subset for item in data.evals for subset in item.summary.f1}),
            plots=_plots(data),
            samples=[sample for sample in data.samples if sample.before or sample.after],
            titles=data.titles
            or ((names[0], names[-1]) if len(names) > 1 else ("before", "after")),
            settings=_settings(data.settings),
            verdicts=_VERDICTS,
            marks=MARKS,
            max_lines=MAX_LINES,
            phases=TIME_PHASES,
        )
    )


def _overall_rows(evals: Sequence[NamedEval], tones: Mapping[str, str]) -> list[BarRow]:
    sampled = [item for item in evals if not item.is_greedy]
    greedy = [item for item in evals if item.is_greedy]
    rows = []
    for k in sorted({k for item in sampled for k in item.summary.pass_at}):
        label = "One sampled response" if k == 1 else f"Any of {k} responses"
        estimates = [item.summary.pass_at.get(k) for item in sampled]
        rows += _bar_row(label, f"pass@{k}", _bars(sampled, estimates, tones))
    estimates = [item.summary.pass_at.get(1) for item in greedy]
    return rows + _bar_row("Greedy response", "temperature 0", _bars(greedy, estimates, tones))


def _level_rows(evals: Sequence[NamedEval], tones: Mapping[str, str]) -> list[BarRow]:
    shown = [item for item in evals if not item.is_greedy] or evals
    levels = sorted({level for item in shown for level in item.summary.by_level} - {UNKNOWN})
    rows = []
    for level in [*levels, UNKNOWN] if levels else []:
        label = "Unknown" if level == UNKNOWN else f"Level {level}"
        estimates = [item.summary.by_level.get(level) for item in shown]
        rows += _bar_row(label, LEVEL_NOTES.get(level, ""), _bars(shown, estimates, tones))
    estimates = [item.summary.unsolvable for item in shown]
    return rows + _bar_row(
        "Unsolvable", "recognised as such; reported apart", _bars(shown, estimates, tones)
    )


def _bar_row(label: str, note: str, bars: Sequence[Bar]) -> list[BarRow]:
    """Make a row of the evaluations that have an estimate; empty if none has one."""
    return [BarRow(label=label, note=note, bars=bars)] if bars else []


def _bars(
    evals: Sequence[NamedEval], estimates: Sequence[Estimate | None], tones: Mapping[str, str]
) -> list[Bar]:
    return [
        Bar(name=item.name, estimate=estimate, tone=tones[item.name])
        for item, estimate in zip(evals, estimates, strict=True)
        if estimate is not None
    ]


def _tones(names: list[str]) -> dict[str, str]:
    """Give the first name the tone of "before" and the last that of "after"; a single name is
    "after"."""
    tones = dict.fromkeys(names, "middle")
    return tones | dict.fromkeys(names[:1], "before") | dict.fromkeys(names[-1:], "after")


def _settings(text: str) -> list[tuple[str, str]]:
    """Split each line into the setting and its origin."""
    lines = text.strip("\n").split("\n") if text.strip() else []
    split = [line.rpartition(" # ") for line in lines]
    return [(value, origin) if sign else (origin, "") for value, sign, origin in split]


def _plots(data: ReportData) -> dict[str, list[Plot]]:
    stages: dict[str, list[Plot]] = {}
    for curve in data.curves:
        if (plot := make_plot(curve.name, [curve])) is not None:
            stages.setdefault(curve.stage, []).append(plot)
    return stages


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
    """One figure for all arms; None for an arm that lacks it."""

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
    """Write the page atomically; a file that is not a comparison is not replaced."""
    if path.is_file() and _MARK.encode() not in path.read_bytes()[:200]:
        raise DataError(f"{path} already exists and is not a comparison: choose another --out")
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
