"""A verifier's agreement with the truth, and class weights that balance its training."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from whet.algos.advantages import EPSILON
from whet.types import Metrics

ONE_SIDED_RATE = 0.95
"""A verifier with the same verdict at least this often is one-sided..."""
GUESSING_ACCURACY = 0.55
"""...unless its balanced accuracy is above this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Counts of (truth, verdict) pairs; an unreadable verdict is None and counts as wrong."""

    counts: Counter[tuple[bool, bool | None]]

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def accuracy(self) -> float:
        return (self.counts[True, True] + self.counts[False, False]) / max(self.total, 1)

    @property
    def readable_fraction(self) -> float:
        """The fraction of readable verdicts."""
        return 1 - (self.counts[True, None] + self.counts[False, None]) / max(self.total, 1)

    @property
    def base_rate(self) -> float:
        """The fraction of truths that are right."""
        return self._num_true(True) / max(self.total, 1)

    @property
    def positive_rate(self) -> float | None:
        """The fraction of readable verdicts that say right; None if no verdict is readable."""
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
        """Whether nearly all verdicts are equal and no better than guessing."""
        rate, accuracy = self.positive_rate, self.balanced_accuracy
        if rate is None:
            return True
        return max(rate, 1 - rate) >= ONE_SIDED_RATE and (
            accuracy is None or accuracy < GUESSING_ACCURACY
        )

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


def verifier_metrics(outcome: Agreement, steps: Agreement) -> Metrics:
    """List the metrics of final verdicts, and of steps with known labels.

    For final verdicts, CORRECT is the positive class of precision, recall and F1, as in RL-Tango;
    for steps it is a wrong step. Undefined metrics are left out, such as the balanced accuracy if
    all solutions are right.
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
_DECAY = 0.8


def class_weights(
    is_correct: Sequence[bool], running: ClassCounts, *, rule: BalanceRule = "sqrt_inverse"
) -> tuple[list[float], ClassCounts]:
    """Weigh responses by the inverse of their class's running count; the mean is 1.

    The weights multiply advantages. The first batch starts the counts.

    >>> [round(weight, 4) for weight in class_weights([True, True, True, True, False], {})[0]]
    [0.8333, 0.8333, 0.8333, 0.8333, 1.6667]
    """
    if not is_correct:
        return [], running
    counts = {"correct": float(sum(is_correct)), "wrong": float(len(is_correct) - sum(is_correct))}
    running = {
        name: _DECAY * running.get(name, count) + (1 - _DECAY) * count
        for name, count in counts.items()
    }
    power = 0.5 if rule == "sqrt_inverse" else 1.0
    raw = [
        1 / (running["correct" if correct else "wrong"] ** power + EPSILON)
        for correct in is_correct
    ]
    mean = sum(raw) / len(raw)
    return [weight / mean for weight in raw], running
