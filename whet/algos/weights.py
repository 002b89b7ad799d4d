"""Token weights: how losses of single tokens become one number. Known before the first backward,
from lengths alone.

The learner sums weight times loss. So a mean over tokens, over sequences, or a fixed divisor is
only a choice of weights, and no split into micro-batches can change it.
"""

from collections.abc import Callable, Sequence

Weights = Callable[[Sequence[int]], list[float]]
"""Lengths of all sequences of an optimiser step -> the weight of each token of each sequence."""


def token_mean(lengths: Sequence[int]) -> list[float]:
    """Every token counts the same (DAPO, Yu et al. 2025).

    >>> token_mean([1, 3])
    [0.25, 0.25]
    """
    return [1.0 / sum(lengths)] * len(lengths)


def sequence_mean(lengths: Sequence[int]) -> list[float]:
    """Every sequence counts the same, its tokens share that (GRPO, Shao et al. 2024).

    >>> sequence_mean([1, 4])
    [0.5, 0.125]
    """
    return [1.0 / (len(lengths) * length) for length in lengths]


def sequence_sum(lengths: Sequence[int]) -> list[float]:
    """Tokens add up within a sequence, sequences are averaged (RLOO)."""
    return [1.0 / len(lengths)] * len(lengths)


def constant(divisor: int) -> Weights:
    """Tokens add up over a fixed length, sequences are averaged (Dr. GRPO): no bias towards short
    or long answers.

    >>> constant(10)([1, 3])
    [0.05, 0.05]
    """

    def weights(lengths: Sequence[int]) -> list[float]:
        return [1.0 / (divisor * len(lengths))] * len(lengths)

    return weights
