"""Advantages against numbers worked by hand."""

from statistics import fmean, pstdev

import pytest

from whet.algos.advantages import center, leave_one_out, momentum, per_group, zscore

GOLDEN = [1.0, 0.0, 0.0, 1.0]


def test_center_subtracts_the_mean() -> None:
    assert center(GOLDEN) == [0.5, -0.5, -0.5, 0.5]
    assert center([3.0, 1.0, 2.0]) == [1.0, -1.0, 0.0]


@pytest.mark.parametrize(("ddof", "size"), [(0, 1.0), (1, 0.8660)])
def test_zscore_divides_by_the_deviation_of_its_ddof(ddof: int, size: float) -> None:
    assert zscore(GOLDEN, ddof=ddof) == pytest.approx([size, -size, -size, size], abs=1e-4)


def test_zscore_means_the_sample_deviation_unless_told() -> None:
    assert zscore(GOLDEN) == zscore(GOLDEN, ddof=1)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("group", [[0.7, 0.7, 0.7], [0.1] * 10, [0.0]])
def test_zscore_of_equal_rewards_is_exactly_zero(group: list[float], ddof: int) -> None:
    assert zscore(group, ddof=ddof) == [0.0] * len(group)


def test_zscore_does_not_change_when_rewards_are_scaled_and_moved() -> None:
    moved = [5 + 100 * reward for reward in (0.2, 0.9, 0.4)]

    assert zscore(moved) == pytest.approx(zscore([0.2, 0.9, 0.4]), abs=1e-4)


def test_leave_one_out_compares_with_the_mean_of_the_others() -> None:
    assert leave_one_out(GOLDEN) == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])


def test_leave_one_out_refuses_a_group_of_one() -> None:
    with pytest.raises(ValueError, match="at least two"):
        leave_one_out([1.0])


def test_each_looks_at_one_group_at_a_time_and_keeps_the_state() -> None:
    assert per_group(center)([[1.0, 0.0], [5.0, 7.0]], {"m": 0.5}) == (
        [[0.5, -0.5], [-1.0, 1.0]],
        {"m": 0.5},
    )


def test_momentum_is_worked_by_hand_for_three_groups() -> None:
    # Means 0.5, 0.25, 1 and deviations 0.5, 0.25, 0, with m = 0, 0.1, 0.2 (0.3 is beyond the
    # maximum). Group 2: mean .1 × .5 + .9 × .25 = .275, deviation .1 × .5 + .9 × .25 = .275. Group
    # 3: mean .2 × .275 + .8 × 1 = .855, deviation .2 × .275 + .8 × 0 = .055.
    found, state = momentum(0.2)([[1.0, 0.0], [0.5, 0.0], [1.0, 1.0]], {})

    assert found[0] == pytest.approx([0.5 / 0.5001, -0.5 / 0.5001])
    assert found[1] == pytest.approx([0.225 / 0.2751, -0.275 / 0.2751])
    assert found[2] == pytest.approx([0.145 / 0.0551, 0.145 / 0.0551])
    assert state == pytest.approx({"mean": 0.855, "spread": 0.055, "m": 0.2})


def test_momentum_goes_on_from_its_state() -> None:
    rewards = [[1.0, 0.0], [0.5, 0.0], [1.0, 1.0], [0.3, 0.9]]
    whole, end = momentum(0.9)(rewards, {})

    first, state = momentum(0.9)(rewards[:2], {})
    second, again = momentum(0.9)(rewards[2:], state)

    assert first + second == whole
    assert again == end


def test_momentum_of_zero_is_group_relative() -> None:
    rewards = [[1.0, 0.0, 0.0, 1.0], [0.2, 0.9, 0.4], [0.5, 0.5]]

    found, _ = momentum(0.0)(rewards, {})

    expected = [
        [(reward - fmean(group)) / (pstdev(group) + 1e-4) for reward in group] for group in rewards
    ]
    assert found == expected
    for mine, group in zip(found, rewards, strict=True):
        assert mine == pytest.approx(zscore(group, ddof=0), abs=1e-3)
