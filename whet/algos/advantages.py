"""Advantages: rewards compared with a baseline, for whole responses or single tokens.

An estimator for whole responses takes the rewards of all groups of a step and the running baseline
of the previous steps. It returns advantages of the same shape and the next baseline, which is part
of a checkpoint; of the estimators here, only `momentum` has one.
For tokens there are rewards to go, GAE, and whitening over a step, in float64.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, pstdev, stdev
from typing import Literal, TypeVar

import numpy as np

from whet.types import Doubles, Floats, all_equal

Rewards = Sequence[Sequence[float]]
Baseline = dict[str, float]
"""The running state of an estimator, numbers by name; empty before the first step."""
AdvantageEstimator = Callable[[Rewards, Baseline], tuple[list[list[float]], Baseline]]
GroupRule = Callable[..., list[float]]
"""Rewards of one group, and settings by name -> their advantages."""

EPSILON = 1e-6
"""Added to standard deviations and counts before dividing by them."""
MOMENTUM_EPSILON = 1e-4
"""Added to the running standard deviation, as LLM4Game24 does."""
MOMENTUM_STEP = 0.1
"""The increase of the running values' weight with each group."""


def center(group: Sequence[float]) -> list[float]:
    """Subtract the group's mean (Dr. GRPO, Liu et al. 2025).

    >>> center([1.0, 0.0, 0.0, 1.0])
    [0.5, -0.5, -0.5, 0.5]
    """
    mean = fmean(group)
    return [reward - mean for reward in group]


def zscore(group: Sequence[float], *, ddof: int = 1, epsilon: float = EPSILON) -> list[float]:
    """Divide the centred rewards by the group's standard deviation (GRPO, Shao et al. 2024).

    Equal rewards give zeros.

    >>> [round(a, 4) for a in zscore([1.0, 0.0, 0.0, 1.0])]
    [0.866, -0.866, -0.866, 0.866]
    """
    if all_equal(group):
        return [0.0] * len(group)
    deviation = stdev(group) if ddof == 1 else pstdev(group)
    return [centred / (deviation + epsilon) for centred in center(group)]


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


GROUP_RULES: Mapping[str, GroupRule] = {
    "zscore": zscore,
    "center": center,
    "leave_one_out": leave_one_out,
}
"""The rules that need only the rewards of a group."""


def per_group(rule: GroupRule, **settings: float) -> AdvantageEstimator:
    """Apply a rule to each group separately, with these settings as keyword arguments."""

    def advantage(rewards: Rewards, baseline: Baseline) -> tuple[list[list[float]], Baseline]:
        return [rule(group, **settings) for group in rewards], baseline

    return advantage


def momentum(max_momentum: float) -> AdvantageEstimator:
    """Normalise by a running mean and standard deviation across groups (LLM4Game24).

    The weight of the running values starts at 0 and grows with each group up to `max_momentum`.
    With `max_momentum` 0, each group is normalised separately.
    """

    def advantage(rewards: Rewards, baseline: Baseline) -> tuple[list[list[float]], Baseline]:
        mean = baseline.get("mean", 0.0)
        deviation = baseline.get("spread", 0.0)  # the keys in stored checkpoints
        weight = baseline.get("m", 0.0)
        advantages = []
        for group in rewards:
            mean = weight * mean + (1 - weight) * fmean(group)
            deviation = weight * deviation + (1 - weight) * pstdev(group)
            advantages.append(
                [(reward - mean) / (deviation + MOMENTUM_EPSILON) for reward in group]
            )
            weight = min(max_momentum, weight + MOMENTUM_STEP)
        return advantages, {"mean": mean, "spread": deviation, "m": weight}

    return advantage


TokenAdvantageEstimator = Callable[[Doubles, Doubles | None], tuple[Doubles, Doubles | None]]
"""Rewards and values of one sequence's tokens -> advantages, and targets of the values."""


def rewards_to_go(reward: Doubles, *, gamma: float = 1.0) -> Doubles:
    """Sum the rewards from each token, inclusive, to the end.

    >>> rewards_to_go(np.array([0.0, 0.5, 1.0])).tolist()
    [1.5, 1.5, 1.0]
    """
    returns = np.zeros(len(reward))
    reward_to_go = 0.0
    for index in range(len(reward) - 1, -1, -1):
        reward_to_go = float(reward[index]) + gamma * reward_to_go
        returns[index] = reward_to_go
    return returns


