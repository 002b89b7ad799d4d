"""What a study measures: shares of right answers by problem, their means and gains with 95 %
intervals, as text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from whet.evals.comparison import compare_paired
from whet.evals.stats import Estimate, fraction_estimate
from whet.evals.summary import pass_rates
from whet.recipes.evaluate import SAMPLED
from whet.store.run import RunStore

Shares = Mapping[str, float]


def stage_folder(pipeline: Path, stage: str) -> Path:
    return next(pipeline.glob(f"[0-9][0-9]-{stage}"))


def measured(pipeline: Path, stage: str) -> dict[str, float]:
    """Each problem's share of right answers in an evaluation."""
    return pass_rates(
        [tuple(RunStore.view(stage_folder(pipeline, stage)).rollouts("eval", SAMPLED))]
    )


def mean_shares(runs: Sequence[Shares]) -> dict[str, float]:
    """Average runs problem by problem.

    >>> mean_shares([{"a": 0.0, "b": 1.0}, {"a": 0.5, "b": 1.0}])
    {'a': 0.25, 'b': 1.0}
    """
    return {key: fmean(run[key] for run in runs) for key in runs[0]}


def merged(shares: Shares, unit_of: Mapping[str, str]) -> dict[str, float]:
    """Average over the problems of each unit, where problems of a unit are too alike to count one
    by one.

    >>> merged({"a": 0.0, "b": 1.0, "c": 0.25}, {"a": "x", "b": "x", "c": "y"})
    {'x': 0.5, 'y': 0.25}
    """
    units: dict[str, list[float]] = {}
    for key, share in shares.items():
        units.setdefault(unit_of[key], []).append(share)
    return {unit: fmean(values) for unit, values in units.items()}


def pass_at_1(shares: Shares) -> Estimate:
    return fraction_estimate(list(shares.values()))


def gain(before: Shares, after: Shares) -> Estimate:
    return compare_paired(before, after).difference


def percent(estimate: Estimate) -> str:
    """Write a share.

    >>> percent(Estimate(mean=0.152, low=0.138, high=0.167, count=679))
    '15.2 % [13.8, 16.7]'
    """
    return f"{100 * estimate.mean:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def points(estimate: Estimate) -> str:
    """Write a gain in points of a hundred.

    >>> points(Estimate(mean=0.071, low=-0.001, high=0.143, count=679))
    '+7.1 [-0.1, +14.3]'
    """
    return f"{100 * estimate.mean:+.1f} [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
