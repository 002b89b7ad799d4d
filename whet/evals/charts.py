"""Charts as inline SVG: bars with intervals and curves over steps. Colours come from the style
sheet, by class.

Drawn here and not by plotly: plotly.js alone makes every report 4.8 MB, needs script to show
anything, and has to redraw for dark mode and print. These charts take about 20 kB each at most and
follow the style sheet.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whet.evals.markup import Markup, join, tag
from whet.evals.report_data import Curve, Unit
from whet.evals.series import Series, series, ticks
from whet.evals.stats import Estimate
from whet.evals.wording import SPACE, number, percent, percent_interval, significant

WIDTH, HEIGHT = 360, 190
LEFT = 46
RIGHT = 10
TOP = 10
BOTTOM = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: whose it is, and which tone of the style sheet it wears (before, middle, after)."""

    name: str
    tone: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRow:
    """Bars to compare with each other, under one label."""

    label: str
    note: str
    bars: tuple[Bar, ...]


def bar_scale(rows: Sequence[BarRow]) -> list[float]:
    """Choose ticks from 0 that all intervals lie under."""
    return ticks(0.0, max(0.1, *(bar.estimate.high for row in rows for bar in row.bars)), 6)


def bar_chart(rows: Sequence[BarRow], scale: Sequence[float]) -> Markup:
    """Draw shares as horizontal bars with 95 % whiskers, over a scale that charts side by side
    share."""
    return tag("div", *(_bar_row(row, scale) for row in rows), _bar_axis(scale), class_="bars")


def line_chart(curve: Curve) -> Markup | None:
    """Draw a curve as a captioned figure; None where it has no finite value."""
    points = series(curve)
    if points is None:
        return None
    write = _writer(curve.unit)
    first, last = (points.smooth if points.window else points.values)[[0, -1]]
    span = (
        write(float(last))
        if len(points.values) == 1
        else f"{write(float(first))} → {write(float(last))}"
    )
    heading = tag(
        "div", tag("h4", curve.name), tag("span", span, class_="span"), class_="curve-head"
    )
    plot = _plot(points, curve.unit, f"{curve.name} over {curve.stage} steps: {span}")
    caption = tag("figcaption", " ".join(_caption(curve, points)))
    return tag("figure", heading, plot, caption, class_="curve")


def _bar_row(row: BarRow, scale: Sequence[float]) -> Markup:
    label = tag(
        "div",
        tag("span", row.label, class_="row-label"),
        " ",
        tag("span", row.note, class_="row-note"),
    )
    return tag("div", label, *(_bar(bar, scale) for bar in row.bars), class_="bar-row")


def _bar(bar: Bar, scale: Sequence[float]) -> Markup:
    mean, low, high = (
        _part(value, scale) for value in (bar.estimate.mean, bar.estimate.low, bar.estimate.high)
    )
    shapes = [
        tag("line", x1=x, x2=x, y1=0, y2=20, class_="grid")
        for x in (_part(tick, scale) for tick in scale)
    ]
    shapes += [tag("rect", x=0, y=3, width=mean, height=14, class_=f"fill {bar.tone}")]
    for kind in ("halo", "whisker"):
        shapes += [tag("line", x1=low, x2=high, y1=10, y2=10, class_=kind)]
        shapes += [tag("line", x1=x, x2=x, y1=6, y2=14, class_=kind) for x in (low, high)]
    ends = f"{percent(bar.estimate.low, 1)} to {percent(bar.estimate.high, 1)}"
    tip = f"{bar.name}: {percent(bar.estimate.mean, 1)}, 95{SPACE}% interval {ends}, {bar.estimate.count:,} problems"
    return tag(
        "div",
        tag("span", bar.name, class_="bar-name"),
        tag("svg", *shapes, width="100%", height=20, aria_hidden="true"),
        tag("span", percent_interval(bar.estimate, 1), class_="bar-value"),
        class_="bar",
        data_tip=tip,
    )


