"""Surrogates and penalties: golden values, and gradients against exact expectations on a toy vocabulary."""

import math

import pytest
import torch
from torch import Tensor

from whet.algos.losses import KlEstimator, clip, kl, nll, reinforce, token_ratio
from whet.algos.terms import TokenTerms

LOGITS = (0.3, -1.2, 0.8, 2.0, -0.5)
REFERENCE = (1.0, 0.1, -0.4, 0.7, 0.2)


def _terms(logprob_M: Tensor, old_M: Tensor | None) -> TokenTerms:
    zeros = torch.zeros(len(logprob_M))
    return TokenTerms(
        logprob_M=logprob_M,
        entropy_M=zeros,
        advantage_M=zeros,
        behaviour_M=zeros,
        old_M=old_M,
        reference_M=None,
        segment_M=zeros.long(),
    )


def _numbers(*values: float) -> Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("ratio", "advantage", "high", "loss"),
    [
        (1.5, 1.0, 0.2, -1.2),
        (1.5, -1.0, 0.2, 1.5),
        (0.5, 1.0, 0.2, -0.5),
        (0.5, -1.0, 0.2, 0.8),
        (1.5, 1.0, 0.28, -1.28),
        (1.1, 2.0, 0.2, -2.2),
    ],
)
def test_clip_is_the_pessimistic_bound(ratio: float, advantage: float, high: float, loss: float) -> None:
    found = clip(_numbers(ratio), _numbers(advantage), low=0.2, high=high)

    torch.testing.assert_close(found, _numbers(loss))


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [(1.5, 1.0, 0.0), (1.5, -1.0, 1.0), (0.5, 1.0, -1.0), (0.5, -1.0, 0.0), (1.0, 2.0, -2.0), (1.0, -2.0, 2.0)],
)
def test_clip_has_no_slope_where_a_gain_is_beyond_the_bound(ratio: float, advantage: float, slope: float) -> None:
    ratio_M = torch.tensor([ratio], requires_grad=True)

    clip(ratio_M, _numbers(advantage), low=0.2, high=0.2).sum().backward()

    torch.testing.assert_close(ratio_M.grad, _numbers(slope))


def test_ratio_is_exactly_one_at_first_use_and_has_the_gradient_of_the_logprob() -> None:
    logprob_M = torch.tensor([-0.1, -7.3, -23.456789], requires_grad=True)

    ratio_M = token_ratio(_terms(logprob_M, None))
    ratio_M.sum().backward()

    assert ratio_M.tolist() == [1.0, 1.0, 1.0]
    torch.testing.assert_close(logprob_M.grad, torch.ones(3))


def test_ratio_compares_with_the_old_logprob() -> None:
    ratio_M = token_ratio(_terms(_numbers(math.log(0.6)), _numbers(math.log(0.4))))

    torch.testing.assert_close(ratio_M, _numbers(1.5))


def test_reinforce_weighs_the_logprob_by_the_advantage() -> None:
    torch.testing.assert_close(reinforce(_numbers(-2.0, -0.5), _numbers(1.5, -4.0)), _numbers(3.0, -2.0))


def test_nll_is_minus_the_logprob() -> None:
    assert nll(_terms(_numbers(-2.0, -0.5), None)).tolist() == [2.0, 0.5]


@pytest.mark.parametrize(("estimator", "value"), [("k1", 0.6931), ("k2", 0.2402), ("k3", 0.1931)])
def test_kl_estimators_of_a_half_against_a_quarter(estimator: KlEstimator, value: float) -> None:
    found = kl(_numbers(math.log(0.5)), _numbers(math.log(0.25)), estimator)

    torch.testing.assert_close(found, _numbers(value), atol=1e-4, rtol=0)


def _policy() -> tuple[Tensor, Tensor, Tensor]:
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor(REFERENCE, dtype=torch.float64), -1)
    return logits, torch.log_softmax(logits, -1), reference


def _estimated_gradient(estimator: KlEstimator) -> Tensor:
    """The gradient of the loss, averaged exactly over all tokens the policy might sample."""
    logits, logprob_V, reference_V = _policy()
    (logprob_V.detach().exp() * kl(logprob_V, reference_V, estimator)).sum().backward()
    assert logits.grad is not None
    return logits.grad


def _exact_gradient(*, forward: bool) -> Tensor:
    logits, logprob_V, reference_V = _policy()
    if forward:
        divergence = (reference_V.exp() * (reference_V - logprob_V)).sum()
    else:
        divergence = (logprob_V.exp() * (logprob_V - reference_V)).sum()
    divergence.backward()
    assert logits.grad is not None
    return logits.grad


def test_the_gradient_of_k2_is_that_of_the_kl_to_the_reference() -> None:
    assert _exact_gradient(forward=False).abs().max() > 0.1

    torch.testing.assert_close(_estimated_gradient("k2"), _exact_gradient(forward=False))


def test_the_gradient_of_k1_is_nothing() -> None:
    torch.testing.assert_close(_estimated_gradient("k1"), torch.zeros(5, dtype=torch.float64))


def test_the_gradient_of_k3_is_that_of_the_kl_from_the_reference() -> None:
    torch.testing.assert_close(_estimated_gradient("k3"), _exact_gradient(forward=True))
    assert (_exact_gradient(forward=True) - _exact_gradient(forward=False)).abs().max() > 0.05


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_value_of_k1_and_of_k3_is_the_kl_on_average(estimator: KlEstimator) -> None:
    _, logprob_V, reference_V = _policy()

    found = (logprob_V.exp() * kl(logprob_V, reference_V, estimator)).sum()

    torch.testing.assert_close(found, (logprob_V.exp() * (logprob_V - reference_V)).sum())


def test_k3_is_never_negative() -> None:
    _, logprob_V, reference_V = _policy()

    assert (kl(logprob_V, reference_V, "k3") >= 0).all()
