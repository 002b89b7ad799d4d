"""What a loss sees of each sampled token. M tokens were sampled; every tensor has shape [M]."""

from dataclasses import dataclass

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
    """Under the weights at the start of the step; None when this is their first use, so that they are the same."""
    reference_M: Tensor | None
    segment_M: Tensor
    """Index of the token's sequence in the batch."""
