"""Advantages: what a rollout's reward is worth against its siblings'. Plain numbers, group by
group.

Each function takes the rewards of all groups of a step and a state, and returns advantages of the
same shape and the next state. The state is checkpointed; only `momentum` has one.
"""

from collections.abc import Callable, Sequence
from statistics import fmean, pstdev, stdev

Rewards = Sequence[Sequence[float]]
State = dict[str, float]
Advantage = Callable[[Rewards, State], tuple[list[list[float]], State]]

EPSILON = 1e-6


def center(group: Sequence[float]) -> list[float]:
    """Subtract the group's mean (Dr. GRPO, Liu et al. 2025).

    >>> center([1.0, 0.0, 0.0, 1.0])
    [0.5, -0.5, -0.5, 0.5]
    """
    mean = fmean(group)
    return [reward - mean for reward in group]


def zscore(group: Sequence[float], *, ddof: int = 1, epsilon: float = EPSILON) -> list[float]:
    """Divide the centred rewards by the group's deviation (GRPO, Shao et al. 2024); equal rewards
    give zeros.

    >>> [round(a, 4) for a in zscore([1.0, 0.0, 0.0, 1.0])]
    [0.866, -0.866, -0.866, 0.866]
    """
    if max(group) == min(group):
        return [0.0] * len(group)
    spread = stdev(group) if ddof == 1 else pstdev(group)
    return [centred / (spread + epsilon) for centred in center(group)]


def leave_one_out(group: Sequence[float]) -> list[float]:
    """Compare each reward with the mean of the others (RLOO, Ahmadian et al. 2024).

    >>> leave_one_out([1.0, 0.0])
    [1.0, -1.0]
    """
    if len(group) < 2:
        raise ValueError("leave_one_out needs at least two rollouts in a group")
    total = sum(group)
    others = len(group) - 1
    return [reward - (total - reward) / others for reward in group]


def each(score: Callable[[Sequence[float]], list[float]]) -> Advantage:
    """Make an advantage of a rule that looks at one group at a time."""

    def advantage(rewards: Rewards, state: State) -> tuple[list[list[float]], State]:
        return [score(group) for group in rewards], state

    return advantage


def momentum(max_momentum: float) -> Advantage:
    """Normalise by a mean and deviation that run across groups (LLM4Game24).

    Each group moves them by 1 - m, where m starts at 0 and grows by 0.1 a group up to
    `max_momentum`; at 0 every group stands for itself.
    """

    def advantage(rewards: Rewards, state: State) -> tuple[list[list[float]], State]:
        mean = state.get("mean", 0.0)
        spread = state.get("spread", 0.0)
        m = state.get("m", 0.0)
        out = []
        for group in rewards:
            mean = m * mean + (1 - m) * fmean(group)
            spread = m * spread + (1 - m) * pstdev(group)
            out.append([(reward - mean) / (spread + 1e-4) for reward in group])
            m = min(max_momentum, m + 0.1)
        return out, {"mean": mean, "spread": spread, "m": m}

    return advantage
