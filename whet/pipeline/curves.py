"""Which metrics of a run are drawn, and under what names."""

from collections.abc import Mapping

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
