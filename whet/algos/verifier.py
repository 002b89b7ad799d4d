"""What a verifier is worth and how it learns both verdicts (Tango): agreement and class weights."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from whet.algos.advantages import State

ONE_SIDED = 0.95
"""A verifier that gives one verdict at least this often says one thing always..."""
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
    def readable_share(self) -> float:
        """The share of verdicts that could be read."""
        return 1 - (self.counts[True, None] + self.counts[False, None]) / max(self.total, 1)

    @property
    def base_rate(self) -> float:
        """The share that is truly right."""
        return self._truly(True) / max(self.total, 1)

    @property
    def says_right(self) -> float | None:
        """The share of readable verdicts that say right; None where there are none."""
        num_readable = self._num_verdicts(True) + self._num_verdicts(False)
        return self._num_verdicts(True) / num_readable if num_readable else None

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean of the shares among the right and the wrong; None unless both occur."""
        if not self._truly(True) or not self._truly(False):
            return None
        return (self.recall(True) + self.recall(False)) / 2

    def precision(self, kind: bool) -> float:
        return self.counts[kind, kind] / max(self._num_verdicts(kind), 1)

    def recall(self, kind: bool) -> float:
        return self.counts[kind, kind] / max(self._truly(kind), 1)

    def f1(self, kind: bool) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.counts[kind, kind] / max(self._num_verdicts(kind) + self._truly(kind), 1)

    @property
    def is_one_sided(self) -> bool:
        """Whether nearly all verdicts are the same and no better than a guess."""
        share, accuracy = self.says_right, self.balanced_accuracy
        if share is None:
            return True
        return max(share, 1 - share) >= ONE_SIDED and (accuracy is None or accuracy < GUESSING)

    def _truly(self, kind: bool) -> int:
        return sum(count for (truth, _), count in self.counts.items() if truth is kind)

    def _num_verdicts(self, kind: bool) -> int:
        return self.counts[True, kind] + self.counts[False, kind]


def agreement(pairs: Iterable[tuple[bool, bool | None]]) -> Agreement:
    """Count pairs of truth and verdict.

    >>> found = agreement([(True, True), (True, True), (False, True), (False, False)])
    >>> found.balanced_accuracy, found.precision(False), round(found.f1(False), 4)
    (0.75, 1.0, 0.6667)
    """
    return Agreement(counts=Counter(pairs))


def verifier_metrics(outcome: Agreement, steps: Agreement) -> dict[str, float]:
    """Name the figures of final verdicts, and of steps whose labels are known.

    Precision, recall and F1 of final verdicts are those of CORRECT, as in RL-Tango; of steps, those
    of finding a wrong one. What cannot be told, such as a balanced accuracy over solutions of one
    kind, is left out.
    """
    found: dict[str, float | None] = {
        "verifier/accuracy": outcome.accuracy,
        "verifier/balanced_accuracy": outcome.balanced_accuracy,
        "verifier/precision": outcome.precision(True),
        "verifier/recall": outcome.recall(True),
        "verifier/f1": outcome.f1(True),
        "verifier/says_correct": outcome.says_right,
        "verifier/base_rate": outcome.base_rate,
        "verifier/answered": outcome.readable_share,
        "verifier/step_f1": steps.f1(False) if steps.total else None,
        "verifier/step_balanced_accuracy": steps.balanced_accuracy,
    }
    return {name: value for name, value in found.items() if value is not None}


BalanceRule = Literal["sqrt_inverse", "inverse"]
DECAY = 0.8
EPSILON = 1e-6


def class_weights(
    is_correct: Sequence[bool], state: State, *, rule: BalanceRule = "sqrt_inverse"
) -> tuple[list[float], State]:
    """Weigh answers of both kinds by the inverse of their running count; the mean is 1.

    They multiply advantages. The first batch starts the counts.

    >>> [round(weight, 4) for weight in class_weights([True, True, True, True, False], {})[0]]
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
