"""Log-probabilities, entropies and sampling: twins against the formula, kernels against twins and
each other."""

import pytest
import torch
from interpreted import draw, grads_of, interpreted, leaves
from torch import Tensor

from whet.kernels.lm_head import (
    head_logits,
    row_logprobs,
    sample_rows,
    token_logprobs,
    torch_logit_stats,
    torch_logits_grad,
    torch_sample_rows,
)

TARGETS, HIDDEN = 11, 6


def _inputs(
    vocabulary: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    hidden_MH = draw(TARGETS, HIDDEN, seed=1, dtype=dtype)
    weight_VH = draw(vocabulary, HIDDEN, seed=2, dtype=dtype)
    label_M = torch.randint(0, vocabulary, (TARGETS,), generator=torch.Generator().manual_seed(3))
    temperature_M = torch.tensor([1.0, 0.7, 1.3] * 4, dtype=dtype)[:TARGETS]
    return hidden_MH, weight_VH, label_M, temperature_M


def _by_formula(
    hidden_MH: Tensor, weight_VH: Tensor, label_M: Tensor, temperature_M: Tensor
) -> tuple[Tensor, Tensor]:
    probs_MV = torch.softmax(hidden_MH @ weight_VH.T / temperature_M[:, None], -1)
    return probs_MV[torch.arange(len(label_M)), label_M].log(), -(probs_MV * probs_MV.log()).sum(-1)


def _uniforms(rows: int) -> Tensor:
    return torch.rand(rows, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def test_three_logits_by_hand() -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0]]).log_softmax(-1) + 5.0

    logprob, entropy, lse = torch_logit_stats(
        logits, torch.tensor([1]), torch.tensor([1.0]), has_entropy=True
    )

    # e^2 = 7.389056: shares 0.786986, 0.106507, 0.106507.
    torch.testing.assert_close(logprob, torch.tensor([-2.239545]))
    torch.testing.assert_close(entropy, torch.tensor([0.665573]))
    torch.testing.assert_close(lse, torch.tensor([5.0]))


@pytest.mark.parametrize("chunk_elements", [1, 45, 10**6])
def test_values_and_gradients_are_those_of_the_formula_for_any_chunk(chunk_elements: int) -> None:
    hidden_MH, weight_VH, label_M, temperature_M = _inputs(20, torch.float64)
    inputs = leaves(hidden_MH, weight_VH)

    found = token_logprobs(
        *inputs, label_M, temperature_M, entropy=True, chunk_elements=chunk_elements
    )

    exact = _by_formula(*inputs, label_M, temperature_M)
    torch.testing.assert_close(found, exact)
    torch.testing.assert_close(grads_of(found, inputs), grads_of(exact, inputs))


def test_entropy_that_is_not_wanted_is_zero_and_changes_no_gradient() -> None:
    hidden_MH, weight_VH, label_M, temperature_M = _inputs(20)
    inputs = leaves(hidden_MH, weight_VH)

    logprob_M, entropy_M = token_logprobs(*inputs, label_M, temperature_M, entropy=False)

    exact_M, _ = _by_formula(*inputs, label_M, temperature_M)
    assert (entropy_M == 0).all()
    torch.testing.assert_close(grads_of((logprob_M,), inputs), grads_of((exact_M,), inputs))


def test_frozen_head_gets_no_gradient_and_hidden_states_theirs() -> None:
    hidden_MH, weight_VH, label_M, temperature_M = _inputs(20)
    (hidden_MH,) = leaves(hidden_MH)

    logprob_M, _ = token_logprobs(hidden_MH, weight_VH, label_M, temperature_M, entropy=False)
    logprob_M.sum().backward()

    exact_M, _ = _by_formula(hidden_MH, weight_VH, label_M, temperature_M)
    assert hidden_MH.grad is not None
    torch.testing.assert_close(
        [hidden_MH.grad], list(torch.autograd.grad(exact_M.sum(), [hidden_MH]))
    )


def test_no_targets_give_no_numbers_and_zero_gradients() -> None:
    hidden_MH, weight_VH, label_M, temperature_M = _inputs(20)
    inputs = leaves(hidden_MH[:0], weight_VH)

    logprob_M, entropy_M = token_logprobs(*inputs, label_M[:0], temperature_M[:0], entropy=True)

    assert len(logprob_M) == len(entropy_M) == 0
    assert (torch.autograd.grad(logprob_M.sum(), inputs)[1] == 0).all()


def test_low_precision_sums_the_weight_gradient_in_float32() -> None:
    """Each of 512 tokens, in a chunk of its own, adds a half; in bfloat16, 128 and a half is
    128."""
    inputs = leaves(torch.ones(512, 1).bfloat16(), torch.zeros(2, 1).bfloat16())
    first_M = torch.zeros(512, dtype=torch.int64)

    logprob_M, _ = token_logprobs(
        *inputs, first_M, torch.ones(512), entropy=False, chunk_elements=2
    )

    assert torch.autograd.grad(logprob_M.sum(), inputs)[1].tolist() == [[256.0], [-256.0]]


