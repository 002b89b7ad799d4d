"""Compare models over problems and seeds, with both sources of chance in the interval.

An arm is one way of training. Each of its seeds maps problem ids to rates, such as each problem's
pass@1. Problems and seeds are crossed: every seed answers every problem.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose

import numpy as np
from pydantic import TypeAdapter
from scipy.special import ndtr, stdtr, stdtrit

from whet.evals.stats import (
    CONFIDENCE,
    Estimate,
    Reals,
    binomial_interval,
    fraction_estimate,
    wilson_interval,
)
from whet.types import Doubles, Json

POWER = 0.8
Rates = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """How much better the second of two arms is than the first, and what the data can tell."""

    difference: Estimate
    """After minus before; its count is that of the shared problems."""
    p_value: float
    """Two-sided: the chance of a difference at least this large between equals."""
    minimum_detectable: float
    """The true difference that data of this size and spread detect in 80 % of cases; 1, the largest
    that there can be, if they detect none."""
    num_seeds: tuple[int, int] = (1, 1)
    """Seeds before and after; if both are 1, the interval covers only the choice of problems."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero; if not, the data cannot tell."""
        return self.difference.low > 0 or self.difference.high < 0

    @property
    def finds_any(self) -> bool:
        """Whether there is a difference, however large, that so few data would find."""
        return self.minimum_detectable < 1

    def to_json(self) -> dict[str, Json]:
        row: dict[str, Json] = TypeAdapter(PairedComparison).dump_python(self, mode="json")
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A mean, its variance, and the degrees of freedom of the variance; or arrays of them."""

    mean: Reals
    variance: Reals
    df: Reals


def compare_paired(before: Rates, after: Rates) -> PairedComparison:
    """Compare two evaluations over the problems that both have, by the paired t test.

    Pairing removes the difficulty of problems from the interval.
    """
    return compare_arms([before], [after])


def compare_arms(
    before: Sequence[Rates], after: Sequence[Rates], *, paired: bool = True
) -> PairedComparison:
    """Compare two arms, each of one or several seeds, over the problems that all of them have.

    Seeds of the same number are not paired. With `paired=False`, problems are not paired either,
    and each arm keeps its own.
    """
    if paired:
        common = _common([*before, *after])
        rates = _matrix(before, common), _matrix(after, common)
        spread, count = spread_of_difference(*rates), len(common)
    else:
        rates = _matrix(before, _common(before)), _matrix(after, _common(after))
        spread = _subtract(spread_over_seeds(rates[1]), spread_over_seeds(rates[0]))
        count = min(rates[0].shape[1], rates[1].shape[1])
    return _to_comparison(spread, count, num_seeds=(len(before), len(after)))


def compare_f1(
    before: Rates, after: Rates, halves: Mapping[str, tuple[str, str]]
) -> PairedComparison | None:
    """Compare the mean F1 of two evaluations over the problems that both have; None if no subset
    has two problems of each half.

    `halves` has each problem's subset and its half of it. F1 is the harmonic mean of a subset's two
    halves. The variance is by the delta method: a problem adds the difference of what it adds to
    either F1.
    """
    subsets: dict[str, dict[str, list[str]]] = {}
    for id in sorted(before.keys() & after.keys() & halves.keys()):
        subset, half = halves[id]
        subsets.setdefault(subset, {}).setdefault(half, []).append(id)
    paired = [
        list(ids.values())
        for ids in subsets.values()
        if len(ids) == 2 and min(map(len, ids.values())) > 1
    ]
    if not paired:
        return None
    mean = 0.0
    parts: list[tuple[Reals, float]] = []
    for pair in paired:
        old = [_matrix([before], ids)[0] for ids in pair]
        new = [_matrix([after], ids)[0] for ids in pair]
        old_f1, old_slopes = _f1_and_slopes(*(rates.mean() for rates in old))
        new_f1, new_slopes = _f1_and_slopes(*(rates.mean() for rates in new))
        mean += (new_f1 - old_f1) / len(paired)
        for side in (0, 1):
            added = (new_slopes[side] * new[side] - old_slopes[side] * old[side]) / len(paired)
            parts.append((added.var(ddof=1) / len(added), len(added) - 1))
    variance = np.asarray(sum(part for part, _ in parts), dtype=np.float64)
    spread = Spread(mean=np.float64(mean), variance=variance, df=_satterthwaite(variance, parts))
    return _to_comparison(spread, sum(len(ids) for pair in paired for ids in pair))


def _f1_and_slopes(a: float, b: float) -> tuple[float, tuple[float, float]]:
    """Compute F1 of two halves and its derivatives; at 0 and 0, where it has none, both are 1."""
    if a + b == 0:
        return 0.0, (1.0, 1.0)
    return 2 * a * b / (a + b), (2 * (b / (a + b)) ** 2, 2 * (a / (a + b)) ** 2)


def _to_comparison(
    spread: Spread, count: int, num_seeds: tuple[int, int] = (1, 1)
) -> PairedComparison:
    difference, p_value = _difference(spread, count)
    half = (difference.high - difference.low) / 2
    df = max(float(spread.df), 1.0)
    t = stdtrit(df, (1 + CONFIDENCE) / 2)
    return PairedComparison(
        difference=difference,
        p_value=p_value,
        minimum_detectable=min(1.0, float(half * (t + stdtrit(df, POWER)) / t)),
        num_seeds=num_seeds,
    )


def estimate_over_seeds(rates: Sequence[Rates]) -> Estimate:
    """Estimate the score of an arm for such problems and seeds in general, not just for these.

    `count` is the number of problems. With a single seed, the interval does not include its chance,
    and is that of the seed's own evaluation.
    """
    common = _common(rates)
    rates_SP = _matrix(rates, common)
    if len(rates) == 1:
        return fraction_estimate(rates_SP[0])
    mean = rates_SP.mean()
    half_squared = squared_half_width(rates_SP)
    if half_squared <= 0:
        low, high = binomial_interval(float(mean), len(common))
    else:
        low, high = (float(end) for end in wilson_interval(mean, half_squared))
    return Estimate(mean=float(mean), low=low, high=high, count=len(common))


def squared_half_width(rates_SP: Doubles) -> Doubles:
    """Find the squared half width of a 95 % interval of the mean of rates [..., seeds, problems].

    Crossed random effects: the variances of the seeds' means and of the problems' means, each
    times the square of its own Student's t (Graybill and Wang 1980). The residual, which holds
    the chance of sampling, is in both and counts once. One Satterthwaite t for the sum covers the
    truth in only 92 % of cases if three seeds differ as much as the problems (bench/coverage.py).
    """
    S, P = rates_SP.shape[-2:]
    seeds, problems, residual = _variances(rates_SP)
    parts = ((np.maximum(seeds - residual, 0.0), S - 1), (problems, P - 1))
    quantile = (1 + CONFIDENCE) / 2
    return sum((stdtrit(df, quantile) ** 2 * part for part, df in parts if df), 0.0 * problems)


def spread_over_seeds(rates_SP: Doubles) -> Spread:
    """Find the variance of the mean of rates [..., seeds, problems], with Satterthwaite's df."""
    S, P = rates_SP.shape[-2:]
    seeds, problems, residual = _variances(rates_SP)
    own = np.maximum(seeds - residual, 0.0)
    variance = own + problems
    df = _satterthwaite(variance, [(problems, P - 1), (np.sqrt(own * seeds), S - 1)])
    return Spread(mean=rates_SP.mean(axis=(-2, -1)), variance=variance, df=df)


