"""Step credit: token advantages from a verifier's rewards of the steps of a response (Tango).

A step is rewarded at its last token, and a token is credited with the rewards of all steps that end
at it or later. Responses without judged steps get no step credit.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from whet.algos.advantages import GroupRule, leave_one_out, rewards_to_go, whiten, zscore
from whet.config import Config
from whet.types import Doubles, JudgedStep

StepRule = Literal["zscore", "leave_one_out", "whiten"]
JudgedResponse = tuple[Sequence[JudgedStep], int]
"""The judged steps of a response, and its length in tokens."""
StepCreditEstimator = Callable[[Sequence[Sequence[JudgedResponse]]], list[list[Doubles]]]

LEAVE_ONE_OUT_SCALE = 10.0
"""Tango's factor for step credit that is not divided by a standard deviation."""


class StepCreditConfig(Config):
    """The fraction of a token's advantage that comes from judged steps, over a run."""

    alpha: float | None = Field(default=None, ge=0.0, le=1.0)
    """Initial fraction; none takes the algorithm's."""
    final_alpha: float = Field(default=1e-3, ge=0.0, le=1.0)
    """Final fraction."""
    decay: Literal["exponential", "linear", "cosine", "none"] = "exponential"
    """How the fraction falls from its initial to its final value; none keeps the initial one."""

    @model_validator(mode="after")
    def _check_ends(self) -> "StepCreditConfig":
        if self.decay == "exponential" and self.final_alpha == 0:
            raise ValueError(
                "final_alpha must be above 0 for an exponential decay, which never reaches 0"
            )
        return self


def step_credit_fraction_at(first: float, cfg: StepCreditConfig, run_fraction: float) -> float:
    """Return the fraction of step credit after `run_fraction` (0 to 1) of the planned updates.

    >>> cfg = StepCreditConfig()
    >>> done = (0.0, 0.25, 0.5, 0.75, 1.0)
    >>> [round(step_credit_fraction_at(0.1, cfg, part), 4) for part in done]
    [0.1, 0.0316, 0.01, 0.0032, 0.001]
    """
    if cfg.decay == "none" or first <= cfg.final_alpha:
        return first
    done = min(1.0, max(0.0, run_fraction))
    if cfg.decay == "exponential":
        return float(first * (cfg.final_alpha / first) ** done)
    left = 1 - done if cfg.decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return cfg.final_alpha + (first - cfg.final_alpha) * left


def blend_advantages(outcome: Doubles, step: Doubles, fraction: float) -> Doubles:
    """Mix outcome and step advantages, which are already normalised separately."""
    return (1 - fraction) * outcome + fraction * step


def build_step_credit(rule: StepRule) -> StepCreditEstimator:
    """Build the estimator of a rule: pooled steps of a group, or whitening over all tokens."""
    by_name: dict[StepRule, StepCreditEstimator] = {
        "zscore": _pool_groups(zscore),
        "leave_one_out": _pool_groups(_scaled_leave_one_out),
        "whiten": _whiten_steps,
    }
    return by_name[rule]


def spread_over_tokens(response: JudgedResponse, rewards: Sequence[float]) -> Doubles:
    """Give each token the rewards of all steps that end at it or later.

    >>> steps = [JudgedStep(start=0, end=2, reward=0), JudgedStep(start=2, end=3, reward=0)]
    >>> spread_over_tokens((steps, 4), [1.0, 0.5]).tolist()
    [1.5, 1.5, 0.5, 0.0]
    """
    steps, length = response
    at_ends = np.zeros(length)
    for step, reward in zip(steps, rewards, strict=True):
        assert 0 <= step.start < step.end <= length, (
            f"step {step.start}:{step.end} is not within {length} tokens"
        )
        at_ends[step.end - 1] += reward
    return rewards_to_go(at_ends)


def _pool_groups(rule: GroupRule) -> StepCreditEstimator:
    def credit(groups: Sequence[Sequence[JudgedResponse]]) -> list[list[Doubles]]:
        return [_credit_group(group, rule) for group in groups]

    return credit


def _credit_group(group: Sequence[JudgedResponse], rule: GroupRule) -> list[Doubles]:
    pool = [step.reward for steps, _ in group for step in steps]
    credits = iter(rule(pool) if len(pool) > 1 else [0.0] * len(pool))
    return [
        spread_over_tokens(response, [next(credits) for _ in response[0]]) for response in group
    ]


def _whiten_steps(groups: Sequence[Sequence[JudgedResponse]]) -> list[list[Doubles]]:
    responses = [response for group in groups for response in group]
    raw = [
        spread_over_tokens(response, [step.reward for step in response[0]])
        for response in responses
    ]
    credits = iter(whiten(raw, [bool(steps) for steps, _ in responses]))
    return [[next(credits) for _ in group] for group in groups]


def _scaled_leave_one_out(pool: Sequence[float]) -> list[float]:
    return [LEAVE_ONE_OUT_SCALE * value for value in leave_one_out(pool)]
