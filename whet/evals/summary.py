"""The numbers of an evaluation: pass@k with intervals, by difficulty, and how responses ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import harmonic_mean

import numpy as np
from pydantic import TypeAdapter, ValidationError

from whet.errors import DataError
from whet.evals.stats import Estimate, fraction_estimate, mean_estimate, pass_at_k
from whet.level_bands import level_label
from whet.tasks.base import is_solvable
from whet.types import FinishReason, Group, Json, Problem, Rollout, Verdict

REPORTED_KS = (1, 4, 8, 16, 32, 64)
"""The k of pass@k that are reported, as far as there are samples."""
MUCH_CUT_OFF = 0.05
"""Fraction of cut responses from which reports and cards mention it."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class F1:
    """The harmonic mean of pass@1 on two halves, such as solutions with and without errors."""

    value: float
    halves: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSummary:
    """One evaluation. Unsolvable problems are counted apart; every other figure excludes them."""

    pass_at: Mapping[int, Estimate]
    """By k, those for which some problem has enough graded responses."""
    by_level: Mapping[str, Estimate]
    """pass@1 by fifth of difficulty, "1" (easiest) to "5", and "unknown"; without empty ones."""
    unsolvable: Estimate | None
    """Fraction of right answers to problems without a solution; None if there are none."""
    tokens: Estimate
    unfinished: Estimate
    """Fraction of responses cut at the length limit."""
    no_answer: Estimate
    """Fraction of responses with nothing to grade."""
    num_problems: int
    num_rollouts: int
    num_unscored: int
    """Responses the grader failed on, also to unsolvable problems; pass@k leaves them out."""
    f1: Mapping[str, F1] = field(default_factory=dict)
    """By subset, those whose problems declare two halves; ProcessBench's score."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """pass@1 of each problem by id, of a validation; an evaluation stores its responses."""

    def to_json(self) -> dict[str, Json]:
        row: dict[str, Json] = TypeAdapter(EvalSummary).dump_python(self, mode="json")
        return row

    @staticmethod
    def from_json(row: Mapping[str, Json]) -> "EvalSummary":
        try:
            return TypeAdapter(EvalSummary).validate_python(row)
        except ValidationError as error:
            reason = "{loc}: {msg}".format_map(error.errors()[0])
            raise DataError(f"not an evaluation summary ({reason}): {str(row)[:200]}") from error


def summarise(groups: Sequence[Group], ks: Sequence[int] = REPORTED_KS) -> EvalSummary:
    """Summarise graded groups; groups of the same problem count as one problem."""
    by_problem = list(_by_problem(groups).values())
    rollouts = [siblings for siblings in by_problem if is_solvable(siblings[0].problem)]
    unsolvable = [siblings for siblings in by_problem if not is_solvable(siblings[0].problem)]
    if not rollouts:
        raise DataError(
            "an evaluation needs solvable problems with responses; "
            f"these {len(groups)} groups have none"
        )

    def fraction(is_counted: Callable[[Rollout], bool]) -> Estimate:
        return fraction_estimate(_means(rollouts, is_counted))

    return EvalSummary(
        pass_at=_pass_at(rollouts, ks),
        by_level=_by_level(rollouts),
        unsolvable=_pass_at(unsolvable, [1]).get(1),
        tokens=mean_estimate(_means(rollouts, lambda r: len(r.completion.tokens))),
        unfinished=fraction(lambda r: r.completion.finish_reason is FinishReason.LENGTH),
        no_answer=fraction(lambda r: _verdict(r) is Verdict.NO_ANSWER),
        num_problems=len(rollouts),
        num_rollouts=sum(len(siblings) for siblings in rollouts),
        num_unscored=sum(
            _verdict(rollout) is Verdict.UNSCORED for group in groups for rollout in group
        ),
        f1=_f1(rollouts),
    )


def pass_rates(groups: Sequence[Group], k: int = 1) -> dict[str, float]:
    """Return each solvable problem's pass@k by id, for compare_paired.

    Problems with fewer than k graded responses are left out.
    """
    rates = {}
    for key, rollouts in _by_problem(groups).items():
        n, correct = _count_correct(rollouts)
        if n >= k and is_solvable(rollouts[0].problem):
            rates[key] = correct / n if k == 1 else pass_at_k(n, correct, k)
    return rates


def _by_problem(groups: Sequence[Group]) -> dict[str, list[Rollout]]:
    by_problem: dict[str, list[Rollout]] = {}
    for group in groups:
        for rollout in group:
            by_problem.setdefault(rollout.problem.id, []).append(rollout)
    return by_problem


def _verdict(rollout: Rollout) -> Verdict:
    return Verdict.UNSCORED if rollout.score is None else rollout.score.verdict


def _count_correct(rollouts: Sequence[Rollout]) -> tuple[int, int]:
    """Count the graded and the correct rollouts."""
    verdicts = [_verdict(rollout) for rollout in rollouts]
    num_graded = sum(verdict is not Verdict.UNSCORED for verdict in verdicts)
    return num_graded, sum(verdict is Verdict.CORRECT for verdict in verdicts)


def _means(problems: Sequence[Sequence[Rollout]], value: Callable[[Rollout], float]) -> list[float]:
    """Average a value over the responses to each problem."""
    return [float(np.mean([value(rollout) for rollout in rollouts])) for rollouts in problems]


def _pass_at(problems: Sequence[Sequence[Rollout]], ks: Sequence[int]) -> dict[int, Estimate]:
    counts = [_count_correct(rollouts) for rollouts in problems]
    rates = {k: [pass_at_k(n, correct, k) for n, correct in counts if n >= k] for k in ks}
    return {k: fraction_estimate(values) for k, values in rates.items() if values}


def _by_level(problems: Sequence[Sequence[Rollout]]) -> dict[str, Estimate]:
    levels: dict[str, list[Sequence[Rollout]]] = {}
    for rollouts in problems:
        levels.setdefault(level_label(rollouts[0].problem.level, unknown=UNKNOWN), []).append(
            rollouts
        )
    passes = {level: _pass_at(levels[level], [1]) for level in sorted(levels)}
    return {level: estimates[1] for level, estimates in passes.items() if estimates}


def _f1(problems: Sequence[Sequence[Rollout]]) -> dict[str, F1]:
    subsets: dict[str, dict[str, list[Sequence[Rollout]]]] = {}
    for rollouts in problems:
        if (declared := read_f1_half(rollouts[0].problem)) is not None:
            subset, half = declared
            subsets.setdefault(subset, {}).setdefault(half, []).append(rollouts)
    scores = {}
    for subset, halves in sorted(subsets.items()):
        passes = {half: _pass_at(halves[half], [1]).get(1) for half in sorted(halves)}
        graded = {half: estimate for half, estimate in passes.items() if estimate is not None}
        if len(graded) == 2:
            value = harmonic_mean([estimate.mean for estimate in graded.values()])
            scores[subset] = F1(value=value, halves=graded)
    return scores


def read_f1_half(problem: Problem) -> tuple[str, str] | None:
    """Read the subset and the half of a problem for which F1 is reported; None if undeclared.

    The payload declares `{"f1": {"subset": NAME, "half": NAME}}`, with two halves per subset.
    """
    declared = problem.payload.get("f1")
    if not isinstance(declared, dict):
        return None
    return str(declared.get("subset", "")), str(declared.get("half", ""))
