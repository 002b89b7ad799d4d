"""Credit for single tokens against numbers worked by hand."""

import numpy as np
import pytest

from whet.algos.advantages import gae, gae_advantage, rewards_to_go, to_go_advantage, whiten


def test_rewards_to_go_discount_what_comes_later() -> None:
    # 4; 2 + .5 × 4 = 4; 1 + .5 × 4 = 3.
    assert rewards_to_go(np.array([1.0, 2.0, 4.0]), gamma=0.5).tolist() == [3.0, 4.0, 4.0]


def test_gae_with_a_discount_is_worked_by_hand() -> None:
    # Surprises with γ = .5: 1 + .5 × 2 - 1 = 1 and 3 - 2 = 1; with λ = .5 the first is 1 + .25 × 1.
    advantage, target = gae(np.array([1.0, 3.0]), np.array([1.0, 2.0]), gamma=0.5, decay=0.5)

    assert advantage.tolist() == [1.25, 1.0]
    assert target.tolist() == [2.25, 3.0]


def test_gae_without_decay_is_rewards_to_go_less_the_values() -> None:
    rewards, values = np.array([0.5, -1.0, 2.0, 0.0]), np.array([0.3, 0.1, -0.4, 0.9])

    advantage, target = gae(rewards, values)

    np.testing.assert_allclose(advantage, rewards_to_go(rewards) - values)
    np.testing.assert_allclose(target, rewards_to_go(rewards))


def test_gae_with_decay_zero_looks_one_token_ahead() -> None:
    advantage, _ = gae(np.array([0.0, 1.0]), np.array([0.25, 0.75]), decay=0.0)

    assert advantage.tolist() == [0.5, 0.25]


def test_only_gae_needs_and_gives_values() -> None:
    rewards = np.array([0.0, 1.0])

    assert to_go_advantage(gamma=1.0)(rewards, None)[1] is None
    with pytest.raises(AssertionError, match="critic"):
        gae_advantage(gamma=1.0, gae_lambda=1.0)(rewards, None)


def test_whitening_counts_tokens_not_sequences() -> None:
    # Values 3, 3, 3 and -1: mean 2, squares of the rest 1, 1, 1 and 9, so the deviation is √3.
    found = whiten([np.full(3, 3.0), np.full(1, -1.0)], [True, True])

    assert found[0].tolist() == pytest.approx([1 / 3**0.5] * 3, abs=1e-5)
    assert found[1].tolist() == pytest.approx([-3 / 3**0.5], abs=1e-5)


def test_whitening_leaves_what_is_not_live_at_zero_and_out_of_the_mean() -> None:
    alive = [np.array([1.0, 2.0]), np.array([0.0])]

    found = whiten([alive[0], np.zeros(50), alive[1]], [True, False, True])

    assert found[1].tolist() == [0.0] * 50
    for mine, alone in zip([found[0], found[2]], whiten(alive, [True, True]), strict=True):
        np.testing.assert_array_equal(mine, alone)


@pytest.mark.parametrize("has_signal", [[True, True], [False, False]])
def test_whitening_of_nothing_that_differs_is_zero(has_signal: list[bool]) -> None:
    assert [part.tolist() for part in whiten([np.full(2, 0.7), np.full(1, 0.7)], has_signal)] == [
        [0.0, 0.0],
        [0.0],
    ]


def test_whitening_of_no_sequence_is_none() -> None:
    assert whiten([], []) == []
