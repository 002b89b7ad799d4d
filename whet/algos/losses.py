"""Ratios, policy surrogates, KL penalties, and the likelihood of SFT, token by token. Tensors in,
tensors out.

Every loss is to be minimised and has shape [M]; `weights` decide later how it is summed.
"""

from typing import Literal

import torch
from torch import Tensor

from whet.algos.terms import TokenTerms, old_logprobs, segment_mean

KlEstimator = Literal["k1", "k2", "k3"]
KlGradient = Literal["exact", "direct"]

MAX_LOG_RATIO = 20.0
"""Beyond e^20 a ratio says only that the two policies have nothing in common, and its exponential
would overflow."""


def nll(terms: TokenTerms) -> Tensor:
    """Negative log-likelihood, the loss of SFT."""
    return -terms.logprob_M


def token_ratio(terms: TokenTerms) -> Tensor:
    """How much more likely a token is now than at the start of the step; exactly 1, with gradient,
    at first use."""
    return torch.exp(_bounded(terms.logprob_M - old_logprobs(terms)))


def sequence_ratio(terms: TokenTerms) -> Tensor:
    """The geometric mean of a sequence's ratios, as each token's value (GSPO, Zheng et al. 2025,
    eq. 7 and 14).

    A token has the gradient of its own log-probability alone (GSPO-token). Where a sequence's
    tokens share advantage and weight, that sums to the gradient of the sequence ratio; where they
    do not, credit stays with its token.
    """
    log_ratio_M = terms.logprob_M.detach() - old_logprobs(terms)
    log_mean_M = segment_mean(_bounded(log_ratio_M), terms.segment_M)
    return torch.exp(terms.logprob_M - terms.logprob_M.detach() + log_mean_M)


def no_ratio(terms: TokenTerms) -> Tensor:
    """No correction: tokens count as if the present weights had sampled them."""
    return torch.ones_like(terms.logprob_M)


def clip(ratio_M: Tensor, advantage_M: Tensor, *, low: float, high: float) -> Tensor:
    """PPO's pessimistic bound: gains stop paying beyond 1 - low and 1 + high (Schulman et al. 2017,
    eq. 7)."""
    bounded_M = ratio_M.clamp(1 - low, 1 + high)
    return -torch.minimum(ratio_M * advantage_M, bounded_M * advantage_M)


def dual_clip(
    ratio_M: Tensor, advantage_M: Tensor, *, low: float, high: float, most: float
) -> Tensor:
    """Clip, and let no token of negative advantage cost more than `most` times it (Ye et al. 2020,
    eq. 5)."""
    loss_M = clip(ratio_M, advantage_M, low=low, high=high)
    return torch.where(advantage_M < 0, torch.minimum(loss_M, -most * advantage_M), loss_M)


def cispo(ratio_M: Tensor, advantage_M: Tensor, logprob_M: Tensor, *, high: float) -> Tensor:
    """The policy gradient weighed by a capped ratio: no token is dropped (CISPO, MiniMax-M1 2025,
    eq. 4 and 5)."""
    return -ratio_M.detach().clamp(max=1 + high) * advantage_M * logprob_M


def reinforce(ratio_M: Tensor, advantage_M: Tensor, logprob_M: Tensor) -> Tensor:
    """The plain policy gradient, weighed by the ratio if there is one."""
    return -ratio_M.detach() * advantage_M * logprob_M


def kl(logprob_M: Tensor, reference_M: Tensor, estimator: KlEstimator) -> Tensor:
    """Estimate KL(policy || reference) from sampled tokens (Schulman, "Approximating KL
    divergence").

    As a value k1 is unbiased, k3 too and never negative. As a loss only k2 has the right gradient
    for tokens the policy sampled: differentiating k1 gives zero in expectation, differentiating k3
    the forward KL's gradient.
    """
    difference_M = _bounded(logprob_M - reference_M)
    if estimator == "k1":
        return difference_M
    if estimator == "k2":
        return 0.5 * difference_M.square()
    return torch.expm1(-difference_M) + difference_M


def exact_kl(
    logprob_M: Tensor, reference_M: Tensor, ratio_M: Tensor, estimator: KlEstimator
) -> Tensor:
    """The same estimates with the gradient of the KL itself, also for tokens that older weights
    sampled.

    The ratio is the token's, to those weights. The expectation of ratio × k3 is the KL whatever the
    present weights, so its gradient is the KL's (DeepSeek-V3.2). It comes to ratio × d × ∇logprob,
    with d = logprob - reference; k1 and k2 are given the same, so that the three differ in value
    alone.
    """
    if estimator == "k1":
        return ratio_M * kl(logprob_M, reference_M, "k1").detach()
    if estimator == "k2":
        return ratio_M.detach() * kl(logprob_M, reference_M, "k2")
    return ratio_M * kl(logprob_M, reference_M, "k3")


def step_kl(ratio_M: Tensor) -> Tensor:
    """Estimate KL(policy at the start of the step || policy now) from token ratios (k3)."""
    return ratio_M - 1 - ratio_M.log()


def _bounded(log_ratio_M: Tensor) -> Tensor:
    return log_ratio_M.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
