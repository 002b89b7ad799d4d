"""What a critic learns from, and how well it has learned: plain mathematics of values.

Shapes: M tokens.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from whet.types import Floats


def value_loss(value_M: Tensor, old_M: Tensor, target_M: Tensor, *, clip: float | None) -> Tensor:
    """Half the squared error of a value, or of one held within `clip` of the old, whichever is
    larger (PPO).

    A value that has moved further than `clip` towards its target has no gradient left; one that
    moved away keeps it.

    >>> value_loss(torch.tensor([0.8]), torch.tensor([0.5]), torch.tensor([1.0]), clip=0.25)
    tensor([0.0312])
    """
    loss_M = 0.5 * (value_M - target_M) ** 2
    if clip is None:
        return loss_M
    held_M = old_M + (value_M - old_M).clamp(-clip, clip)
    return torch.maximum(loss_M, 0.5 * (held_M - target_M) ** 2)


def explained_variance(values: Sequence[Floats], targets: Sequence[Floats]) -> float:
    """The share of the targets' variance that the values account for: 1 is all, 0 no more than a
    constant would.

    Targets that are all the same have no variance to explain, which counts as 0.

    >>> explained_variance([np.float32([0.0, 1.0])], [np.float32([0.0, 2.0])])
    0.75
    """
    value, target = (
        np.concatenate([np.zeros(0), *parts]).astype(np.float64) for parts in (values, targets)
    )
    spread = float(target.var()) if len(target) else 0.0
    return 0.0 if spread == 0 else 1 - float((target - value).var()) / spread
