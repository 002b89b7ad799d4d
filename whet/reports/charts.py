"""Charts as SVG for any page: curves with bands, bars with intervals, differences with intervals.

The style sheet gives the colours, in light and dark mode and in print. Plotly is not used: its
script alone is 4.8 MB, and it would redraw for dark mode. These charts take at most about 20 kB
each.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np

from whet.evals.stats import Estimate
from whet.reports.formatting import MINUS, SPACE, number, percent, significant
from whet.reports.page import build_environment
from whet.reports.report_data import Curve, Unit
from whet.types import Doubles

MAX_POINTS = 300
SMOOTH_FROM = 40
"""Curves with fewer points are drawn as they are."""
MIN_RANGE = 1e-200
NUM_TONES = 6
"""Colours of the style sheet; further lines use the first ones again, dashed."""
CHARACTER_WIDTH = 6.4
"""Width of a character in units of the plot; it decides the room for labels of the axis."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw_curves(title: str, curves: Sequence[Curve]) -> str | None:
    """Draw curves over the same axes in one panel, each in its tone; None if no value is finite.

    Each curve is named by its `stage`. Panels share a legend, so the page draws it (`draw_legend`).
    """
    plot = make_plot(title, curves)
    return None if plot is None else _render_macro("curve_figure", plot)


def draw_legend(names: Sequence[str]) -> str:
    """Draw the names of lines or bars beside their tones, in order."""
    return _render_macro("legend", list(zip(names, map(tone, range(len(names))), strict=True)))


def draw_bars(rows: Sequence["BarRow"], axis: "Axis | None" = None) -> str:
    """Draw fractions as bars with intervals, on a shared axis or one that starts at 0."""
    return _render_macro("bar_chart", rows, axis or share_axis(rows))


