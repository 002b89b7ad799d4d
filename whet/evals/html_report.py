"""The report: one self-contained HTML file, from the template in `static/`."""

import hashlib
import unicodedata
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader

from whet.evals import formatting
from whet.evals.charts import Plot, make_plot, ticks
from whet.evals.report_data import NamedEval, ReportData
from whet.evals.stats import Estimate
from whet.evals.summary import UNKNOWN
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
    style = _read_static("report.css")
    script = _read_static("report.js")
    sources = f"style-src '{_csp_hash(style)}'; script-src '{_csp_hash(script)}'"
    overall = _overall_rows(data.evals)
    levels = _level_rows(data.evals)
    highs = [estimate.high for row in overall + levels for _, estimate in row.bars]
    names = list(dict.fromkeys(item.name for item in data.evals))
    return (
        _environment()
        .get_template("report.html")
        .render(
            data=data,
            style=style,
            script=script,
            policy=f"default-src 'none'; {sources}; base-uri 'none'",
            overall=overall,
            levels=levels,
            scale=ticks(0.0, max(0.1, *highs), 6) if data.evals else [],
            tones=_tones(names),
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


def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_read_static),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape_value,
    )
    for name in ("bounds", "duration", "number", "percent", "percent_interval", "points"):
        environment.filters[name] = getattr(formatting, name)
    environment.filters["cut"] = _truncate
    return environment


def _escape_value(value: object) -> object:
    return value if hasattr(value, "__html__") else escape_hidden(str(value))


def escape_hidden(text: str) -> str:
    """Escape characters that hide or reorder text: control, format, half surrogates.

    >>> escape_hidden("a\\x00b\\u202ec")
    'a\\\\x00b\\\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    return character.encode("unicode_escape").decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRow:
    """Estimates to compare with each other, under one label."""

    label: str
    note: str
    bars: list[tuple[NamedEval, Estimate]]


def _overall_rows(evals: Sequence[NamedEval]) -> list[BarRow]:
    sampled = [item for item in evals if not item.is_greedy]
    greedy = [item for item in evals if item.is_greedy]
    rows = []
    for k in sorted({k for item in sampled for k in item.summary.pass_at}):
        label = "One sampled answer" if k == 1 else f"Any of {k} answers"
        estimates = [item.summary.pass_at.get(k) for item in sampled]
        rows += _bar_row(label, f"pass@{k}", sampled, estimates)
    estimates = [item.summary.pass_at.get(1) for item in greedy]
    return rows + _bar_row("Greedy answer", "temperature 0", greedy, estimates)


def _level_rows(evals: Sequence[NamedEval]) -> list[BarRow]:
    shown = [item for item in evals if not item.is_greedy] or evals
    levels = sorted({level for item in shown for level in item.summary.by_level} - {UNKNOWN})
    rows = []
    for level in [*levels, UNKNOWN] if levels else []:
        label = "Unknown" if level == UNKNOWN else f"Level {level}"
        estimates = [item.summary.by_level.get(level) for item in shown]
        rows += _bar_row(label, LEVEL_NOTES.get(level, ""), shown, estimates)
    estimates = [item.summary.unsolvable for item in shown]
    return rows + _bar_row("Unsolvable", "recognised as such; reported apart", shown, estimates)


def _bar_row(
    label: str, note: str, evals: Sequence[NamedEval], estimates: Sequence[Estimate | None]
) -> list[BarRow]:
    """Make a row of the evaluations that have an estimate; none if none has."""
    pairs = zip(evals, estimates, strict=True)
    bars = [(item, estimate) for item, estimate in pairs if estimate is not None]
    return [BarRow(label=label, note=note, bars=bars)] if bars else []


def _tones(names: list[str]) -> dict[str, str]:
    """Give the first name the tone of before and the last that of after; a single one is after."""
    tones = dict.fromkeys(names, "middle")
    return tones | dict.fromkeys(names[:1], "before") | dict.fromkeys(names[-1:], "after")


def _plots(data: ReportData) -> dict[str, list[Plot]]:
    stages: dict[str, list[Plot]] = {}
    for curve in data.curves:
        if (plot := make_plot(curve)) is not None:
            stages.setdefault(curve.stage, []).append(plot)
    return stages


def _settings(text: str) -> list[tuple[str, str]]:
    """Split each line into the setting and its origin."""
    lines = text.strip("\n").split("\n") if text.strip() else []
    split = [line.rpartition(" # ") for line in lines]
    return [(value, origin) if sign else (origin, "") for value, sign, origin in split]


def _truncate(text: str) -> str:
    excess = len(text) - MAX_CHARACTERS
    return f"{text[:MAX_CHARACTERS]} … {excess:,} more characters" if excess > 0 else text


def _read_static(name: str) -> str:
    return files("whet.evals").joinpath("static", name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
