"""pass@k, maj@k, and 95 % intervals over problems; `comparison` has seeds and two models.

A problem is the sampling unit: its responses are averaged before anything is resampled. avg@n is
pass@1 of n responses, and has no function of its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, prod

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

from whet.rng import make_numpy_rng
from whet.types import Doubles, Json

CONFIDENCE = 0.95
RESAMPLES = 10_000
MAX_INDICES = 1_000_000  # indices drawn at once; bounds memory, not the result
FEW_PROBLEMS = 100
"""With fewer problems the bootstrap is too narrow: at 30 problems its intervals cover the truth in
91 to 92 % of cases, and in fewer near 0 or 1. Wilson's cover it in 93 to 97 %
(bench/coverage.py)."""
MAX_VOTE_PRODUCTS = 3_000_000
"""Products for an exact maj@k of one problem; beyond it, VOTE_DRAWS subsets are drawn."""
VOTE_DRAWS = 10_000

Reals = np.float64 | NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean, its 95 % interval, and the number of problems behind it."""

    mean: float
    low: float
    high: float
    count: int

    def in_percent(self) -> str:
        """Write an estimated fraction for a line on the screen.

        >>> Estimate(mean=0.344, low=0.262, high=0.436, count=94).in_percent()
        '34.4 % [26.2, 43.6]'
        """
        return f"{100 * self.mean:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}]"

    def to_json(self) -> dict[str, Json]:
        return {"mean": self.mean, "low": self.low, "high": self.high, "count": self.count}


def fraction_estimate(fractions: Sequence[float], *, seed: int = 0) -> Estimate:
    """Estimate the mean of per-problem fractions in [0, 1], such as each problem's pass@1.

    If all problems agree, there is nothing to resample, and the interval is that of as many single
    trials: exact (Clopper and Pearson 1934) at 0 and 1, Wilson's (1927) in between.

    >>> round(fraction_estimate([0.0] * 100).high, 4)
    0.0362
    """
    values = _to_array(fractions)
    if values.min() < 0 or values.max() > 1:
        raise ValueError("fractions must lie between 0 and 1")
    if _is_constant(values):
        low, high = binomial_interval(float(values[0]), len(values))
        return Estimate(mean=float(values[0]), low=low, high=high, count=len(values))
    if len(values) >= FEW_PROBLEMS:
        return _bootstrap(values, seed)
    mean, variance = values.mean(), values.var(ddof=1) / len(values)
    t2 = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) ** 2
    low_end, high_end = wilson_interval(mean, t2 * variance)
    return Estimate(mean=float(mean), low=float(low_end), high=float(high_end), count=len(values))


def mean_estimate(values: Sequence[float], *, seed: int = 0) -> Estimate:
    """Estimate the mean of per-problem values such as lengths; equal values have no interval."""
    checked = _to_array(values)
    if _is_constant(checked):
        value = float(checked[0])
        return Estimate(mean=value, low=value, high=value, count=len(checked))
    return _bootstrap(checked, seed)


def binomial_interval(fraction: float, count: int) -> tuple[float, float]:
    """Bound a fraction of single trials: exactly at 0 and 1, with Wilson's interval in between."""
    tail = (1 - CONFIDENCE) / 2
    exact_bound = 1 - tail ** (1 / count)
    if fraction in (0.0, 1.0):
        return (0.0, exact_bound) if fraction == 0.0 else (1 - exact_bound, 1.0)
    z2 = float(ndtri(1 - tail)) ** 2
    share = np.float64(fraction)
    low, high = wilson_interval(share, z2 * share * (1 - share) / count)
    return float(low), float(high)


def wilson_interval(mean: Reals, half_squared: Reals) -> tuple[Reals, Reals]:
    """Bend symmetric intervals around fractions into Wilson's (1927).

    The width is translated into the number of single trials that would have it, as for proportions
    of a survey (Korn and Graubard 1998). The result leans towards 1/2, as the skew of a mean near 0
    or 1 requires.
    """
    weight = half_squared / (mean * (1 - mean))
    middle = (mean + weight / 2) / (1 + weight)
    half = np.sqrt(half_squared + weight**2 / 4) / (1 + weight)
    return middle - half, middle + half


def _to_array(values: Sequence[float]) -> Doubles:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise ValueError("an estimate needs at least one problem, and finite values")
    return array


def _is_constant(values: Doubles) -> bool:
    return bool(values.min() == values.max())


