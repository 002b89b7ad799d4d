"""The report: one self-contained HTML file, from the template in `static/`, with charts as SVG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from whet.evals.charts import Bar, BarRow, Plot, draw_bars, make_plot, share_axis
from whet.evals.page import build_environment, csp_hash, read_static
from whet.evals.report_data import NamedEval, ReportData
from whet.evals.stats import Estimate
from whet.evals.summary import UNKNOWN
from whet.store.files import write_atomic
from whet.types import Verdict

MAX_LINES = 300
VERDICTS = {
    Verdict.CORRECT: ("good", "✓", "right"),
    Verdict.WRONG: ("bad", "✗", "wrong"),
    Verdict.NO_ANSWER: ("bad", "✗", "no answer"),
    Verdict.UNSCORED: ("unsure", "?", "not graded"),
}
MARKS = {True: ("good", "✓", "right"), False: ("bad", "✗", "wrong"), None: ("plain", "", "")}
LEVEL_NOTES = {"1": "easiest fifth", "5": "hardest fifth", UNKNOWN: "difficulty not known"}
TIME_PHASES = {
    "sample": "answers by the engine",
    "grade": "waiting for graders after sampling",
    "score": "log-probabilities and values",
    "update": "forward, backward and optimizer",
    "rest": "all else",
}


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
            verdicts=VERDICTS,
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
        label = "One sampled answer" if k == 1 else f"Any of {k} answers"
        estimates = [item.summary.pass_at.get(k) for item in sampled]
        rows += _bar_row(label, f"pass@{k}", _bars(sampled, estimates, tones))
    estimates = [item.summary.pass_at.get(1) for item in greedy]
    return rows + _bar_row("Greedy answer", "temperature 0", _bars(greedy, estimates, tones))


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
    """Make a row of the evaluations that have an estimate; none if none has."""
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
    """Give the first name the tone of before and the last that of after; a single one is after."""
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
