"""Paired comparisons and estimates over seeds: hand-worked numbers and scipy's t test."""

import numpy as np
import pytest
from scipy import stats
from scipy.stats import ttest_rel

from whet.evals.comparison import (
    compare_arms,
    compare_f1,
    compare_paired,
    estimate_over_seeds,
    spread_of_difference,
    squared_half_width,
)
from whet.evals.stats import fraction_estimate


def test_pairing_is_by_problem_id_and_counts_the_shared_ones() -> None:
    gain = compare_paired({"a": 0.1, "b": 0.5, "lost": 0.0}, {"b": 0.9, "a": 0.3, "new": 1.0})
    assert gain.difference.mean == pytest.approx(0.3)  # a: .2, b: .4
    assert gain.difference.count == 2
    # t(1) = 12.706 times the error .1414 / sqrt(2) = .1; the upper end is cut at 1.
    assert gain.difference.low == pytest.approx(0.3 - 1.2706, abs=1e-4)
    assert gain.difference.high == 1.0


def test_interval_and_p_value_are_those_of_the_paired_t_test() -> None:
    random = np.random.default_rng(3)
    before = random.binomial(8, 0.4, size=40) / 8
    after = random.binomial(8, 0.5, size=40) / 8
    test = ttest_rel(after, before)
    gain = compare_paired(_by_id(before), _by_id(after))
    assert gain.p_value == pytest.approx(test.pvalue)
    assert gain.difference.low == pytest.approx(test.confidence_interval().low)
    assert gain.difference.high == pytest.approx(test.confidence_interval().high)
    assert gain.is_clear == (gain.difference.low > 0)


def test_the_minimum_detectable_effect_is_found_in_four_of_five_cases() -> None:
    random = np.random.default_rng(0)
    size = 50
    planned = compare_paired(*[_by_id(random.uniform(0.2, 0.6, size)) for _ in range(2)])
    spread = np.sqrt(2 * 0.4**2 / 12)
    effect = 2.85 * spread / np.sqrt(size)  # t(.975) + t(.8), 49 degrees: 2.01 + .85
    assert planned.minimum_detectable == pytest.approx(effect, rel=0.2)
    before = random.uniform(0.2, 0.6, (2000, 1, size))
    after = random.uniform(0.2, 0.6, (2000, 1, size)) + effect
    found = spread_of_difference(before, after)
    assert np.mean(found.mean / np.sqrt(found.variance) > 2.01) == pytest.approx(0.8, abs=0.03)


def test_pairing_is_narrower_than_two_separate_intervals() -> None:
    before = {str(i): (i % 10) / 10 for i in range(200)}
    after = {key: min(1.0, share + 0.05 + 0.05 * (int(key) % 2)) for key, share in before.items()}
    gain = compare_paired(before, after).difference
    alone = fraction_estimate(list(before.values()))
    unpaired = compare_arms([before], [after], paired=False).difference
    assert gain.high - gain.low < (alone.high - alone.low) / 4
    assert gain.high - gain.low < (unpaired.high - unpaired.low) / 4