def _bootstrap(values: Doubles, seed: int) -> Estimate:
    """Bootstrap the mean with BCa percentiles (Efron 1987), the jackknife in closed form."""
    mean = float(values.mean())
    means = _resampled_means(values, seed)
    below = float((means < mean).mean() + 0.5 * (means == mean).mean())
    bias = float(ndtri(np.clip(below, 1 / RESAMPLES, 1 - 1 / RESAMPLES)))
    offsets = values - mean
    acceleration = float((offsets**3).sum() / (6 * (offsets**2).sum() ** 1.5))
    tails = ndtri(np.array([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])) + bias
    levels = ndtr(bias + tails / (1 - acceleration * tails))
    low, high = np.quantile(means, levels)
    return Estimate(mean=mean, low=float(low), high=float(high), count=len(values))


def _resampled_means(values: Doubles, seed: int) -> Doubles:
    rng = make_numpy_rng(seed, "bootstrap")
    count = len(values)
    rows = max(1, MAX_INDICES // count)
    means = []
    for start in range(0, RESAMPLES, rows):
        size = (min(rows, RESAMPLES - start), count)
        index = rng.integers(0, count, size=size, dtype=np.int32)
        means.append(values[index].mean(axis=1))
    return np.concatenate(means)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Estimate the chance that one of k responses is right, without bias (Chen et al. 2021, eq. 1).

    It is 1 - C(n - correct, k) / C(n, k). The ratio is a product of factors in [0, 1], so that
    nothing overflows for large n.

    >>> round(pass_at_k(5, 2, 2), 12)
    0.7
    """
    if not 0 <= correct <= n:
        raise ValueError(f"correct is {correct}; it must lie between 0 and n, which is {n}")
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}; it must lie between 1 and n, which is {n}")
    if n - correct < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(n - correct + 1, n + 1))


def majority_at_k(
    answers: Sequence[str | None], is_right: Sequence[bool], k: int, *, seed: int = 0
) -> float:
    """Estimate the chance that the most frequent of k answers is right (maj@k), without bias.

    Equal answers vote together, None does not vote, a tie is drawn by lot, and no vote is wrong.
    The mean over all subsets of k responses is exact, from products of binomial coefficients; with
    very many responses it is that of 10,000 drawn subsets.

    >>> majority_at_k(["24", "24", "7"], [True, True, False], 3)
    1.0
    >>> majority_at_k(["24", "24", "7"], [True, True, False], 1) == 2 / 3
    True
    """
    if not 1 <= k <= len(answers):
        raise ValueError(f"k is {k}; it must lie between 1 and the {len(answers)} answers")
    votes = Counter(answer for answer in answers if answer is not None)
    pairs = zip(answers, is_right, strict=True)
    right = Counter(answer for answer, good in pairs if good and answer is not None)
    chances = {answer: right[answer] / votes[answer] for answer in right}
    num_silent = len(answers) - votes.total()
    products = sum(votes[answer] for answer in right) * len(votes) * k * k
    if products > MAX_VOTE_PRODUCTS:
        return _drawn_majority(votes, num_silent, chances, k, seed)
    return sum(
        chance * _chance_to_win(votes, num_silent, answer, k) for answer, chance in chances.items()
    )


def _chance_to_win(votes: Mapping[str, int], num_silent: int, answer: str, k: int) -> float:
    """Return the fraction of subsets of k that an answer wins; a tie with m counts 1 / (m + 1)."""
    subsets = comb(sum(votes.values()) + num_silent, k)
    others = [count for other, count in votes.items() if other != answer]
    won = 0.0
    for most in range(1, min(k, votes[answer]) + 1):
        # ways[m][j]: choices of j others of which m answers have `most` votes, and none has more.
        ways = {0: {j: comb(num_silent, j) for j in range(min(num_silent, k - most) + 1)}}
        for count in others:
            wider: dict[int, dict[int, int]] = {}
            for tied, sizes in ways.items():
                for size, number in sizes.items():
                    for taken in range(min(count, most, k - most - size) + 1):
                        row = wider.setdefault(tied + (taken == most), {})
                        row[size + taken] = row.get(size + taken, 0) + number * comb(count, taken)
            ways = wider
        own = comb(votes[answer], most)
        won += sum(
            own * sizes.get(k - most, 0) / (subsets * (tied + 1)) for tied, sizes in ways.items()
        )
    return won


def _drawn_majority(
    votes: Mapping[str, int], num_silent: int, chances: Mapping[str, float], k: int, seed: int
) -> float:
    rng = make_numpy_rng(seed, "majority")
    counts = rng.multivariate_hypergeometric(
        [*votes.values(), num_silent], k, size=VOTE_DRAWS, method="marginals"
    )[:, :-1]
    is_first = (counts == counts.max(axis=1, keepdims=True)) & (counts > 0)
    right = np.array([chances.get(answer, 0.0) for answer in votes])
    return float(((is_first @ right) / np.maximum(is_first.sum(axis=1), 1)).mean())
