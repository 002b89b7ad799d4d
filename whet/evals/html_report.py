"""The report: one self-contained HTML file, from the template in `static/`, with curves as SVG.

Not plotly: plotly.js alone makes every report 4.8 MB, needs scripts, and has to redraw for dark
mode and print. These curves take about 20 kB each at most.
"""

import hashlib
import json
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import ceil, floor, log10
from pathlib import Path

import numpy as np
from jinja2 import Environment, FunctionLoader
from numpy.typing import NDArray

from whet.evals import formatting
from whet.evals.formatting import SPACE, number, percent, significant
from whet.evals.report_data import Curve, NamedEval, ReportData, Unit
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
MAX_POINTS = 300
SMOOTH_FROM = 40
"""Curves with fewer points are drawn as they are."""
MIN_RANGE = 1e-200

Values = NDArray[np.float64]


def write_report(data: ReportData, path: Path) -> None:
    """Write the page atomically."""
    write_atomic(path, render_report(data).encode())


def render_report(data: ReportData) -> str:
    """Render the document; its content security policy names its style and script by hash."""
    style = read_static("report.css")
    script = read_static("report.js")
    sources = f"style-src '{csp_hash(style)}'; script-src '{csp_hash(script)}'"
    overall = _overall_rows(data.evals)
    levels = _level_rows(data.evals)
    highs = [estimate.high for row in overall + levels for _, estimate in row.bars]
    names = list(dict.fromkeys(item.name for item in data.evals))
    return (
        build_environment()
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


def build_environment() -> Environment:
    """Build the environment of pages: everything is escaped, and hidden characters are shown."""
    environment = Environment(
        loader=FunctionLoader(read_static),
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


def _settings(text: str) -> list[tuple[str, str]]:
    """Split each line into the setting and its origin."""
    lines = text.strip("\n").split("\n") if text.strip() else []
    split = [line.rpartition(" # ") for line in lines]
    return [(value, origin) if sign else (origin, "") for value, sign, origin in split]


def _truncate(text: str) -> str:
    excess = len(text) - MAX_CHARACTERS
    return f"{text[:MAX_CHARACTERS]} … {excess:,} more characters" if excess > 0 else text


def read_static(name: str) -> str:
    """Read a template, style or script."""
    return files("whet.evals").joinpath("static", name).read_text(encoding="utf-8")


def csp_hash(text: str) -> str:
    """Hash a style or script, for the content security policy to name it by."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """The points of one curve. `smooth` is as long as `values`, or empty without smoothing."""

    steps: Values
    values: Values
    low: Values
    high: Values
    smooth: Values
    span: tuple[float, float]
    """First and last step, before neighbours are averaged."""
    num_dropped: int
    """Values that are not finite."""
    bin_size: int
    """Neighbouring steps averaged into one point."""
    window: int
    """Points in the running mean."""

    @property
    def has_band(self) -> bool:
        return len(self.low) > 0


def make_series(curve: Curve) -> Series | None:
    """Prepare a curve: finite points, few enough for a screen; None if no value is finite."""
    columns = [
        np.asarray(column, dtype=np.float64)
        for column in (curve.steps, curve.values, curve.low, curve.high)
    ]
    sizes = [len(column) for column in columns]
    assert sizes[0] == sizes[1], f"curve {curve.name} has {sizes[0]} steps and {sizes[1]} values"
    assert sizes[2] == sizes[3] in (0, sizes[1]), f"curve {curve.name} has half a band"
    finite = np.isfinite(columns[0]) & np.isfinite(columns[1])
    if not finite.any():
        return None
    columns = [column[finite] if len(column) else column for column in columns]
    bin_size = ceil(len(columns[0]) / MAX_POINTS)
    steps, values, low, high = (_average_bins(column, bin_size) for column in columns)
    window = max(3, len(values) // 20) if len(values) >= SMOOTH_FROM else 0
    return Series(
        steps=steps,
        values=values,
        low=low,
        high=high,
        smooth=_running_mean(values, window) if window else np.empty(0),
        span=(float(columns[0].min()), float(columns[0].max())),
        num_dropped=int((~finite).sum()),
        bin_size=bin_size,
        window=window,
    )


def ticks(low: float, high: float, max_ticks: int) -> list[float]:
    """Choose two to `max_ticks` round numbers that enclose [low, high].

    >>> ticks(0.0, 0.83, 5)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, MIN_RANGE):  # flat, or too close for ticks to differ
        half = size / 2 if size > MIN_RANGE else 0.5
        low -= half
        high += half
    magnitude = floor(log10((high - low) / max_ticks))
    powers = range(magnitude, magnitude + 3)
    for step in (factor * 10.0**power for power in powers for factor in (1, 2, 2.5, 5)):
        first = floor(low / step + 1e-9)
        last = ceil(high / step - 1e-9)
        if last - first + 1 <= max_ticks:
            digits = 12 - floor(log10(step))
            return [round(index * step, digits) for index in range(first, last + 1)]
    raise AssertionError(f"no ticks found between {low} and {high}")


def _average_bins(column: Values, size: int) -> Values:
    if size <= 1 or len(column) == 0:
        return column
    starts = np.arange(0, len(column), size)
    return np.add.reduceat(column, starts) / np.diff(np.append(starts, len(column)))


def _running_mean(values: Values, window: int) -> Values:
    """Average each point with its neighbours, fewer near the ends."""
    kernel = np.ones(window)
    return np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same")


class Plot:
    """A curve with its axes: the coordinates and the label of each point."""

    width, height = 360, 190
    left, right, top, bottom = 46, 350, 10, 166

    def __init__(self, curve: Curve, points: Series) -> None:
        self.name = curve.name
        self.points = points
        self.format_value = _value_formatter(curve.unit)
        first, last = (points.smooth if points.window else points.values)[[0, -1]]
        self.span = self.format_value(float(last))
        if len(points.values) > 1:
            self.span = f"{self.format_value(float(first))} → {self.span}"
        self.label = f"{curve.name} over {curve.stage} steps: {self.span}"
        self.caption = " ".join(_caption(curve, points))
        low, high = (points.low, points.high) if points.has_band else (points.values, points.values)
        self.y_ticks = ticks(float(low.min()), float(high.max()), 5)
        self.y_texts = _tick_texts(self.y_ticks, curve.unit)
        start, end = points.span
        self.x_ticks = [tick for tick in ticks(start, end, 6) if start <= tick <= end] or [start]

    def x(self, step: float) -> float:
        start, end = self.points.span
        fraction = (step - start) / (end - start) if end > start else 0.5
        return round(self.left + fraction * (self.right - self.left), 1)

    def y(self, value: float) -> float:
        fraction = (value - self.y_ticks[0]) / (self.y_ticks[-1] - self.y_ticks[0])
        return round(self.bottom - fraction * (self.bottom - self.top), 1)

    def coordinates(self, values: Values) -> list[tuple[float, float]]:
        """Return the coordinates of the points of a line."""
        pairs = zip(self.points.steps.tolist(), values.tolist(), strict=True)
        return [(self.x(step), self.y(value)) for step, value in pairs]

    def hover(self) -> str:
        """List each point with its tooltip, as JSON."""
        steps, values = self.points.steps.tolist(), self.points.values.tolist()
        texts = [
            f"step {number(step, 0)}: {self.format_value(value)}"
            for step, value in zip(steps, values, strict=True)
        ]
        coordinates = self.coordinates(self.points.values)
        return json.dumps([[x, y, text] for (x, y), text in zip(coordinates, texts, strict=True)])


def make_plot(curve: Curve) -> Plot | None:
    """Lay a curve out; None if it has no finite value."""
    points = make_series(curve)
    return None if points is None else Plot(curve, points)


def _tick_texts(values: Sequence[float], unit: Unit) -> list[str]:
    """Write all ticks of an axis with as few decimals as tell them apart exactly."""
    scale, sign = (100, f"{SPACE}%") if unit is Unit.FRACTION else (1, "")
    scaled = [round(scale * value, 12) for value in values]
    for digits in range(6):
        if all(round(value, digits) == value for value in scaled):
            return [number(value, digits) + sign for value in scaled]
    return [significant(value) + sign for value in scaled]


def _caption(curve: Curve, points: Series) -> list[str]:
    parts = [curve.note] if curve.note else []
    if points.window:
        parts += [f"Thick: mean of {points.window} neighbouring points."]
    if points.bin_size > 1:
        parts += [f"A point is the mean of {points.bin_size} steps."]
    if points.has_band:
        parts += [f"Band: 95{SPACE}% interval."]
    if points.num_dropped:
        parts += [f"{points.num_dropped} values were not finite and are left out."]
    return parts


def _value_formatter(unit: Unit) -> Callable[[float], str]:
    match unit:
        case Unit.FRACTION:
            return lambda value: percent(value, 1).replace(".0", "")
        case Unit.TOKENS:
            return lambda value: number(value, 0)
        case Unit.NUMBER:
            return significant


def _plots(data: ReportData) -> dict[str, list[Plot]]:
    stages: dict[str, list[Plot]] = {}
    for curve in data.curves:
        if (plot := make_plot(curve)) is not None:
            stages.setdefault(curve.stage, []).append(plot)
    return stages
