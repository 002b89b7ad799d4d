"""What a loss sees of each sampled token, and sums over sequences. M tokens were sampled, in S
sequences.

Where answers are compared, two and two of the sequences make P pairs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenTerms:
    logprob_M: Tensor
    """Under the weights being trained, with gradient."""
    entropy_M: Tensor
    """Of the whole next-token distribution, with gradient when the objective asks for it."""
    advantage_M: Tensor
    behaviour_M: Tensor
    """Log-probability at which the engine sampled the token."""
    old_M: Tensor | None
    """Under the weights at the start of the step; None when this is their first use, so that they
    are the same."""
    reference_M: Tensor | None
    segment_M: Tensor
    """Index of the token's sequence in the batch."""
    chosen_P: Tensor | None = None
    """Index of the sequence that is the better answer of each pair; None where nothing is
    compared."""
    rejected_P: Tensor | None = None


def old_logprobs(terms: TokenTerms) -> Tensor:
    """The log-probabilities that ratios compare with: those of the start of the step."""
    return terms.logprob_M.detach() if terms.old_M is None else terms.old_M


def segment_sum(value_M: Tensor, segment_M: Tensor) -> Tensor:
    """Add up each sequence's tokens, and give every token its sequence's sum.

    >>> segment_sum(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0, 0, 1])).tolist()
    [3.0, 3.0, 5.0]
    """
    # There are at most M sequences, and asking a GPU for their number would make it wait.
    sum_S = torch.zeros_like(value_M).index_add(0, segment_M, value_M)
    return sum_S[segment_M]


def segment_mean(value_M: Tensor, segment_M: Tensor) -> Tensor:
    """Give every token the mean over its sequence."""
    return segment_sum(value_M, segment_M) / segment_sum(torch.ones_like(value_M), segment_M)
