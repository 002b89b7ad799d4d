"""The report: one HTML file that needs nothing but itself, from the template in `static/`."""

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader

from whet.evals import wording
from whet.evals.charts import Bar, BarRow, Markup, bar_chart, bar_scale, line_chart, readable, tag
from whet.evals.report_data import NamedEval, ReportData, StageTime
from whet.evals.stats import Estimate
from whet.store.files import write_atomic
from whet.types import Verdict

MAX_LINES = 300
MAX_CHARACTERS = 2_000
VERDICTS = {
    Verdict.CORRECT: ("good", "✓", "right"),
    Verdict.WRONG: ("bad", "✗", "wrong"),
    Verdict.NO_ANSWER: ("bad", "✗", "no answer"),
    Verdict.UNSCORED: ("unsure", "?", "not graded"),
}
MARKS = {True: ("good", "✓", "right"), False: ("bad", "✗", "wrong"), None: ("plain", "", "")}
LEVEL_NOTES = {"1": "easiest fifth", "5": "hardest fifth"}
TIME_PARTS = {
    "sample": "answers by the engine",
    "grade": "waiting for graders after sampling",
    "score": "log-probabilities and values",
    "update": "forward, backward and optimizer",
    "rest": "all else",
}


def write_report(data: ReportData, path: Path) -> None:
    """Write the page in one move, so that a reader never sees half of it."""
    write_atomic(path, page(data).encode())


def page(data: ReportData) -> str:
    """Render the whole document, with its one style and one script named by hash in its policy."""
    style = _read_static("report.css")
    script = _read_static("report.js")
    sources = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    overall = _overall_rows(data.evals)
    levels = _level_rows(data.evals)
    scale = bar_scale(overall + levels) if data.evals else []
    names = list(dict.fromkeys(item.name for item in data.evals))
    return (
        _environment()
        .get_template("report.html")
        .render(
            data=data,
            style=style,
            script=script,
            policy=f"default-src 'none'; {sources}; base-uri 'none'",
            overall_chart=bar_chart(overall, scale) if overall else "",
            level_chart=bar_chart(levels, scale) if levels else "",
            ks=sorted({k for item in data.evals for k in item.summary.pass_at}),
            curves=_curves(data),
            samples=[sample for sample in data.samples if sample.before or sample.after],
            titles=(names[0], names[-1]) if len(names) > 1 else ("before", "after"),
            settings=_settings(data.settings),
            verdicts=VERDICTS,
            marks=MARKS,
            max_lines=MAX_LINES,
            parts=TIME_PARTS,
            share=_share_cell,
            time_bar=_time_bar,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_read_static),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_make_readable,
    )
    for action in (wording.bounds, wording.duration, wording.number, wording.points, _cut):
        environment.filters[action.__name__.lstrip("_")] = action
    return environment


def _make_readable(value: object) -> object:
    return value if hasattr(value, "__html__") else readable(str(value))


def _overall_rows(evals: Sequence[NamedEval]) -> list[BarRow]:
    sampled = [item for item in evals if not item.is_greedy]
    greedy = [item for item in evals if item.is_greedy]
    bars = partial(_bars, _tones(evals))
    rows = []
    for k in sorted({k for item in sampled for k in item.summary.pass_at}):
        label = "One sampled answer" if k == 1 else f"Any of {k} answers"
        estimates = [(item, item.summary.pass_at.get(k)) for item in sampled]
        rows.append(BarRow(label=label, note=f"pass@{k}", bars=bars(estimates)))
    estimates = [(item, item.summary.pass_at.get(1)) for item in greedy]
    rows.append(BarRow(label="Greedy answer", note="temperature 0", bars=bars(estimates)))
    return [row for row in rows if row.bars]


def _level_rows(evals: Sequence[NamedEval]) -> list[BarRow]:
    bars = partial(_bars, _tones(evals))
    shown = [item for item in evals if not item.is_greedy] or evals
    levels = sorted({level for item in shown for level in item.summary.by_level} - {"unknown"})
    rows = []
    for level in levels:
        estimates = [(item, item.summary.by_level.get(level)) for item in shown]
        note = LEVEL_NOTES.get(level, "")
        rows.append(BarRow(label=f"Level {level}", note=note, bars=bars(estimates)))
    if levels:
        estimates = [(item, item.summary.by_level.get("unknown")) for item in shown]
        rows.append(BarRow(label="Unknown", note="difficulty not known", bars=bars(estimates)))
    estimates = [(item, item.summary.unsolvable) for item in shown]
    note = "recognised as such; reported apart"
    rows.append(BarRow(label="Unsolvable", note=note, bars=bars(estimates)))
    return [row for row in rows if row.bars]


def _bars(
    tones: dict[str, str], estimates: Iterable[tuple[NamedEval, Estimate | None]]
) -> tuple[Bar, ...]:
    return tuple(
        Bar(name=item.name, tone=tones[item.name], estimate=estimate)
        for item, estimate in estimates
        if estimate is not None
    )


def _tones(evals: Sequence[NamedEval]) -> dict[str, str]:
    """Give the first name the tone of before and the last that of after; a single one is after."""
    names = list(dict.fromkeys(item.name for item in evals))
    tones = dict.fromkeys(names, "middle")
    return tones | dict.fromkeys(names[:1], "before") | dict.fromkeys(names[-1:], "after")


def _share_cell(estimate: Estimate) -> Markup:
    interval = tag("span", wording.bounds(estimate, 1, scale=100), class_="interval")
    return Markup(wording.percent(estimate.mean, 1) + interval)


def _curves(data: ReportData) -> dict[str, list[Markup]]:
    stages: dict[str, list[Markup]] = {}
    for curve in data.curves:
        if (figure := line_chart(curve)) is not None:
            stages.setdefault(curve.stage, []).append(figure)
    return stages


def _time_bar(stage: StageTime, total: float) -> Markup:
    """Draw a stage's share of the time, split into the parts of its steps where they are known."""
    parts = dict(stage.parts)
    if parts:
        parts["rest"] = max(0.0, stage.seconds - sum(parts.values()))
    rects = []
    start = 0.0
    for part, seconds in (parts or {"time": stage.seconds}).items():
        share = 100 * seconds / total if total > 0 else 0.0
        x = f"{start:.2f}%"
        width = f"{share:.2f}%"
        tip = f"{part}: {wording.duration(seconds)}"
        rects.append(
            tag("rect", x=x, width=width, height=8, class_=f"fill part-{part}", data_tip=tip)
        )
        start += share
    return tag("svg", *rects, width="100%", height=8, aria_hidden="true")


def _settings(text: str) -> list[tuple[str, str]]:
    """Split each line into the setting and its origin."""
    lines = text.strip("\n").split("\n") if text.strip() else []
    split = [line.rpartition(" # ") for line in lines]
    return [(value, origin) if sign else (origin, "") for value, sign, origin in split]


def _cut(text: str) -> str:
    rest = len(text) - MAX_CHARACTERS
    return f"{text[:MAX_CHARACTERS]} … {rest:,} more characters" if rest > 0 else text


def _read_static(name: str) -> str:
    return files("whet.evals").joinpath("static", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