def gae(
    reward: Doubles, value: Doubles, *, gamma: float = 1.0, decay: float = 1.0
) -> tuple[Doubles, Doubles]:
    """Compute GAE advantages (Schulman et al. 2016, eq. 16) and value targets.

    The value after the last token of a sequence is 0.

    >>> [array.tolist() for array in gae(np.array([0.0, 1.0]), np.array([0.25, 0.5]))]
    [[0.75, 0.5], [1.0, 1.0]]
    """
    next_value = np.append(value[1:], 0.0)
    td_error = reward + gamma * next_value - value
    advantage = rewards_to_go(td_error, gamma=gamma * decay)
    return advantage, advantage + value


def to_go_advantage(*, gamma: float) -> TokenAdvantageEstimator:
    """Use rewards to go as advantages, without values."""

    def advantage(reward: Doubles, value: Doubles | None) -> tuple[Doubles, Doubles | None]:
        return rewards_to_go(reward, gamma=gamma), None

    return advantage


def gae_advantage(*, gamma: float, gae_lambda: float) -> TokenAdvantageEstimator:
    """Use GAE with a critic's values."""

    def advantage(reward: Doubles, value: Doubles | None) -> tuple[Doubles, Doubles | None]:
        assert value is not None, "GAE needs the values of a critic"
        return gae(reward, value, gamma=gamma, decay=gae_lambda)

    return advantage


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseAdvantage:
    """An estimator that credits whole responses and compares those to the same problem."""

    build: Callable[..., AdvantageEstimator]
    """Takes the `settings` as keyword arguments."""
    settings: tuple[str, ...] = ()
    """Fields of `AlgoConfig` that only the estimators listing them use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAdvantage:
    """An estimator that credits single tokens and compares no responses."""

    build: Callable[..., TokenAdvantageEstimator]
    """Takes the `settings` as keyword arguments."""
    needs_critic: bool = False
    settings: tuple[str, ...] = ()
    """Fields of `AlgoConfig` that only the estimators listing them use."""


AdvantageSpec = ResponseAdvantage | TokenAdvantage
AdvantageName = Literal["zscore", "center", "leave_one_out", "momentum", "to_go", "gae"]
"""The names in `ADVANTAGES`, for type checkers."""
ADVANTAGES: Mapping[str, AdvantageSpec] = {
    "zscore": ResponseAdvantage(build=partial(per_group, zscore), settings=("ddof",)),
    "center": ResponseAdvantage(build=partial(per_group, center)),
    "leave_one_out": ResponseAdvantage(build=partial(per_group, leave_one_out)),
    "momentum": ResponseAdvantage(build=momentum, settings=("max_momentum",)),
    "to_go": TokenAdvantage(build=to_go_advantage, settings=("gamma",)),
    "gae": TokenAdvantage(build=gae_advantage, needs_critic=True, settings=("gamma", "gae_lambda")),
}
AdvantageMark = Literal["per_token", "uses_critic"]
F = TypeVar("F", bound=Callable[..., object])


def per_token(function: F) -> F:
    """Mark a user's advantage function as per token, without a critic.

    It takes the token rewards of one response and returns their advantages.
    """
    return _mark(function, "per_token")


def uses_critic(function: F) -> F:
    """Mark a user's advantage function as per token, with a trained critic.

    It takes the token rewards and values of one response, as a `TokenAdvantageEstimator` does.
    """
    return _mark(function, "uses_critic")


def _mark(function: F, mark: AdvantageMark) -> F:
    function.advantage_mark = mark  # type: ignore[attr-defined]
    return function


def whiten(sequences: Sequence[Doubles], has_signal: Sequence[bool]) -> list[Doubles]:
    """Whiten the tokens of all sequences with a signal (REINFORCE++, RLinf).

    Their mean becomes 0 and their standard deviation 1. Sequences without a signal become zero:
    responses of equal reward carry none, and subtracting the mean of the rest would give them one.
    """
    informative = [array for array, is_used in zip(sequences, has_signal, strict=True) if is_used]
    tokens = np.concatenate([*informative, np.zeros(0)])
    if len(tokens) == 0 or tokens.max() == tokens.min():
        return [np.zeros(len(array)) for array in sequences]
    mean = tokens.mean()
    deviation = tokens.std() + EPSILON
    return [
        (array - mean) / deviation if is_used else np.zeros(len(array))
        for array, is_used in zip(sequences, has_signal, strict=True)
    ]


def explained_variance(values: Sequence[Floats], targets: Sequence[Floats]) -> float:
    """Compute the fraction of the targets' variance that the values explain.

    It is 1 at best, and 0 if all targets are equal.

    >>> explained_variance([np.float32([0.0, 1.0])], [np.float32([0.0, 2.0])])
    0.75
    """
    value, target = (
        np.concatenate([np.zeros(0), *arrays]).astype(np.float64) for arrays in (values, targets)
    )
    variance = float(target.var()) if len(target) else 0.0
    return 0.0 if variance == 0 else 1 - float((target - value).var()) / variance