def _bar_axis(scale: Sequence[float]) -> Markup:
    texts = [
        tag("text", percent(tick), x=_part(tick, scale), y=12, text_anchor="middle")
        for tick in scale
    ]
    return tag(
        "div",
        tag("svg", *texts, width="100%", height=16, aria_hidden="true"),
        class_="bar bar-axis",
    )


def _part(value: float, scale: Sequence[float]) -> str:
    return f"{100 * value / scale[-1]:.2f}%"


def _plot(points: Series, unit: Unit, label: str) -> Markup:
    write = _writer(unit)
    floor_, ceiling = (
        (points.low, points.high) if points.has_band else (points.values, points.values)
    )
    y_ticks = ticks(float(floor_.min()), float(ceiling.max()), 5)
    x_low, x_high = points.span
    x_ticks = [tick for tick in ticks(x_low, x_high, 6) if x_low <= tick <= x_high] or [x_low]

    def x(step: float) -> float:
        share = (step - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        share = (value - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    body = join(
        *(
            _y_tick(y(tick), text)
            for tick, text in zip(y_ticks, _tick_texts(y_ticks, unit), strict=True)
        ),
        *(
            tag("text", number(tick, 0), x=x(tick), y=HEIGHT - 6, text_anchor="middle")
            for tick in x_ticks
        ),
        _lines(points, x, y),
        tag("line", x1=0, x2=0, y1=TOP, y2=HEIGHT - BOTTOM, class_="cursor"),
        tag("circle", cx=0, cy=0, r=3.5, class_="cursor"),
    )
    hover = [
        [x(step), y(value), f"step {number(step, 0)}: {write(value)}"]
        for step, value in zip(points.steps.tolist(), points.values.tolist(), strict=True)
    ]
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag(
        "svg",
        body,
        viewBox=box,
        role="img",
        tabindex=0,
        aria_label=label,
        data_points=json.dumps(hover),
    )


def _y_tick(y: float, text: str) -> Markup:
    grid = tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
    return join(grid, tag("text", text, x=LEFT - 6, y=y + 4, text_anchor="end"))


def _tick_texts(values: Sequence[float], unit: Unit) -> list[str]:
    """Write all ticks of an axis with as few decimals as tell them apart exactly."""
    scale, sign = (100, f"{SPACE}%") if unit is Unit.SHARE else (1, "")
    scaled = [round(scale * value, 12) for value in values]
    exact = [
        digits for digits in range(6) if all(round(value, digits) == value for value in scaled)
    ]
    if not exact:
        return [significant(value) + sign for value in scaled]
    return [number(value, exact[0]) + sign for value in scaled]


def _lines(points: Series, x: Callable[[float], float], y: Callable[[float], float]) -> Markup:
    def path(values: Sequence[float], steps: Sequence[float]) -> str:
        return " ".join(f"{x(step)},{y(value)}" for step, value in zip(steps, values, strict=True))

    steps = points.steps.tolist()
    values = points.values.tolist()
    band = (
        path(points.low.tolist() + points.high.tolist()[::-1], steps + steps[::-1])
        if points.has_band
        else ""
    )
    smooth = path(points.smooth.tolist(), steps) if points.window else ""
    dots = (
        [(x(step), y(value)) for step, value in zip(steps, values, strict=True)]
        if len(values) <= 24
        else []
    )
    return join(
        tag("path", d=f"M{band}Z", class_="band") if band else "",
        tag("polyline", points=path(values, steps), class_="faint" if smooth else "trace"),
        tag("polyline", points=smooth, class_="trace") if smooth else "",
        *(tag("circle", cx=cx, cy=cy, r=2.5, class_="dot") for cx, cy in dots),
    )


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


def _writer(unit: Unit) -> Callable[[float], str]:
    match unit:
        case Unit.SHARE:
            return lambda value: percent(value, 1).replace(".0", "")
        case Unit.TOKENS:
            return lambda value: number(value, 0)
        case Unit.NUMBER:
            return significant