def test_equal_changes_on_few_problems_do_not_pass_for_certainty() -> None:
    gain = compare_paired({"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0})
    assert gain.difference.mean == 0.0
    assert gain.difference.low < -0.5 < 0.5 < gain.difference.high
    assert gain.p_value == 1.0
    assert gain.minimum_detectable > 0.5


def test_a_single_problem_tells_nothing() -> None:
    gain = compare_paired({"a": 0.0}, {"a": 1.0})
    assert gain.p_value == 1.0
    assert not gain.is_clear


def test_ten_problems_that_are_all_gained_have_the_p_value_of_the_sign_test() -> None:
    ids = [str(i) for i in range(10)]
    gain = compare_paired(dict.fromkeys(ids, 0.0), dict.fromkeys(ids, 1.0))
    assert gain.p_value == pytest.approx(2 / 1024)
    assert gain.is_clear


def test_ten_equal_gains_of_a_quarter_have_the_p_value_of_the_score_test() -> None:
    ids = [str(i) for i in range(10)]
    gain = compare_paired(dict.fromkeys(ids, 0.25), dict.fromkeys(ids, 0.5))
    assert gain.p_value == pytest.approx(0.4292, abs=1e-4)  # z = .25 times the root of 10 = .7906
    assert not gain.is_clear


@pytest.mark.parametrize("count", [1, 5, 6, 15, 16, 61, 62, 400])
@pytest.mark.parametrize("change", [0.125, 0.25, 0.5, 1.0])
def test_equal_gains_are_clear_exactly_where_their_p_value_says_so(
    count: int, change: float
) -> None:
    ids = [str(i) for i in range(count)]
    gain = compare_paired(dict.fromkeys(ids, 0.0), dict.fromkeys(ids, change))
    assert gain.is_clear == (gain.difference.low > 0) == (gain.p_value < 0.05)


def test_evaluations_without_a_common_problem_are_refused() -> None:
    with pytest.raises(ValueError, match="no problem in common"):
        compare_paired({"a": 0.0}, {"b": 1.0})
    with pytest.raises(ValueError, match="at least one seed"):
        compare_arms([], [{"a": 1.0}], paired=False)
    with pytest.raises(ValueError, match="finite"):
        compare_paired({"a": float("nan")}, {"a": 1.0})


@pytest.mark.parametrize("size", [1, 40, 400])
def test_one_seed_has_the_interval_of_its_own_evaluation(size: int) -> None:
    rates = _by_id(np.random.default_rng(1).binomial(8, 0.3, size=size) / 8)
    assert estimate_over_seeds([rates]) == fraction_estimate([rates[key] for key in sorted(rates)])


def test_seeds_and_problems_add_their_own_t_intervals() -> None:
    # Seeds' means .2 and .4: variance .02, of their mean .01. Problems' means .1 and .5:
    # variance .08, of their mean .04. No residual. t(1) = 12.7062 for both.
    rates_SP = np.array([[0.0, 0.4], [0.2, 0.6]])
    assert squared_half_width(rates_SP) == pytest.approx(12.7062**2 * (0.01 + 0.04), rel=1e-5)


def test_the_residual_of_seeds_and_problems_counts_once() -> None:
    # Seeds' means .2 and .4: variance .02, of their mean .01. Problems' means .3 and .3: 0.
    # All offsets from them are .1: the residual of one rate is 4 * .01 / 1 = .04, of the mean of
    # four .01, so that nothing is left for the seeds.
    rates_SP = np.array([[0.3, 0.1], [0.3, 0.5]])
    assert squared_half_width(rates_SP) == pytest.approx(0.0, abs=1e-12)
    # Offsets of .05: the residual of the mean is .0025. Problems' means .35 and .25: variance
    # .005, of their mean .0025.
    rates_SP = np.array([[0.3, 0.1], [0.4, 0.4]])
    expected = 12.7062**2 * (0.01 - 0.0025 + 0.0025)
    assert squared_half_width(rates_SP) == pytest.approx(expected, rel=1e-5)


def test_seeds_that_differ_widen_the_interval() -> None:
    problems = np.random.default_rng(2).uniform(0.2, 0.6, 200)
    same = [_by_id(problems)] * 3
    shifted = [_by_id(problems + shift) for shift in (-0.1, 0.0, 0.1)]
    alike, apart = estimate_over_seeds(same), estimate_over_seeds(shifted)
    assert apart.mean == pytest.approx(alike.mean)
    assert apart.high - apart.low > 5 * (alike.high - alike.low)


def test_a_gain_that_one_seed_shows_and_three_deny_is_not_clear() -> None:
    random = np.random.default_rng(4)
    base = random.uniform(0.2, 0.6, 300)
    noise = lambda: random.normal(0, 0.02, 300)  # noqa: E731
    before = [_by_id(base + shift + noise()) for shift in (-0.05, 0.0, 0.05)]
    after = [_by_id(base + shift + noise()) for shift in (-0.04, 0.02, 0.06)]
    assert compare_paired(before[1], after[1]).is_clear
    together = compare_arms(before, after)
    assert not together.is_clear
    assert together.num_seeds == (3, 3)
    assert together.minimum_detectable > together.difference.mean


def test_the_interval_of_two_arms_of_seeds_is_worked_by_hand() -> None:
    # Before: one seed, 0 everywhere. After: seeds .2 and .6 on both problems and no residual.
    # Problems differ by nothing, seeds' means have a variance of .08, their mean .04 = own. The
    # weight of its two halves is sqrt(.75 * .04^2 + .25 * .04^2) = .04, with one degree of freedom.
    spread = spread_of_difference(np.zeros((1, 2)), np.array([[0.2, 0.2], [0.6, 0.6]]))
    assert spread.variance == pytest.approx(0.04)
    assert spread.df == pytest.approx(1.0)
    # With offsets of .1 the residual of the mean is .01: own is .04 - .01 = .03, the weight
    # sqrt(.75 * .03^2 + .25 * .04^2) = .03279. The problems' differences .3 and .5 have a variance
    # of .02, their mean .01. df = (.03 + .01)^2 / (.03279^2 + .01^2) = 1.361.
    after_SP = np.array([[0.2, 0.2], [0.4, 0.8]])
    spread = spread_of_difference(np.zeros((1, 2)), after_SP)
    assert spread.variance == pytest.approx(0.04)
    assert spread.df == pytest.approx(0.04**2 / (0.001075 + 0.0001))


def test_models_are_compared_by_f1_where_that_is_the_score() -> None:
    # Two problems in three have an error. Always "an error" is right on these and F1 is 0; half
    # right on either is an F1 of .5, though fewer answers are right.
    halves = {str(i): ("gsm8k", "error" if i % 3 else "correct") for i in range(300)}
    always = {id: float(half == "error") for id, (_, half) in halves.items()}
    even = {id: float(int(id) % 2) for id in halves}

    gain = compare_f1(always, even, halves)

    assert gain is not None and gain.is_clear
    assert gain.difference.mean == pytest.approx(0.5)
    assert gain.difference.count == 300
    assert compare_paired(always, even).difference.mean < 0


def test_the_interval_of_an_f1_difference_is_by_the_delta_method() -> None:
    # Before, .5 and .5: F1 .5, slopes 2 (.5 / 1)^2 = .5 each. After, 1 and .5: F1 2/3, slopes
    # 2 (.5 / 1.5)^2 = 2/9 and 2 (1 / 1.5)^2 = 8/9.
    halves = {"a": ("s", "x"), "b": ("s", "x"), "c": ("s", "y"), "d": ("s", "y")}
    before = {"a": 0.0, "b": 1.0, "c": 0.0, "d": 1.0}
    after = {"a": 1.0, "b": 1.0, "c": 0.0, "d": 1.0}
    gain = compare_f1(before, after, halves)
    assert gain is not None
    assert gain.difference.mean == pytest.approx(2 / 3 - 1 / 2)
    # Of x: 2/9 - 0 and 2/9 - 1/2: variance 1/8 of one, 1/16 of the mean. Of y: 0 and 8/9 - 1/2:
    # variance (7/18)^2 / 2, a half of it of the mean.
    x, y = 1 / 16, (7 / 18) ** 2 / 4
    df = (x + y) ** 2 / (x**2 + y**2)
    half = stats.t(df).ppf(0.975) * np.sqrt(x + y)
    assert gain.difference.low == pytest.approx(max(-1.0, 1 / 6 - half))
    assert gain.p_value == pytest.approx(2 * stats.t(df).sf((1 / 6) / np.sqrt(x + y)))


def test_equal_models_differ_in_f1_no_more_often_than_they_should() -> None:
    random = np.random.default_rng(7)
    halves = {str(i): (f"s{i % 2}", "error" if i % 4 < 2 else "correct") for i in range(200)}
    skill = {id: random.uniform(0.2, 0.9) for id in halves}

    def draw() -> dict[str, float]:
        return {id: float(random.random() < chance) for id, chance in skill.items()}

    gains = [compare_f1(draw(), draw(), halves) for _ in range(1000)]

    assert np.mean([gain is not None and gain.is_clear for gain in gains]) < 0.07


def test_a_subset_with_one_problem_of_a_half_has_no_difference_in_f1() -> None:
    halves = {"a": ("s", "x"), "b": ("s", "x"), "c": ("s", "y")}
    rates = {"a": 0.0, "b": 1.0, "c": 0.0}
    assert compare_f1(rates, rates, halves) is None


def _by_id(rates: np.ndarray) -> dict[str, float]:
    return {str(index): float(rate) for index, rate in enumerate(rates)}
