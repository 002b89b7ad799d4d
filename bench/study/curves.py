"""Curves with bands as SVG: panels one above the other, each with lines of its own over the same
axis."""

from collections.abc import Sequence
from dataclasses import dataclass

from svg import Markup, tag

from whet.reports.charts import ticks

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 190, 34, 44
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve: places along the axis, values, and where they are known their intervals. Thin ones
    have no name."""

    name: str
    colour: str
    at: Sequence[float]
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    is_thin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    axis: str
    lines: Sequence[Line]
    is_share: bool = True
    """Whether values are written as percentages."""


def draw(panels: Sequence[Panel]) -> str:
    height = HEIGHT * len(panels)
    shapes = [tag("rect", width=WIDTH, height=height, fill="white")]
    for number, panel in enumerate(panels):
        shapes += [tag("g", *_panel(panel), transform=f"translate(0 {number * HEIGHT})")]
    view = f"0 0 {WIDTH} {height}"
    return tag(
        "svg", *shapes, xmlns="http://www.w3.org/2000/svg", viewBox=view, width=WIDTH, height=height
    )


def _panel(panel: Panel) -> list[Markup]:
    across = [at for line in panel.lines for at in line.at]
    up = [value for line in panel.lines for value in (*line.values, *line.low, *line.high)]
    x_ticks, y_ticks = ticks(min(across), max(across), 8), ticks(min(up), max(up), 6)

    def place(at: float, value: float) -> tuple[float, float]:
        right = (at - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
        above = (value - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        x, y = (
            LEFT + right * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - above * (HEIGHT - TOP - BOTTOM),
        )
        return round(x, 1), round(y, 1)

    shapes = [_text(LEFT, 20, panel.title)]
    for tick in y_ticks:
        _, y = place(x_ticks[0], tick)
        shapes += [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, stroke="#ddd")]
        shapes += [
            _text(
                LEFT - 8,
                y + 4,
                f"{100 * tick:g} %" if panel.is_share else f"{tick:g}",
                anchor="end",
            )
        ]
    shapes += [
        _text(place(tick, y_ticks[0])[0], HEIGHT - BOTTOM + 18, f"{tick:g}", anchor="middle")
        for tick in x_ticks
    ]
    shapes += [_text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, panel.axis, anchor="middle")]
    named = [line for line in panel.lines if not line.is_thin]
    for line in panel.lines:
        if line.low:
            edge = [
                *zip(line.at, line.low, strict=True),
                *reversed([*zip(line.at, line.high, strict=True)]),
            ]
            shapes += [
                tag(
                    "polygon",
                    points=_joined([place(*point) for point in edge]),
                    fill=line.colour,
                    opacity=0.18,
                )
            ]
        points = [place(*point) for point in zip(line.at, line.values, strict=True)]
        width, opacity = (1, 0.45) if line.is_thin else (2.5, 1)
        shapes += [
            tag(
                "polyline",
                points=_joined(points),
                fill="none",
                stroke=line.colour,
                stroke_width=width,
                opacity=opacity,
            )
        ]
    for number, line in enumerate(named):
        shapes += [_text(WIDTH - RIGHT + 10, TOP + 14 + 18 * number, line.name, fill=line.colour)]
    return shapes


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _text(x: float, y: float, words: str, *, anchor: str = "start", fill: str = "#222") -> Markup:
    return tag(
        "text",
        words,
        x=x,
        y=y,
        text_anchor=anchor,
        fill=fill,
        font_size=12,
        font_family="sans-serif",
    )
