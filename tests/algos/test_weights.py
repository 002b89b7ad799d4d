"""Token weights against numbers worked by hand."""

import pytest

from whet.algos.losses import constant, sequence_mean, sequence_sum, token_mean

LENGTHS = [1, 3]


def test_token_mean_gives_every_token_the_same() -> None:
    assert token_mean(LENGTHS) == [0.25, 0.25]


def test_sequence_mean_gives_every_sequence_the_same() -> None:
    assert sequence_mean(LENGTHS) == pytest.approx([1 / 2, 1 / 6])


def test_sequence_sum_averages_over_sequences_only() -> None:
    assert sequence_sum(LENGTHS) == [0.5, 0.5]


def test_constant_divides_by_its_length_whatever_the_sequences_have() -> None:
    assert constant(10)(LENGTHS) == constant(10)([9, 900]) == [0.05, 0.05]


@pytest.mark.parametrize("weights", [token_mean, sequence_mean])
def test_means_share_out_exactly_one(weights: object) -> None:
    assert callable(weights)
    lengths = [7, 1, 30, 12]

    assert sum(n * w for n, w in zip(lengths, weights(lengths), strict=True)) == pytest.approx(1.0)