def test_low_precision_stays_near_the_formula() -> None:
    hidden_MH, weight_VH, label_M, temperature_M = _inputs(20)
    inputs = leaves(hidden_MH.bfloat16(), weight_VH.bfloat16())

    logprob_M, _ = token_logprobs(*inputs, label_M, temperature_M, entropy=False, chunk_elements=20)

    exact_M, _ = _by_formula(*(x.float() for x in inputs), label_M, temperature_M)
    assert logprob_M.dtype == torch.float32
    torch.testing.assert_close(logprob_M, exact_M, rtol=0.02, atol=0.05)
    found, exact = (
        torch.autograd.grad(logprob_M.sum(), inputs),
        torch.autograd.grad(exact_M.sum(), inputs),
    )
    torch.testing.assert_close(found, exact, rtol=0.05, atol=0.05)


def test_sampling_by_hand() -> None:
    logits = torch.tensor([0.1, 0.2, 0.0, 0.7]).log().expand(6, 4)
    uniform = torch.tensor([0.0, 0.09, 0.11, 0.29, 0.31, 0.999999], dtype=torch.float64)

    token_B, logprob_B = sample_rows(logits.contiguous(), uniform, torch.ones(6))

    assert token_B.tolist() == [0, 0, 1, 1, 3, 3]
    torch.testing.assert_close(logprob_B.exp(), torch.tensor([0.1, 0.1, 0.2, 0.2, 0.7, 0.7]))


def test_temperature_zero_takes_the_first_best_token_and_scores_it_at_one() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0]])

    token_B, logprob_B = sample_rows(
        logits, torch.tensor([0.99], dtype=torch.float64), torch.zeros(1)
    )

    assert token_B.tolist() == [1]
    torch.testing.assert_close(logprob_B, logits.log_softmax(-1)[:, 1])


def test_a_sampled_token_scores_the_same_bits_by_all_three_ways() -> None:
    hidden_MH, weight_VH, _, temperature_M = _inputs(5000)
    temperature_M[4] = 0.0
    logits_MV = head_logits(hidden_MH, weight_VH)

    token_M, logprob_M = sample_rows(logits_MV, _uniforms(TARGETS), temperature_M)

    assert torch.equal(logprob_M, row_logprobs(logits_MV, token_M, temperature_M))
    for entropy in (False, True):
        assert torch.equal(
            logprob_M,
            token_logprobs(hidden_MH, weight_VH, token_M, temperature_M, entropy=entropy)[0],
        )


@interpreted
def test_triton_passes_the_tests_of_the_twin() -> None:
    test_sampling_by_hand()
    test_temperature_zero_takes_the_first_best_token_and_scores_it_at_one()
    test_a_sampled_token_scores_the_same_bits_by_all_three_ways()
    test_no_targets_give_no_numbers_and_zero_gradients()
    test_entropy_that_is_not_wanted_is_zero_and_changes_no_gradient()


@interpreted
@pytest.mark.parametrize("vocabulary", [20, 4096, 4097, 9000])
def test_triton_measures_and_slopes_equal_the_twin(vocabulary: int) -> None:
    from whet.kernels import triton_lm_head

    hidden_MH, weight_VH, label_M, temperature_M = _inputs(vocabulary)
    logits_MV = head_logits(hidden_MH, weight_VH)

    found = triton_lm_head.logit_stats(logits_MV, label_M, temperature_M, has_entropy=True)

    exact = torch_logit_stats(logits_MV, label_M, temperature_M, has_entropy=True)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)
    rest = (label_M, temperature_M, exact[1:], draw(TARGETS, seed=7))
    for d_entropy_M in (None, draw(TARGETS, seed=8)):
        slope_MV = triton_lm_head.logits_grad(logits_MV, *rest, d_entropy_M, dtype=torch.float32)
        exact_MV = torch_logits_grad(logits_MV.clone(), *rest, d_entropy_M, dtype=torch.float32)
        torch.testing.assert_close(slope_MV, exact_MV, rtol=1e-4, atol=1e-6)


@interpreted
def test_triton_gradients_equal_those_of_the_formula() -> None:
    hidden_MH, weight_VH, label_M, temperature_M = _inputs(4100)
    inputs = leaves(hidden_MH, weight_VH)

    found = token_logprobs(*inputs, label_M, temperature_M, entropy=True, chunk_elements=3 * 4100)

    exact = _by_formula(*inputs, label_M, temperature_M)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        grads_of(found, inputs), grads_of(exact, inputs), rtol=1e-4, atol=1e-5
    )


@interpreted
@pytest.mark.parametrize("vocabulary", [20, 4096, 9000])
def test_triton_samples_the_tokens_of_the_twin(vocabulary: int) -> None:
    logits_BV, uniform_B = 3 * draw(40, vocabulary, seed=5), _uniforms(40)
    temperature_B = torch.tensor([1.0, 0.5, 0.0, 2.0] * 10)

    token_B, logprob_B = sample_rows(logits_BV, uniform_B, temperature_B)

    exact_B, exact_logprob_B = torch_sample_rows(logits_BV, uniform_B, temperature_B)
    assert torch.equal(token_B, exact_B)
    torch.testing.assert_close(logprob_B, exact_logprob_B, rtol=1e-5, atol=1e-5)


@interpreted
def test_triton_sampling_at_both_ends_finds_tokens_that_have_a_probability() -> None:
    logits_BV = torch.full((2, 9000), float("-inf"))
    logits_BV[:, [5000, 8000]] = 0.0
    uniform_B = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)

    token_B, logprob_B = sample_rows(logits_BV, uniform_B, torch.ones(2))

    assert token_B.tolist() == [5000, 8000]
    torch.testing.assert_close(logprob_B.exp(), torch.tensor([0.5, 0.5]))
