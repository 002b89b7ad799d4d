"""Curves over steps as inline SVG. Bars are in the template, and colours in `static/` too.

They are drawn here and not by plotly: plotly.js alone makes every report 4.8 MB, needs script to
show anything, and has to redraw for dark mode and print. These take about 20 kB each at most.
"""

import html
import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, log10

import numpy as np
from numpy.typing import NDArray

from whet.evals.report_data import Curve, Unit
from whet.evals.wording import SPACE, number, percent, significant

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 24
MAX_POINTS = 300
SMOOTH_FROM = 40
"""Curves with fewer points are drawn as they are."""
SMALLEST = 1e-200
VOID = frozenset({"line", "path", "rect", "circle", "polyline"})

Values = NDArray[np.float64]


class Markup(str):
    """Text that is already HTML; any other text is escaped."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def tag(tag_name: str, *children: str, **attributes: str | float) -> Markup:
    """Write an element; attributes and children that are no Markup are escaped.

    A trailing underscore leaves an attribute's name, and others become hyphens.

    >>> tag("p", "1 < 2", class_="note", data_tip="a")
    '<p class="note" data-tip="a">1 &lt; 2</p>'
    """
    opening = tag_name
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        opening += f' {name}="{html.escape(readable(str(value)))}"'
    if tag_name in VOID:
        return Markup(f"<{opening}/>")
    inside = [c if isinstance(c, Markup) else html.escape(readable(c)) for c in children]
    return Markup(f"<{opening}>{''.join(inside)}</{tag_name}>")


def readable(text: str) -> str:
    """Escape what would hide or reorder text: control and format characters, half surrogates.

    >>> readable("a\\x00b\\u202ec")
    'a\\\\x00b\\\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(_escape_hidden(character) for character in text)


def _escape_hidden(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    return character.encode("unicode_escape").decode("ascii")


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


def series(curve: Curve) -> Series | None:
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


def ticks(low: float, high: float, most: int) -> list[float]:
    """Choose two to `most` round numbers that enclose [low, high].

    >>> ticks(0.0, 0.83, 5)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, SMALLEST):  # flat, or too close for ticks to differ
        half = size / 2 if size > SMALLEST else 0.5
        low -= half
        high += half
    magnitude = floor(log10((high - low) / most))
    powers = range(magnitude, magnitude + 3)
    for step in (factor * 10.0**power for power in powers for factor in (1, 2, 2.5, 5)):
        first = floor(low / step + 1e-9)
        last = ceil(high / step - 1e-9)
        if last - first + 1 <= most:
            digits = 12 - floor(log10(step))
            return [round(index * step, digits) for index in range(first, last + 1)]
    raise AssertionError(f"no ticks found between {low} and {high}")


def _average_bins(column: Values, size: int) -> Values:
    if size <= 1 or len(column) == 0:
        return column
    starts = np.arange(0, len(column), size)
    return np.add.reduceat(column, starts) / np.diff(np.append(starts, len(column)))


def _running_mean(values: Values, window: int) -> Values:
    """Average each point with its neighbours; near the ends over those there are."""
    kernel = np.ones(window)
    return np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same")


def line_chart(curve: Curve) -> Markup | None:
    """Draw a curve as a figure with a caption; None if it has no finite value."""
    points = series(curve)
    if points is None:
        return None
    write = _writer(curve.unit)
    first, last = (points.smooth if points.window else points.values)[[0, -1]]
    span = write(float(last))
    if len(points.values) > 1:
        span = f"{write(float(first))} → {span}"
    title = tag("h4", curve.name)
    heading = tag("div", title, tag("span", span, class_="span"), class_="curve-head")
    plot = _plot(points, curve.unit, f"{curve.name} over {curve.stage} steps: {span}")
    caption = tag("figcaption", " ".join(_caption(curve, points)))
    return tag("figure", heading, plot, caption, class_="curve")


def _plot(points: Series, unit: Unit, title: str) -> Markup:
    write = _writer(unit)
    bottom, top = (points.low, points.high) if points.has_band else (points.values, points.values)
    y_ticks = ticks(float(bottom.min()), float(top.max()), 5)
    x_low, x_high = points.span
    x_ticks = [tick for tick in ticks(x_low, x_high, 6) if x_low <= tick <= x_high] or [x_low]

    def x(step: float) -> float:
        share = (step - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        share = (value - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    line = partial(tag, "line")
    label = partial(tag, "text")
    shapes = []
    for tick, text in zip(y_ticks, _tick_texts(y_ticks, unit), strict=True):
        height = y(tick)
        shapes.append(line(x1=LEFT, x2=WIDTH - RIGHT, y1=height, y2=height, class_="grid"))
        shapes.append(label(text, x=LEFT - 6, y=height + 4, text_anchor="end"))
    for tick in x_ticks:
        shapes.append(label(number(tick, 0), x=x(tick), y=HEIGHT - 6, text_anchor="middle"))
    shapes += _curve(points, x, y)
    shapes.append(line(x1=0, x2=0, y1=TOP, y2=HEIGHT - BOTTOM, class_="cursor"))
    shapes.append(tag("circle", cx=0, cy=0, r=3.5, class_="cursor"))
    hover = [
        [x(step), y(value), f"step {number(step, 0)}: {write(value)}"]
        for step, value in zip(points.steps.tolist(), points.values.tolist(), strict=True)
    ]
    return tag(
        "svg",
        *shapes,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        tabindex=0,
        aria_label=title,
        data_points=json.dumps(hover),
    )


def _tick_texts(values: Sequence[float], unit: Unit) -> list[str]:
    """Write all ticks of an axis with as few decimals as tell them apart exactly."""
    scale, sign = (100, f"{SPACE}%") if unit is Unit.SHARE else (1, "")
    scaled = [round(scale * value, 12) for value in values]
    for digits in range(6):
        if all(round(value, digits) == value for value in scaled):
            return [number(value, digits) + sign for value in scaled]
    return [significant(value) + sign for value in scaled]


def _curve(
    points: Series, x: Callable[[float], float], y: Callable[[float], float]
) -> list[Markup]:
    def path(values: Sequence[float], steps: Sequence[float]) -> str:
        return " ".join(f"{x(step)},{y(value)}" for step, value in zip(steps, values, strict=True))

    shapes = []
    steps = points.steps.tolist()
    values = points.values.tolist()
    if points.has_band:
        band = path(points.low.tolist() + points.high.tolist()[::-1], steps + steps[::-1])
        shapes.append(tag("path", d=f"M{band}Z", class_="band"))
    kind = "faint" if points.window else "trace"
    shapes.append(tag("polyline", points=path(values, steps), class_=kind))
    if points.window:
        shapes.append(tag("polyline", points=path(points.smooth.tolist(), steps), class_="trace"))
    if len(values) <= 24:
        dots = zip(steps, values, strict=True)
        shapes += [tag("circle", cx=x(s), cy=y(v), r=2.5, class_="dot") for s, v in dots]
    return shapes


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
