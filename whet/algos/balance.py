"""Weights that keep a verifier from learning the more frequent verdict alone (Tango).

A verifier trained on raw agreement earns most by saying what is usually true. So each answer it
judges weighs by how rare its true label has been, over a running count that is checkpointed.
"""

from collections.abc import Sequence
from typing import Literal

from whet.algos.advantages import State

BalanceRule = Literal["sqrt_inverse", "inverse"]
DECAY = 0.8
EPSILON = 1e-6


def balanced(
    is_correct: Sequence[bool], state: State, *, rule: BalanceRule = "sqrt_inverse"
) -> tuple[list[float], State]:
    """Weigh answers of both kinds by the inverse of their running count, or its root; weights
    average 1.

    They multiply advantages. The first batch starts the counts.

    >>> [round(weight, 4) for weight in balanced([True, True, True, True, False], {})[0]]
    [0.8333, 0.8333, 0.8333, 0.8333, 1.6667]
    """
    if not is_correct:
        return [], state
    counts = {"correct": float(sum(is_correct)), "wrong": float(len(is_correct) - sum(is_correct))}
    running = {
        name: DECAY * state.get(name, count) + (1 - DECAY) * count for name, count in counts.items()
    }
    power = 0.5 if rule == "sqrt_inverse" else 1.0
    raw = [
        1 / (running["correct" if correct else "wrong"] ** power + EPSILON)
        for correct in is_correct
    ]
    mean = sum(raw) / len(raw)
    return [weight / mean for weight in raw], running
