"""The loss of a critic's values, and its objective."""

from dataclasses import dataclass

import torch
from torch import Tensor

from whet.algos.objectives import BatchForward, TokenLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueObjective:
    """A critic's loss per token with its metrics; `clip` bounds a value's move within a step."""

    clip: float | None

    def compute_loss(self, forward: BatchForward) -> TokenLoss:
        value_M, old_value_M, target_M = forward.compute_values()
        loss_M = value_loss(value_M, old_value_M, target_M, clip=self.clip)
        is_beyond_M = (value_M.detach() - old_value_M).abs() > (self.clip or float("inf"))
        return TokenLoss(loss_M, {"value/clip_fraction": is_beyond_M.float()})


def value_loss(
    value_M: Tensor, old_value_M: Tensor, target_M: Tensor, *, clip: float | None
) -> Tensor:
    """Compute half the squared error of a value, or of the clipped value if larger (PPO).

    A value that has moved by more than `clip` towards its target has no gradient; a value that
    moved away keeps its gradient.

    >>> value_loss(torch.tensor([0.8]), torch.tensor([0.5]), torch.tensor([1.0]), clip=0.25)
    tensor([0.0312])
    """
    loss_M = 0.5 * (value_M - target_M) ** 2
    if clip is None:
        return loss_M
    clipped_value_M = old_value_M + (value_M - old_value_M).clamp(-clip, clip)
    return torch.maximum(loss_M, 0.5 * (clipped_value_M - target_M) ** 2)
