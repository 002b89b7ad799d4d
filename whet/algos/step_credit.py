"""Credit for the steps of an answer that a verifier judged, blended with the outcome's (Tango).

The reward of a step stands at its last token. A token is worth the step rewards still to come:
those of the steps that end with it or after it. Answers without judged steps get none.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from whet.algos.advantages import Array, leave_one_out, rewards_to_go, whiten, zscore
from whet.config import Config
from whet.types import Step

StepRule = Literal["zscore", "leave_one_out", "whiten"]
JudgedAnswer = tuple[Sequence[Step], int]
"""The judged steps of an answer, and its number of tokens."""
StepCredit = Callable[[Sequence[Sequence[JudgedAnswer]]], list[list[Array]]]
Rule = Callable[[Sequence[float]], list[float]]

LEAVE_ONE_OUT_SCALE = 10.0
"""What Tango multiplies step credit by where it is centred but not divided by a deviation."""


class Blend(Config):
    """How much of a token's advantage comes from judged steps, over a run."""

    alpha: float | None = Field(default=None, ge=0.0, le=1.0)
    """Share at the start; none takes the algorithm's."""
    final_alpha: float = Field(default=1e-3, ge=0.0, le=1.0)
    """Share at the end."""
    decay: Literal["exponential", "linear", "cosine", "none"] = "exponential"
    """The way from the first share to the last; none keeps the first."""

    @model_validator(mode="after")
    def _ends(self) -> "Blend":
        if self.decay == "exponential" and self.final_alpha == 0:
            raise ValueError(
                "final_alpha must be above 0 for an exponential decay, which never reaches 0"
            )
        return self


def alpha_at(first: float, cfg: Blend, progress: float) -> float:
    """The share of step credit when `progress` (0 to 1) of the planned updates are done.

    >>> [round(alpha_at(0.1, Blend(), progress), 4) for progress in (0.0, 0.25, 0.5, 0.75, 1.0)]
    [0.1, 0.0316, 0.01, 0.0032, 0.001]
    """
    if cfg.decay == "none" or first <= cfg.final_alpha:
        return first
    done = min(1.0, max(0.0, progress))
    if cfg.decay == "exponential":
        return float(first * (cfg.final_alpha / first) ** done)
    left = 1 - done if cfg.decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return cfg.final_alpha + (first - cfg.final_alpha) * left


def blend(outcome: Array, step: Array, alpha: float) -> Array:
    """Both parts are normalised for themselves before: their rewards are of different kinds."""
    return (1 - alpha) * outcome + alpha * step


def step_credit(rule: StepRule) -> StepCredit:
    """Build the step credit of a rule: pooled in the group, or whitened over all tokens."""
    if rule == "whiten":
        return _whiten_steps
    return _pool_groups(zscore) if rule == "zscore" else _pool_groups(_scaled_leave_one_out)


def to_tokens(answer: JudgedAnswer, rewards: Sequence[float]) -> Array:
    """Give each token the rewards of the steps that end with it or after it.

    >>> steps = [Step(start=0, end=2, reward=0), Step(start=2, end=3, reward=0)]
    >>> to_tokens((steps, 4), [1.0, 0.5]).tolist()
    [1.5, 1.5, 0.5, 0.0]
    """
    steps, length = answer
    at_ends = np.zeros(length)
    for step, reward in zip(steps, rewards, strict=True):
        assert 0 <= step.start < step.end <= length, (
            f"step {step.start}:{step.end} is not within {length} tokens"
        )
        at_ends[step.end - 1] += reward
    return rewards_to_go(at_ends)


def _pool_groups(rule: Rule) -> StepCredit:
    def credit(groups: Sequence[Sequence[JudgedAnswer]]) -> list[list[Array]]:
        return [_of_group(group, rule) for group in groups]

    return credit


def _of_group(group: Sequence[JudgedAnswer], rule: Rule) -> list[Array]:
    pool = [step.reward for steps, _ in group for step in steps]
    credits = iter(rule(pool) if len(pool) > 1 else [0.0] * len(pool))
    return [to_tokens(answer, [next(credits) for _ in answer[0]]) for answer in group]


def _whiten_steps(groups: Sequence[Sequence[JudgedAnswer]]) -> list[list[Array]]:
    answers = [answer for group in groups for answer in group]
    raw = [to_tokens(answer, [step.reward for step in answer[0]]) for answer in answers]
    credits = iter(whiten(raw, [bool(steps) for steps, _ in answers]))
    return [[next(credits) for _ in group] for group in groups]


def _scaled_leave_one_out(pool: Sequence[float]) -> list[float]:
    return [LEAVE_ONE_OUT_SCALE * value for value in leave_one_out(pool)]
