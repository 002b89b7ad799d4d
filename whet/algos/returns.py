"""Credit for single tokens: rewards to go, GAE, and whitening over all tokens of a step. Plain
arrays in float64."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Spread = Callable[[Array, Array | None], tuple[Array, Array | None]]
"""Rewards of one sequence's tokens, and their values -> advantages, and what the values should have
been."""

EPSILON = 1e-6


def rewards_to_go(reward: Array, *, gamma: float = 1.0) -> Array:
    """What is still to come at each token, its own reward included.

    >>> rewards_to_go(np.array([0.0, 0.5, 1.0])).tolist()
    [1.5, 1.5, 1.0]
    """
    found = np.zeros(len(reward))
    ahead = 0.0
    for index in range(len(reward) - 1, -1, -1):
        ahead = float(reward[index]) + gamma * ahead
        found[index] = ahead
    return found


def gae(
    reward: Array, value: Array, *, gamma: float = 1.0, decay: float = 1.0
) -> tuple[Array, Array]:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16), and the targets of the
    values.

    A sequence ends with its last token: nothing is worth anything after it.

    >>> [part.tolist() for part in gae(np.array([0.0, 1.0]), np.array([0.25, 0.5]))]
    [[0.75, 0.5], [1.0, 1.0]]
    """
    following = np.append(value[1:], 0.0)
    surprise = reward + gamma * following - value
    advantage = rewards_to_go(surprise, gamma=gamma * decay)
    return advantage, advantage + value


def to_go(*, gamma: float) -> Spread:
    """Make the advantage of a token its reward to go; there are no values."""

    def spread(reward: Array, value: Array | None) -> tuple[Array, Array | None]:
        return rewards_to_go(reward, gamma=gamma), None

    return spread


def by_values(*, gamma: float, decay: float) -> Spread:
    """Make the advantage of a token what GAE says, given a critic's values."""

    def spread(reward: Array, value: Array | None) -> tuple[Array, Array | None]:
        assert value is not None, "GAE needs the values of a critic"
        return gae(reward, value, gamma=gamma, decay=decay)

    return spread


def whiten(sequences: Sequence[Array], is_live: Sequence[bool]) -> list[Array]:
    """Bring the tokens of all live sequences to mean 0 and deviation 1 (REINFORCE++, RLinf's second
    normalisation).

    The others take no part and become zero: answers of equal reward say nothing of each other, and
    shifting them by the mean of the rest would.
    """
    live = [array for array, alive in zip(sequences, is_live, strict=True) if alive]
    tokens = np.concatenate([*live, np.zeros(0)])
    if len(tokens) == 0 or tokens.max() == tokens.min():
        return [np.zeros(len(array)) for array in sequences]
    mean = tokens.mean()
    spread = tokens.std() + EPSILON
    return [
        (array - mean) / spread if alive else np.zeros(len(array))
        for array, alive in zip(sequences, is_live, strict=True)
    ]