def spread_of_difference(before_SP: Doubles, after_SP: Doubles) -> Spread:
    """Find the variance of the difference of two arms on the same problems.

    The spread of the problems' own differences has everything but what a seed does to all
    problems alike. That is added for each arm: the variance of its seeds' means, less the residual
    in it, and not below zero. Cutting at zero makes the result a little too large if seeds do not
    matter, and the degrees of freedom after the subtraction are too many if they do; a quarter of
    those before it keeps false positives below 6 % (bench/coverage.py).
    """
    problems = after_SP.mean(axis=-2) - before_SP.mean(axis=-2)
    P = problems.shape[-1]
    variance = problems.var(axis=-1, ddof=1) / P if P > 1 else np.zeros(problems.shape[:-1])
    parts: list[tuple[Reals, float]] = [(variance, P - 1)]
    for arm_SP in (before_SP, after_SP):
        S = arm_SP.shape[-2]
        if S > 1:
            seeds, _, residual = _variances(arm_SP)
            own = np.maximum(seeds - residual, 0.0)
            variance = variance + own
            parts.append((np.sqrt(0.75 * own**2 + 0.25 * seeds**2), S - 1))
    return Spread(
        mean=problems.mean(axis=-1), variance=variance, df=_satterthwaite(variance, parts)
    )


