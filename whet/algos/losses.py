"""Per-token losses: policy surrogates, penalties, and the likelihood of SFT. Tensors in, tensors out.

Every function returns a loss to be minimised, of shape [M]; `weights` decide later how it is summed.
"""

from typing import Literal

import torch
from torch import Tensor

from whet.algos.terms import TokenTerms

KlEstimator = Literal["k1", "k2", "k3"]


def nll(terms: TokenTerms) -> Tensor:
    """Negative log-likelihood, the loss of SFT."""
    return -terms.logprob_M


def token_ratio(terms: TokenTerms) -> Tensor:
    """How much more likely a token is now than at the start of the step; exactly 1, with gradient, at first use."""
    old_M = terms.logprob_M.detach() if terms.old_M is None else terms.old_M
    return torch.exp(terms.logprob_M - old_M)


def clip(ratio_M: Tensor, advantage_M: Tensor, *, low: float, high: float) -> Tensor:
    """PPO's pessimistic bound: gains stop paying beyond 1 - low and 1 + high (Schulman et al. 2017, eq. 7)."""
    bounded_M = ratio_M.clamp(1 - low, 1 + high)
    return -torch.minimum(ratio_M * advantage_M, bounded_M * advantage_M)


def reinforce(logprob_M: Tensor, advantage_M: Tensor) -> Tensor:
    """The plain policy gradient."""
    return -logprob_M * advantage_M


def kl(logprob_M: Tensor, reference_M: Tensor, estimator: KlEstimator) -> Tensor:
    """Estimate KL(policy || reference) from sampled tokens (Schulman, "Approximating KL divergence").

    As a value k1 is unbiased, k3 too and never negative. As a loss only k2 has the right gradient for tokens the
    policy sampled: differentiating k1 gives zero in expectation, differentiating k3 the forward KL's gradient.
    """
    difference_M = logprob_M - reference_M
    if estimator == "k1":
        return difference_M
    if estimator == "k2":
        return 0.5 * difference_M.square()
    return torch.expm1(-difference_M) + difference_M
