"""Choosing a token: the right distribution, the right log-probability, the right random numbers."""

import math

import pytest
import torch
from scipy.stats import chi2, kstest
from torch import Tensor

from whet.engine.base import SamplingParams
from whet.engine.input_batch import (
    SamplingTensors,
    inverse_cdf,
    sample_tokens,
    truncate_probs,
    uniforms,
)

PROBS = (0.10, 0.40, 0.05, 0.30, 0.15)
DRAWS = 20_000


def _tensors(settings: list[SamplingParams]) -> SamplingTensors:
    return SamplingTensors(
        temperature_B=torch.tensor([s.temperature for s in settings]),
        top_k_B=torch.tensor([s.top_k for s in settings]),
        top_p_B=torch.tensor([s.top_p for s in settings]),
        min_p_B=torch.tensor([s.min_p for s in settings]),
    )


def _draw(sampling: SamplingParams, draws: int = DRAWS) -> tuple[Tensor, Tensor]:
    logits_BV = torch.tensor(PROBS).log().expand(draws, -1)
    uniform_B = uniforms(torch.arange(draws) * 7919, torch.zeros(draws, dtype=torch.int64))
    return sample_tokens(
        logits_BV, uniform_B, _tensors([sampling] * draws), is_truncated=sampling.is_truncated
    )


# Each row of weights is worked by hand from PROBS and needs only to be divided by its sum.
CASES = [
    (SamplingParams(), (0.10, 0.40, 0.05, 0.30, 0.15)),
    (SamplingParams(temperature=0.5), (0.0100, 0.1600, 0.0025, 0.0900, 0.0225)),
    (SamplingParams(temperature=2.0), (0.31623, 0.63246, 0.22361, 0.54772, 0.38730)),
    (SamplingParams(top_k=2), (0, 4, 0, 3, 0)),
    (SamplingParams(top_p=0.6), (0, 4, 0, 3, 0)),
    (SamplingParams(top_p=0.75), (0, 8, 0, 6, 3)),
    (SamplingParams(top_p=0.01), (0, 1, 0, 0, 0)),
    (SamplingParams(min_p=0.3), (0, 8, 0, 6, 3)),
    (SamplingParams(top_k=4, top_p=0.8, min_p=0.5), (0, 4, 0, 3, 0)),
    # At temperature 0.5 the two likeliest hold .25 of .285, 88 %: less than 90 %, so a third stays.
    (SamplingParams(temperature=0.5, top_p=0.9), (0, 0.1600, 0, 0.0900, 0.0225)),
]


@pytest.mark.parametrize(("sampling", "weights"), CASES)
def test_tokens_come_as_often_as_their_probability_says(
    sampling: SamplingParams, weights: tuple[float, ...]
) -> None:
    tokens, _ = _draw(sampling)

    counts = torch.bincount(tokens, minlength=5).double()
    expected = torch.tensor(weights, dtype=torch.float64) / sum(weights) * DRAWS
    kept = expected > 0
    assert counts[~kept].sum() == 0
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    assert statistic < chi2.ppf(0.999, max(1, int(kept.sum()) - 1))


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(top_k=1),
        SamplingParams(top_p=0.5),
        SamplingParams(min_p=0.9),
    ],
)
def test_logprob_is_that_before_any_cut(sampling: SamplingParams) -> None:
    tokens, logprobs = _draw(sampling, 50)

    torch.testing.assert_close(logprobs, torch.tensor(PROBS).log()[tokens])


def test_logprob_is_at_the_temperature() -> None:
    tokens, logprobs = _draw(SamplingParams(temperature=0.5, top_k=3), 50)

    squares = torch.tensor([0.0100, 0.1600, 0.0025, 0.0900, 0.0225]) / 0.285
    torch.testing.assert_close(logprobs, squares.log()[tokens])


def test_greedy_takes_the_most_likely_token_and_counts_as_temperature_one() -> None:
    tokens, logprobs = _draw(SamplingParams(temperature=0.0), 50)

    assert set(tokens.tolist()) == {1}
    torch.testing.assert_close(logprobs, torch.full((50,), math.log(0.4)))