def draw_forest(rows: Sequence["ForestRow"]) -> str:
    """Draw differences of fractions with their intervals around a line at zero, in points."""
    ends = [end for row in rows for end in (row.difference.low, row.difference.high)]
    values = ticks(min(0.0, *ends), max(0.0, *ends), 6)
    return _render_macro(
        "forest_plot", rows, Axis(ticks=values, texts=write_ticks(values, Unit.FRACTION, sign=""))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The ticks of bars or differences, with their labels."""

    ticks: Sequence[float]
    texts: Sequence[str]

    def at(self, value: float) -> str:
        """Return the place of a value in percent of the width."""
        start = self.ticks[0]
        return f"{100 * (value - start) / (self.ticks[-1] - start):.2f}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: what is measured, its value, and the class of its tone."""

    name: str
    estimate: Estimate
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRow:
    """Bars to compare with each other, under one label."""

    label: str
    bars: Sequence[Bar]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """A difference of fractions; an interval that excludes zero has the tone of good or bad."""

    label: str
    difference: Estimate

    @property
    def tone(self) -> str:
        if self.difference.low > 0:
            return "good"
        return "bad" if self.difference.high < 0 else "unsure"


def tone(index: int) -> str:
    """Return the style class of the line or bar at an index."""
    return f"tone-{index % NUM_TONES}{' again' if index >= NUM_TONES else ''}"


def share_axis(rows: Sequence[BarRow]) -> Axis:
    """Choose an axis from 0 for all bars of several rows."""
    highs = [bar.estimate.high for row in rows for bar in row.bars]
    values = ticks(0.0, max([0.1, *highs]), 6)
    return Axis(ticks=values, texts=write_ticks(values, Unit.FRACTION))


def _render_macro(macro: str, *parts: object) -> str:
    template = build_environment().get_template("charts.html")
    drawn: str = getattr(template.module, macro)(*parts)
    return drawn


def average_seeds(curves: Sequence[Curve], name: str) -> Curve | None:
    """Average the same curve over several seeds; the band spans the lowest and the highest seed.

    Only steps that all seeds have count; None if there is none.
    """
    points = [dict(zip(curve.steps, curve.values, strict=True)) for curve in curves]
    common = set[float].intersection(*(set(own) for own in points)) if points else set()
    steps = sorted(step for step in common if all(np.isfinite(own[step]) for own in points))
    if not steps:
        return None
    rows = np.array([[own[step] for step in steps] for own in points])
    size, window = _reduction(len(steps))
    places = _average_bins(np.array(steps, dtype=np.float64), size)
    smooth = np.array([_running_mean(_average_bins(row, size), window) for row in rows])
    has_band = len(curves) > 1
    return Curve(
        name=curves[0].name,
        stage=name,
        steps=places.tolist(),
        values=smooth.mean(axis=0).tolist(),
        unit=curves[0].unit,
        low=smooth.min(axis=0).tolist() if has_band else (),
        high=smooth.max(axis=0).tolist() if has_band else (),
        is_smooth=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """The points of a curve. `smooth` is as long as `values`, or empty if it is not smoothed."""

    steps: Doubles
    values: Doubles
    low: Doubles
    high: Doubles
    smooth: Doubles
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

    @property
    def trend(self) -> Doubles:
        """The line to read: the running mean if there is one."""
        return self.smooth if self.window else self.values


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
    bin_size, window = (1, 1) if curve.is_smooth else _reduction(len(columns[0]))
    steps, values, low, high = (_average_bins(column, bin_size) for column in columns)
    return Series(
        steps=steps,
        values=values,
        low=low,
        high=high,
        smooth=_running_mean(values, window) if window > 1 else np.empty(0),
        span=(float(columns[0].min()), float(columns[0].max())),
        num_dropped=int((~finite).sum()),
        bin_size=bin_size,
        window=window if window > 1 else 0,
    )


def ticks(low: float, high: float, max_ticks: int) -> list[float]:
    """Choose at most `max_ticks`, and at least two, round numbers that enclose [low, high].

    Steps are 1, 2 or 5 times a power of ten. Values of one sign get no tick of the other.

    >>> ticks(0.0, 0.83, 6)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, MIN_RANGE):  # flat, or too close for ticks to differ
        low, high = (low - size / 2, high + size / 2) if size > MIN_RANGE else (0.0, 1.0)
    magnitude = floor(log10((high - low) / max_ticks))
    powers = range(magnitude, magnitude + 3)
    for step in (factor * 10.0**power for power in powers for factor in (1, 2, 5)):
        first = floor(low / step + 1e-9)
        last = ceil(high / step - 1e-9)
        if last - first + 1 <= max_ticks:
            digits = 12 - floor(log10(step))
            return [round(index * step, digits) for index in range(first, last + 1)]
    raise AssertionError(f"no ticks found between {low} and {high}")


def write_ticks(values: Sequence[float], unit: Unit, *, sign: str = f"{SPACE}%") -> list[str]:
    """Write the ticks of an axis with the fewest decimals that tell them apart exactly.

    >>> write_ticks([0.0, 2e-9], Unit.NUMBER)
    ['0', '2×10⁻⁹']
    """
    scale, sign = (100, sign) if unit is Unit.FRACTION else (1, "")
    scaled = [round(scale * value, 12) for value in values]
    largest = max(map(abs, scaled))
    if all(round(value, 5) == value for value in scaled) and largest < 1e7:
        digits = next(d for d in range(6) if all(round(value, d) == value for value in scaled))
        return [number(value, digits) + sign for value in scaled]
    power = floor(log10(scale * max(map(abs, values))))
    exponent = f"×10{str(power).translate(SUPERSCRIPTS)}"
    mantissas = [round(scale * value / 10.0**power, 6) for value in values]
    return [f"{m:g}{exponent if m else ''}{sign}".replace("-", MINUS) for m in mantissas]


def _reduction(count: int) -> tuple[int, int]:
    """Return how many points to average into one, and the running mean's window; 1 is none."""
    bin_size = max(1, ceil(count / MAX_POINTS))
    left = ceil(count / bin_size)
    return bin_size, max(3, left // 20) if left >= SMOOTH_FROM else 1


def _average_bins(column: Doubles, size: int) -> Doubles:
    if size <= 1 or len(column) == 0:
        return column
    starts = np.arange(0, len(column), size)
    return np.add.reduceat(column, starts) / np.diff(np.append(starts, len(column)))


def _running_mean(values: Doubles, window: int) -> Doubles:
    """Average each point with its neighbours, fewer near the ends."""
    if window <= 1:
        return values
    kernel = np.ones(window)
    return np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChartLine:
    """A curve, its points, and the class of its tone."""

    curve: Curve
    points: Series
    tone: str


class Plot:
    """Curves with their axes: the coordinates and the label of each point."""

    width, height = 360, 190
    right, top, bottom = 350, 10, 166

    def __init__(self, name: str, lines: Sequence[ChartLine]) -> None:
        self.name = name
        self.lines = lines
        self.unit = lines[0].curve.unit
        self.span, self.label = self._describe()
        self.caption = " ".join(_caption(lines[0]))
        series = [line.points for line in lines]
        bands = [(s.low, s.high) if s.has_band else (s.values, s.values) for s in series]
        low = min(float(low.min()) for low, _ in bands)
        self.y_ticks = ticks(low, max(float(high.max()) for _, high in bands), 6)
        self.y_texts = write_ticks(self.y_ticks, self.unit)
        self.left = ceil(14 + CHARACTER_WIDTH * max(map(len, self.y_texts)))
        self.start = min(s.span[0] for s in series)
        self.end = max(s.span[1] for s in series)
        whole = [tick for tick in ticks(self.start, self.end, 6) if tick == int(tick)]
        self.x_ticks = [t for t in whole if self.start <= t <= self.end] or [self.start]

    @property
    def is_single(self) -> bool:
        return len(self.lines) == 1

    def _describe(self) -> tuple[str, str]:
        """Write the range of a single curve, and a text version of the panel for screen readers."""
        spans = [self._describe_span(line.points) for line in self.lines]
        stages = [line.curve.stage for line in self.lines]
        if self.is_single:
            return spans[0], f"{self.name} over {stages[0]} steps: {spans[0]}"
        named = [f"{stage} {span}" for stage, span in zip(stages, spans, strict=True)]
        return "", f"{self.name} by step: {'; '.join(named)}"

    def _describe_span(self, points: Series) -> str:
        first, last = points.trend[[0, -1]].tolist()
        end = self.format_value(last)
        return f"{self.format_value(first)} → {end}" if len(points.values) > 1 else end

    def format_value(self, value: float) -> str:
        """Write a value of the curve in its unit."""
        match self.unit:
            case Unit.FRACTION:
                return percent(value, 1).replace(".0", "")
            case Unit.TOKENS:
                return number(value, 0)
            case Unit.NUMBER:
                return significant(value)

    def x(self, step: float) -> float:
        fraction = (step - self.start) / (self.end - self.start) if self.end > self.start else 0.5
        return round(self.left + fraction * (self.right - self.left), 1)

    def y(self, value: float) -> float:
        fraction = (value - self.y_ticks[0]) / (self.y_ticks[-1] - self.y_ticks[0])
        return round(self.bottom - fraction * (self.bottom - self.top), 1)

    def coordinates(self, points: Series, values: Doubles) -> list[tuple[float, float]]:
        """Return the coordinates of the points of a line."""
        pairs = zip(points.steps.tolist(), values.tolist(), strict=True)
        return [(self.x(step), self.y(value)) for step, value in pairs]

    def hover(self) -> str:
        """List each point with its tooltip, as JSON."""
        points = self.lines[0].points
        steps, values = points.steps.tolist(), points.values.tolist()
        texts = [
            f"step {number(step, 0)}: {self.format_value(value)}"
            for step, value in zip(steps, values, strict=True)
        ]
        coordinates = self.coordinates(points, points.values)
        return json.dumps([[x, y, text] for (x, y), text in zip(coordinates, texts, strict=True)])


def make_plot(name: str, curves: Sequence[Curve]) -> Plot | None:
    """Lay curves out over the same axes; None if none has a finite value."""
    lines = [
        ChartLine(curve=curve, points=points, tone=tone(index))
        for index, curve in enumerate(curves)
        if (points := make_series(curve)) is not None
    ]
    return Plot(name, lines) if lines else None


def _caption(line: ChartLine) -> list[str]:
    curve, points = line.curve, line.points
    parts = []
    if points.window:
        parts += [f"Thick: mean of {points.window} neighbouring points."]
    if points.bin_size > 1:
        parts += [f"A point is the mean of {points.bin_size} steps."]
    if points.has_band and not curve.is_smooth:
        parts += [f"Band: 95{SPACE}% interval."]
    if points.num_dropped:
        parts += [f"{points.num_dropped} values were not finite and are left out."]
    return parts
