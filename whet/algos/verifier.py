"""Tango: credit for the steps of a response that a verifier judged, and how the verifier learns.

A step is rewarded at its last token, and a token is credited with the rewards of the steps that end
with it or after it. Responses without judged steps get no step credit. A verifier is measured by
its agreement with the outcome; class weights balance right and wrong solutions.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from whet.algos.advantages import (
    EPSILON,
    FloatArray,
    GroupRule,
    leave_one_out,
    rewards_to_go,
    whiten,
    zscore,
)
from whet.config import Config
from whet.types import Step

StepRule = Literal["zscore", "leave_one_out", "whiten"]
JudgedResponse = tuple[Sequence[Step], int]
"""The judged steps of a response, and its number of tokens."""
StepCredit = Callable[[Sequence[Sequence[JudgedResponse]]], list[list[FloatArray]]]

LEAVE_ONE_OUT_SCALE = 10.0
"""Tango's factor for step credit that is centred but not divided by a deviation."""


class StepCreditConfig(Config):
    """How much of a token's advantage comes from judged steps, over a run."""

    alpha: float | None = Field(default=None, ge=0.0, le=1.0)
    """Fraction at the start; none takes the algorithm's."""
    final_alpha: float = Field(default=1e-3, ge=0.0, le=1.0)
    """Fraction at the end."""
    decay: Literal["exponential", "linear", "cosine", "none"] = "exponential"
    """How the fraction falls from the first value to the last; none keeps the first."""

    @model_validator(mode="after")
    def _check_ends(self) -> "StepCreditConfig":
        if self.decay == "exponential" and self.final_alpha == 0:
            raise ValueError(
                "final_alpha must be above 0 for an exponential decay, which never reaches 0"
            )
        return self


def step_credit_fraction_at(first: float, cfg: StepCreditConfig, progress: float) -> float:
    """Return the fraction of step credit once `progress` (0 to 1) of the planned updates are done.

    >>> cfg = StepCreditConfig()
    >>> done = (0.0, 0.25, 0.5, 0.75, 1.0)
    >>> [round(step_credit_fraction_at(0.1, cfg, part), 4) for part in done]
    [0.1, 0.0316, 0.01, 0.0032, 0.001]
    """
    if cfg.decay == "none" or first <= cfg.final_alpha:
        return first
    done = min(1.0, max(0.0, progress))
    if cfg.decay == "exponential":
        return float(first * (cfg.final_alpha / first) ** done)
    left = 1 - done if cfg.decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return cfg.final_alpha + (first - cfg.final_alpha) * left


def blend_advantages(outcome: FloatArray, step: FloatArray, alpha: float) -> FloatArray:
    """Mix outcome and step advantages, each normalised separately before."""
    return (1 - alpha) * outcome + alpha * step


def step_credit(rule: StepRule) -> StepCredit:
    """Build the step credit of a rule: pooled in the group, or whitened over all tokens."""
    if rule == "whiten":
        return _whiten_steps
    return _pool_groups(zscore) if rule == "zscore" else _pool_groups(_scaled_leave_one_out)


