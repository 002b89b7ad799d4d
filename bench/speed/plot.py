"""A chart of rates over lengths as SVG: what was measured, and dashed beside it what the limit
formula allows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from svg import Markup, tag

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 110, 34, 48
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measured point: sequences at once, tokens each holds at the end, and both rates in tokens
    a second."""

    batch: int
    length: int
    measured: float
    limit: float


def chart(cells: Sequence[Cell], title: str) -> str:
    """Draw one pair of lines a batch size, both axes logarithmic."""
    lengths = sorted({cell.length for cell in cells})
    rates = [rate for cell in cells for rate in (cell.measured, cell.limit)]
    low, high = 10 ** math.floor(math.log10(min(rates))), 10 ** math.ceil(math.log10(max(rates)))
    span = math.log(lengths[-1] / lengths[0]) or 1.0

    def place(length: float, rate: float) -> tuple[float, float]:
        across = math.log(length / lengths[0]) / span if len(lengths) > 1 else 0.5
        up = math.log(rate / low) / math.log(high / low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (
            HEIGHT - TOP - BOTTOM
        )

    shapes = [tag("rect", width=WIDTH, height=HEIGHT, fill="white"), _text(LEFT, 20, title)]
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        _, y = place(lengths[0], 10.0**power)
        shapes += [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, stroke="#ddd")]
        shapes += [_text(LEFT - 8, y + 4, f"{10**power:,}", anchor="end")]
    for length in lengths:
        x, _ = place(length, low)
        shapes += [_text(x, HEIGHT - BOTTOM + 18, f"{length:,}", anchor="middle")]
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    shapes += [
        _text(
            middle,
            HEIGHT - 10,
            "tokens of each sequence (tokens/s upwards; dashed: limit)",
            anchor="middle",
        )
    ]
    for number, (colour, batch) in enumerate(
        zip(COLOURS, sorted({cell.batch for cell in cells}), strict=False)
    ):
        row = sorted((cell for cell in cells if cell.batch == batch), key=lambda cell: cell.length)
        shapes += _lines(
            colour, [(place(c.length, c.measured), place(c.length, c.limit)) for c in row]
        )
        shapes += [
            _text(WIDTH - RIGHT + 8, TOP + 4 + 16 * number, f"{batch:,} at once", fill=colour)
        ]
    view = f"0 0 {WIDTH} {HEIGHT}"
    return tag(
        "svg", *shapes, xmlns="http://www.w3.org/2000/svg", viewBox=view, width=WIDTH, height=HEIGHT
    )


def _lines(
    colour: str, points: list[tuple[tuple[float, float], tuple[float, float]]]
) -> list[Markup]:
    measured, limit = [point for point, _ in points], [point for _, point in points]
    path: dict[str, str | int] = {"fill": "none", "stroke": colour, "stroke_width": 2}
    shapes = [tag("polyline", points=_joined(measured), **path)]
    shapes += [tag("polyline", points=_joined(limit), stroke_dasharray="5 4", **path)]
    return shapes + [tag("circle", cx=x, cy=y, r=4, fill=colour) for x, y in measured]


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


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