def _variances(rates_SP: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Split the variance of the mean by seeds, problems, and the residual that is in both."""
    S, P = rates_SP.shape[-2:]
    by_seed = rates_SP.mean(axis=-1, keepdims=True)
    by_problem = rates_SP.mean(axis=-2, keepdims=True)
    offsets = rates_SP - by_seed - by_problem + rates_SP.mean(axis=(-2, -1), keepdims=True)
    none = np.zeros(rates_SP.shape[:-2])
    seeds = by_seed[..., 0].var(axis=-1, ddof=1) / S if S > 1 else none
    problems = by_problem[..., 0, :].var(axis=-1, ddof=1) / P if P > 1 else none
    if S == 1 or P == 1:
        return seeds, problems, none
    return seeds, problems, (offsets**2).sum(axis=(-2, -1)) / ((S - 1) * (P - 1)) / (S * P)


def _satterthwaite(variance: Reals, parts: Sequence[tuple[Reals, float]]) -> Reals:
    divisor = sum(part**2 / df for part, df in parts if df > 0) + np.zeros_like(variance)
    largest = float(sum(df for _, df in parts))
    df = np.full_like(variance, max(largest, 1.0))
    np.divide(variance**2, divisor, out=df, where=divisor > 0)
    return np.clip(df, 1.0, max(largest, 1.0))


def _subtract(after: Spread, before: Spread) -> Spread:
    variance = after.variance + before.variance
    parts = [(after.variance, float(after.df)), (before.variance, float(before.df))]
    return Spread(
        mean=after.mean - before.mean, variance=variance, df=_satterthwaite(variance, parts)
    )


def _difference(spread: Spread, count: int) -> tuple[Estimate, float]:
    mean, error = float(spread.mean), float(np.sqrt(spread.variance))
    if error > 1e-12:
        half = float(stdtrit(spread.df, (1 + CONFIDENCE) / 2)) * error
        p_value = float(2 * stdtr(spread.df, -abs(mean) / error))
        low, high = max(-1.0, mean - half), min(1.0, mean + half)
    elif isclose(mean, 0.0, abs_tol=1e-12):
        # No problem changed: the exact bound of no success in `count` trials.
        high = binomial_interval(0.0, count)[1]
        low, p_value = -high, 1.0
    else:
        # Mapped to [0, 1] and back, so that a few equal changes do not pass for certainty. The
        # p-value is that of the interval's own test: the sign test where every problem went from
        # 0 to 1 or back, otherwise the score test, which Wilson's interval inverts.
        share = (mean + 1) / 2
        low, high = (2 * end - 1 for end in binomial_interval(share, count))
        is_whole = share in (0.0, 1.0)
        p_value = 2.0 ** (1 - count) if is_whole else float(2 * ndtr(-abs(mean) * count**0.5))
    return Estimate(mean=mean, low=low, high=high, count=count), p_value


def _common(rates: Sequence[Rates]) -> list[str]:
    if not rates:
        raise ValueError("a comparison needs at least one seed on either side")
    common = sorted(set(rates[0]).intersection(*rates[1:]))
    if not common:
        raise ValueError("the evaluations have no problem in common")
    return common


def _matrix(rates: Sequence[Rates], ids: Sequence[str]) -> Doubles:
    matrix = np.array([[seed[key] for key in ids] for seed in rates], dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise ValueError("rates must be finite")
    return matrix
