"""Curves made ready to draw: finite points, few enough for a screen, a running mean, round axis
ticks. No HTML here."""

from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np
from numpy.typing import NDArray

from whet.evals.report_data import Curve

MAX_POINTS = 300
SMOOTH_FROM = 40
"""Curves with fewer points are drawn as they are."""
SMALLEST = 1e-200

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """The points of one curve. `smooth` is as long as `values`, or empty where nothing was
    smoothed."""

    steps: Values
    values: Values
    low: Values
    high: Values
    smooth: Values
    span: tuple[float, float]
    """First and last step, before neighbours were averaged."""
    num_dropped: int
    """Values that were not finite."""
    bin_size: int
    """Neighbouring steps averaged into one point."""
    window: int
    """Points in the running mean."""

    @property
    def has_band(self) -> bool:
        return len(self.low) > 0


def series(curve: Curve) -> Series | None:
    """Prepare a curve; None where no value is finite."""
    steps, values = (np.asarray(column, dtype=np.float64) for column in (curve.steps, curve.values))
    assert len(steps) == len(values), (
        f"curve {curve.name} has {len(steps)} steps and {len(values)} values"
    )
    assert len(curve.low) == len(curve.high) in (0, len(values)), (
        f"curve {curve.name} has half a band"
    )
    finite = np.isfinite(steps) & np.isfinite(values)
    if not finite.any():
        return None
    bin_size = ceil(int(finite.sum()) / MAX_POINTS)
    low, high = (np.asarray(column, dtype=np.float64) for column in (curve.low, curve.high))
    columns = [column[finite] if len(column) else column for column in (steps, values, low, high)]
    steps, values, low, high = (_binned(column, bin_size) for column in columns)
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
    """Choose round numbers that enclose [low, high], at most `most` of them, and at least two.

    >>> ticks(0.0, 0.83, 5)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, SMALLEST):  # flat, or too close for ticks to differ
        half = size / 2 if size > SMALLEST else 0.5
        low = low - half
        high = high + half
    magnitude = floor(log10((high - low) / most))
    for step in (
        factor * 10.0**power
        for power in range(magnitude, magnitude + 3)
        for factor in (1, 2, 2.5, 5)
    ):
        first = floor(low / step + 1e-9)
        last = ceil(high / step - 1e-9)
        if last - first + 1 <= most:
            return [
                round(index * step, 12 - floor(log10(step))) for index in range(first, last + 1)
            ]
    raise AssertionError(f"no ticks found between {low} and {high}")


def _binned(column: Values, size: int) -> Values:
    if size <= 1 or len(column) == 0:
        return column
    starts = np.arange(0, len(column), size)
    return np.add.reduceat(column, starts) / np.diff(np.append(starts, len(column)))


def _running_mean(values: Values, window: int) -> Values:
    """Average each point with its neighbours; near the ends over those there are."""
    kernel = np.ones(window)
    return np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same")
