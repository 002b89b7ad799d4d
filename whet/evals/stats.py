"""pass@k, and 95 % intervals over problems.

A problem is the sampling unit: its answers are averaged before anything is resampled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from scipy.special import ndtr, ndtri

from whet.errors import DataError
from whet.rng import numpy_stream
from whet.types import Json

CONFIDENCE = 0.95
RESAMPLES = 10_000
MAX_INDICES = 1_000_000  # indices drawn at once; bounds memory, not the result

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean, its 95 % interval, and the number of problems it rests on."""

    mean: float
    low: float
    high: float
    count: int

    def to_json(self) -> dict[str, Json]:
        return {"mean": self.mean, "low": self.low, "high": self.high, "count": self.count}

    @staticmethod
    def from_json(row: Json) -> "Estimate":
        try:
            return TypeAdapter(Estimate).validate_python(row)
        except ValidationError as error:
            numbers = "the numbers mean, low, high and count"
            raise DataError(f"an estimate must be an object with {numbers}, not {row!r}") from error


def fraction_estimate(fractions: Sequence[float], *, seed: int = 0) -> Estimate:
    """Estimate the mean of per-problem fractions in [0, 1], such as each problem's pass@1.

    Where all problems agree there is nothing to resample, and the interval is that of as many
    single trials: exact (Clopper and Pearson 1934) at 0 and 1, Wilson's (1927) between.

    >>> round(fraction_estimate([0.0] * 100).high, 4)
    0.0362
    """
    values = _to_array(fractions)
    if values.min() < 0 or values.max() > 1:
        raise ValueError("fractions must lie between 0 and 1")
    if _is_constant(values):
        low, high = _binomial_interval(float(values[0]), len(values))
        return Estimate(mean=float(values[0]), low=low, high=high, count=len(values))
    return _bootstrap(values, seed)


def mean_estimate(values: Sequence[float], *, seed: int = 0) -> Estimate:
    """Estimate the mean of per-problem values such as lengths; equal ones give no interval."""
    checked = _to_array(values)
    if _is_constant(checked):
        value = float(checked[0])
        return Estimate(mean=value, low=value, high=value, count=len(checked))
    return _bootstrap(checked, seed)


def paired_difference(
    before: Mapping[str, float], after: Mapping[str, float], *, seed: int = 0
) -> Estimate:
    """Estimate how much the fractions rose over the problems that both evaluations have.

    Pairing takes the difficulty of each problem out of the interval. `count` is the number of
    pairs.
    """
    common = sorted(before.keys() & after.keys())
    if not common:
        raise ValueError("the two evaluations have no problem in common")
    changes = _to_array([after[key] - before[key] for key in common])
    if _is_constant(changes):
        # Mapped to [0, 1] and back, so that a few equal changes do not pass for certainty.
        low, high = _binomial_interval((float(changes[0]) + 1) / 2, len(changes))
        return Estimate(
            mean=float(changes[0]), low=2 * low - 1, high=2 * high - 1, count=len(changes)
        )
    return _bootstrap(changes, seed)


def _to_array(values: Sequence[float]) -> Values:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise ValueError("an estimate needs at least one problem, and finite values")
    return array


def _is_constant(values: Values) -> bool:
    return bool(values.min() == values.max())


def _bootstrap(values: Values, seed: int) -> Estimate:
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


def _resampled_means(values: Values, seed: int) -> Values:
    random = numpy_stream(seed, "bootstrap")
    count = len(values)
    rows = max(1, MAX_INDICES // count)
    means = []
    for start in range(0, RESAMPLES, rows):
        size = (min(rows, RESAMPLES - start), count)
        index = random.integers(0, count, size=size, dtype=np.int32)
        means.append(values[index].mean(axis=1))
    return np.concatenate(means)


def _binomial_interval(fraction: float, count: int) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    exact_bound = 1 - tail ** (1 / count)
    if fraction in (0.0, 1.0):
        return (0.0, exact_bound) if fraction == 0.0 else (1 - exact_bound, 1.0)
    z2 = float(ndtri(1 - tail)) ** 2
    middle = (fraction + z2 / (2 * count)) / (1 + z2 / count)
    half = sqrt(z2 * fraction * (1 - fraction) / count + z2**2 / (4 * count**2)) / (1 + z2 / count)
    return middle - half, middle + half


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Estimate the chance that one of k answers is right, without bias (Chen et al. 2021, eq. 1).

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