def test_rows_with_other_settings_do_not_touch_each_other() -> None:
    settings = [
        SamplingParams(temperature=0.0),
        SamplingParams(top_k=2),
        SamplingParams(temperature=3.0),
        SamplingParams(min_p=0.6),
    ]
    logits_BV = torch.randn(4, 30, generator=torch.Generator().manual_seed(1)) * 3
    uniform_B = torch.tensor([0.9, 0.99, 0.7, 0.95], dtype=torch.float64)

    together = sample_tokens(logits_BV, uniform_B, _tensors(settings), is_truncated=True)

    for row, setting in enumerate(settings):
        alone = sample_tokens(
            logits_BV[row : row + 1],
            uniform_B[row : row + 1],
            _tensors([setting]),
            is_truncated=True,
        )
        assert together[0][row] == alone[0][0]
        torch.testing.assert_close(together[1][row], alone[1][0])


def test_without_cuts_the_sort_changes_nothing() -> None:
    logits_BV = torch.randn(200, 30, generator=torch.Generator().manual_seed(1))
    uniform_B = uniforms(torch.arange(200), torch.zeros(200, dtype=torch.int64))
    cuts = _tensors([SamplingParams()] * 200)

    assert torch.equal(
        sample_tokens(logits_BV, uniform_B, cuts, is_truncated=False)[0],
        sample_tokens(logits_BV, uniform_B, cuts, is_truncated=True)[0],
    )


def test_equal_probabilities_are_cut_by_rank_so_that_exactly_k_stay() -> None:
    kept = truncate_probs(torch.full((1, 6), 1 / 6), _tensors([SamplingParams(top_k=2)]))

    torch.testing.assert_close(kept, torch.tensor([[1 / 6, 1 / 6, 0, 0, 0, 0]]))


def test_every_uniform_falls_in_its_tokens_share() -> None:
    probs = torch.tensor([[0.25, 0.5, 0.25]]).expand(6, -1)
    uniform = torch.tensor([0.0, 0.2499, 0.25, 0.7499, 0.75, 0.9999], dtype=torch.float64)

    assert inverse_cdf(probs, uniform).tolist() == [0, 0, 1, 1, 2, 2]


def test_a_token_of_zero_probability_is_never_drawn() -> None:
    probs = torch.tensor([[0.0, 0.0, 0.3, 0.0, 0.7, 0.0, 0.0]]).expand(4, -1)
    extremes = torch.tensor([0.0, 2.0**-53, 1 - 2.0**-53, 1.0], dtype=torch.float64)

    assert inverse_cdf(probs, extremes).tolist() == [2, 2, 4, 4]


def test_the_draw_scales_to_what_the_cuts_left() -> None:
    probs = torch.tensor([[0.0, 0.1, 0.1]]).expand(2, -1)

    assert inverse_cdf(probs, torch.tensor([0.49, 0.51], dtype=torch.float64)).tolist() == [1, 2]


# The reference outputs of SplitMix64 for the seeds 0 and 1234567, as published with the algorithm.
SPLITMIX = {
    0: (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F),
    1234567: (6457827717110365317, 3203168211198807973, 9817491932198370423),
}


@pytest.mark.parametrize("seed", SPLITMIX)
def test_uniforms_are_the_published_numbers(seed: int) -> None:
    found = uniforms(torch.full((3,), seed), torch.arange(3))

    assert found.tolist() == [(number >> 11) / 2**53 for number in SPLITMIX[seed]]


def test_uniforms_take_every_seed_of_63_bits_and_stay_below_one() -> None:
    seeds = torch.tensor([0, 1, 2**63 - 1, 2**62, -1])

    found = uniforms(seeds, torch.zeros(5, dtype=torch.int64))

    assert len(set(found.tolist())) == 5
    assert ((found >= 0) & (found < 1)).all()


@pytest.mark.parametrize("across", ["seeds", "positions"])
def test_uniforms_are_even_and_neighbours_are_unrelated(across: str) -> None:
    n, zeros = torch.arange(50_000), torch.zeros(50_000, dtype=torch.int64)

    found = uniforms(n, zeros) if across == "seeds" else uniforms(zeros + 5, n)

    assert kstest(found.numpy(), "uniform").pvalue > 0.001
    pairs = torch.stack([found[:-1], found[1:]])
    assert abs(float(torch.corrcoef(pairs)[0, 1])) < 0.02