def spread_over_tokens(response: JudgedResponse, rewards: Sequence[float]) -> FloatArray:
    """Give each token the rewards of the steps that end with it or after it.

    >>> steps = [Step(start=0, end=2, reward=0), Step(start=2, end=3, reward=0)]
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


def _pool_groups(rule: GroupRule) -> StepCredit:
    def credit(groups: Sequence[Sequence[JudgedResponse]]) -> list[list[FloatArray]]:
        return [_credit_group(group, rule) for group in groups]

    return credit


def _credit_group(group: Sequence[JudgedResponse], rule: GroupRule) -> list[FloatArray]:
    pool = [step.reward for steps, _ in group for step in steps]
    credits = iter(rule(pool) if len(pool) > 1 else [0.0] * len(pool))
    return [
        spread_over_tokens(response, [next(credits) for _ in response[0]]) for response in group
    ]


def _whiten_steps(groups: Sequence[Sequence[JudgedResponse]]) -> list[list[FloatArray]]:
    responses = [response for group in groups for response in group]
    raw = [
        spread_over_tokens(response, [step.reward for step in response[0]])
        for response in responses
    ]
    credits = iter(whiten(raw, [bool(steps) for steps, _ in responses]))
    return [[next(credits) for _ in group] for group in groups]


def _scaled_leave_one_out(pool: Sequence[float]) -> list[float]:
    return [LEAVE_ONE_OUT_SCALE * value for value in leave_one_out(pool)]


ONE_SIDED = 0.95
"""A verifier with the same verdict at least this often is one-sided..."""
GUESSING = 0.55
"""...unless its balanced accuracy is above this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Counts of (truth, verdict); an unreadable verdict is None and agrees with nothing."""

    counts: Counter[tuple[bool, bool | None]]

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def accuracy(self) -> float:
        return (self.counts[True, True] + self.counts[False, False]) / max(self.total, 1)

    @property
    def readable_fraction(self) -> float:
        """The fraction of verdicts that could be read."""
        return 1 - (self.counts[True, None] + self.counts[False, None]) / max(self.total, 1)

    @property
    def base_rate(self) -> float:
        """The fraction that is truly right."""
        return self._num_true(True) / max(self.total, 1)

    @property
    def positive_rate(self) -> float | None:
        """The fraction of readable verdicts that say right; None if there are none."""
        num_readable = self._num_verdicts(True) + self._num_verdicts(False)
        return self._num_verdicts(True) / num_readable if num_readable else None

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean of the recalls of right and wrong; None unless both occur."""
        if not self._num_true(True) or not self._num_true(False):
            return None
        return (self.recall(True) + self.recall(False)) / 2

    def precision(self, truth: bool) -> float:
        return self.counts[truth, truth] / max(self._num_verdicts(truth), 1)

    def recall(self, truth: bool) -> float:
        return self.counts[truth, truth] / max(self._num_true(truth), 1)

    def f1(self, truth: bool) -> float:
        """The harmonic mean of precision and recall."""
        return (
            2
            * self.counts[truth, truth]
            / max(self._num_verdicts(truth) + self._num_true(truth), 1)
        )

    @property
    def is_one_sided(self) -> bool:
        """Whether nearly all verdicts are the same and no better than a guess."""
        rate, accuracy = self.positive_rate, self.balanced_accuracy
        if rate is None:
            return True
        return max(rate, 1 - rate) >= ONE_SIDED and (accuracy is None or accuracy < GUESSING)

    def _num_true(self, truth: bool) -> int:
        return sum(count for (other, _), count in self.counts.items() if other is truth)

    def _num_verdicts(self, verdict: bool) -> int:
        return self.counts[True, verdict] + self.counts[False, verdict]


def count_agreement(pairs: Iterable[tuple[bool, bool | None]]) -> Agreement:
    """Count pairs of truth and verdict.

    >>> counted = count_agreement([(True, True), (True, True), (False, True), (False, False)])
    >>> counted.balanced_accuracy, counted.precision(False), round(counted.f1(False), 4)
    (0.75, 1.0, 0.6667)
    """
    return Agreement(counts=Counter(pairs))


def verifier_metrics(outcome: Agreement, steps: Agreement) -> dict[str, float]:
    """Name the figures of final verdicts, and of steps whose labels are known.

    Precision, recall and F1 of final verdicts are those of CORRECT, as in RL-Tango; of steps, those
    of finding a wrong one. Undefined figures, such as a balanced accuracy where all solutions are
    right, are left out.
    """
    figures: dict[str, float | None] = {
        "verifier/accuracy": outcome.accuracy,
        "verifier/balanced_accuracy": outcome.balanced_accuracy,
        "verifier/precision": outcome.precision(True),
        "verifier/recall": outcome.recall(True),
        "verifier/f1": outcome.f1(True),
        "verifier/says_correct": outcome.positive_rate,
        "verifier/base_rate": outcome.base_rate,
        "verifier/answered": outcome.readable_fraction,
        "verifier/step_f1": steps.f1(False) if steps.total else None,
        "verifier/step_balanced_accuracy": steps.balanced_accuracy,
    }
    return {name: value for name, value in figures.items() if value is not None}


BalanceRule = Literal["sqrt_inverse", "inverse"]
ClassCounts = dict[str, float]
"""Running counts of `correct` and `wrong` solutions; empty before the first batch."""
DECAY = 0.8


def class_weights(
    is_correct: Sequence[bool], running: ClassCounts, *, rule: BalanceRule = "sqrt_inverse"
) -> tuple[list[float], ClassCounts]:
    """Weigh responses of both kinds by the inverse of their running count; the mean is 1.

    The weights multiply advantages. The first batch starts the counts.

    >>> [round(weight, 4) for weight in class_weights([True, True, True, True, False], {})[0]]
    [0.8333, 0.8333, 0.8333, 0.8333, 1.6667]
    """
    if not is_correct:
        return [], running
    counts = {"correct": float(sum(is_correct)), "wrong": float(len(is_correct) - sum(is_correct))}
    running = {
        name: DECAY * running.get(name, count) + (1 - DECAY) * count
        for name, count in counts.items()
    }
    power = 0.5 if rule == "sqrt_inverse" else 1.0
    raw = [
        1 / (running["correct" if correct else "wrong"] ** power + EPSILON)
        for correct in is_correct
    ]
    mean = sum(raw) / len(raw)
    return [weight / mean for weight in raw], running
