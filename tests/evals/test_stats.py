"""Intervals over problems: hand-worked ends, coverage by simulation, and speed."""

from time import perf_counter

import numpy as np
import pytest
from scipy.stats import bootstrap

from whet.evals.stats import Estimate, fraction_estimate, mean_estimate


def test_the_interval_of_a_large_sample_is_the_normal_one() -> None:
    estimate = fraction_estimate([0.0, 1.0] * 200)
    assert estimate.mean == 0.5
    assert estimate.count == 400
    assert estimate.low == pytest.approx(
        0.5 - 1.96 * 0.025, abs=0.004
    )  # sqrt(.5 * .5 / 400) = .025
    assert estimate.high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.004)


def test_a_skewed_sample_has_the_longer_side_where_its_tail_is() -> None:
    lengths = [10.0] * 36 + [200.0] * 4
    estimate = mean_estimate(lengths)
    other = bootstrap(
        (lengths,), np.mean, n_resamples=10_000, method="BCa", rng=np.random.default_rng(1)
    )
    assert estimate.low == pytest.approx(other.confidence_interval.low, abs=2.0)
    assert estimate.high == pytest.approx(other.confidence_interval.high, abs=2.0)


def test_ninety_five_in_a_hundred_intervals_hold_the_truth() -> None:
    random = np.random.default_rng(7)
    trials, covered = 400, 0
    for trial in range(trials):
        chances = random.beta(0.6, 1.8, size=60)  # the mean over all problems is .6 / 2.4 = .25
        estimate = fraction_estimate(random.binomial(8, chances) / 8, seed=trial)
        covered += estimate.low <= 0.25 <= estimate.high
    assert 0.92 <= covered / trials <= 0.975


def test_no_success_in_a_hundred_problems_leaves_the_exact_upper_end() -> None:
    estimate = fraction_estimate([0.0] * 100)
    assert (estimate.mean, estimate.low) == (0.0, 0.0)
    assert estimate.high == pytest.approx(0.03622, abs=1e-5)  # 1 - .025 ** (1 / 100)


def test_only_successes_mirror_no_successes() -> None:
    estimate = fraction_estimate([1.0] * 100)
    assert (estimate.mean, estimate.high) == (1.0, 1.0)
    assert estimate.low == pytest.approx(1 - 0.03622, abs=1e-5)


def test_equal_shares_between_the_ends_get_wilsons_interval() -> None:
    estimate = fraction_estimate([0.5] * 10)
    assert estimate.low == pytest.approx(0.2366, abs=1e-4)  # Wilson for 5 of 10
    assert estimate.high == pytest.approx(0.7634, abs=1e-4)


def test_equal_lengths_have_an_empty_interval() -> None:
    assert mean_estimate([40.0] * 3) == Estimate(mean=40.0, low=40.0, high=40.0, count=3)


def test_lengths_may_leave_the_unit_interval() -> None:
    estimate = mean_estimate([100.0, 200.0, 300.0] * 30)
    assert estimate.mean == 200.0
    assert 170 < estimate.low < 200 < estimate.high < 230


def test_the_same_seed_gives_the_same_interval() -> None:
    lengths = [float(index**2) for index in range(50)]
    assert mean_estimate(lengths, seed=3) == mean_estimate(lengths, seed=3)
    assert mean_estimate(lengths, seed=3) != mean_estimate(lengths, seed=4)


@pytest.mark.parametrize("shares", [[], [float("nan")], [[0.5]]])
def test_nothing_finite_to_average_is_refused(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        fraction_estimate(shares)


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        fraction_estimate([0.5, 1.5])


def test_ten_thousand_resamples_of_four_hundred_problems_take_under_a_third_of_a_second() -> None:
    shares = np.random.default_rng(0).binomial(8, 0.3, size=400) / 8
    seconds = []
    for _ in range(3):
        start = perf_counter()
        fraction_estimate(shares)
        seconds.append(perf_counter() - start)
    assert min(seconds) < 0.3
