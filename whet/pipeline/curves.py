"""Which metrics of a run are drawn, and under what names."""

from collections.abc import Mapping, Sequence
from math import isfinite

from whet.reports.report_data import Curve, Unit
from whet.store.run import RunStore

_CURVES: Mapping[str, tuple[str, Unit]] = {
    "score/correct": ("Solved while sampling", Unit.FRACTION),
    "validation/pass@1": ("Solved on dev problems", Unit.FRACTION),
    "reward/mean": ("Reward", Unit.NUMBER),
    "loss": ("Loss", Unit.NUMBER),
    "length/mean": ("Response length", Unit.TOKENS),
    "length/unfinished": ("Responses cut at the limit", Unit.FRACTION),
    "policy/entropy": ("Entropy", Unit.NUMBER),
    "policy/kl": ("KL to the start", Unit.NUMBER),
    "policy/clip_fraction": ("Clipped tokens", Unit.FRACTION),
    "groups/equal": ("Groups of equal reward", Unit.FRACTION),
}
"""Metrics drawn in the report, with their names there; each kind adds its own."""


ROUNDING = 1e-6
"""A change below this, or below this fraction of larger values, is rounding: the loss of an update
on-policy is about 1e-9."""


def read_curves(stage: str, of_kind: Mapping[str, tuple[str, Unit]], run: RunStore) -> list[Curve]:
    """Read the metrics of a run that are drawn: of every kind of stage, and of its own kind."""
    rows = run.metrics()
    curves = []
    for key, (title, unit) in {**_CURVES, **of_kind}.items():
        points = [(row["step"], row[key]) for row in rows if key in row]
        if len(points) > 1:
            steps, values = zip(*points, strict=True)
            curves.append(Curve(name=title, stage=stage, steps=steps, values=values, unit=unit))
    return curves


def is_varied(curves: Sequence[Curve]) -> bool:
    """Whether a metric changes beyond rounding, within a curve or from one to another.

    >>> curve = Curve(name="Loss", stage="rl", steps=(1, 2, 3), values=(0.0, 2e-9, -1e-9))
    >>> is_varied([curve])
    False
    """
    values = [value for curve in curves for value in curve.values if isfinite(value)]
    if not values:
        return False
    return max(values) - min(values) > ROUNDING * max(1.0, *map(abs, values))
