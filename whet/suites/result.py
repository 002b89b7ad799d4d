"""A model's result on a benchmark: the metric of each problem, and figures by group."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, harmonic_mean

import numpy as np
from pydantic import TypeAdapter, ValidationError

from whet.errors import DataError
from whet.evals.stats import (
    Estimate,
    fraction_estimate,
    majority_at_k,
    mean_estimate,
    pass_at_k,
    wilson_interval,
)
from whet.evals.summary import F1, UNKNOWN, EvalSummary, read_f1_half
from whet.level_bands import level_label
from whet.store.response_ledger import StoredResponse
from whet.suites.benchmarks import LoadedBenchmark
from whet.suites.suite import Benchmark
from whet.tasks.answers import strip_wrapping
from whet.tasks.base import is_solvable
from whet.types import Group, Json, Problem, Rollout, Verdict

FEASIBLE = "feasible"
"""The part of a score that says whether a graph response keeps the rules of its problem."""
_NAME = re.compile(r"\A([A-Za-z]\w*)\s*=\s*(?=[^=]+\Z)")
_IN_BRACKETS = re.compile(r"\(([^(),]+)\)")
"""Brackets around one item, which are not a pair, an interval or a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """A model's result on a benchmark. No figure here includes problems without a solution."""

    model: str
    benchmark: str
    metric: str
    score: Estimate
    values: Mapping[str, float]
    """The metric of each problem, by its id; for f1, whether the answer was right."""
    by_task: Mapping[str, Estimate]
    by_source: Mapping[str, Estimate]
    by_level: Mapping[str, Estimate]
    """By fifth of difficulty, and "unknown"."""
    feasible: Estimate | None
    """Fraction of responses that keep the rules of their graph problem; None of other tasks."""
    hallucinated: Estimate | None
    """Fraction of responses that give an answer and break them."""
    f1: Mapping[str, F1]
    tokens: Estimate
    unfinished: Estimate
    """Fraction of responses cut at the length limit."""
    no_answer: Estimate
    num_answers: int
    """Responses; a result in a file has this name."""
    num_unscored: int
    num_failed: int
    """Requests that a server did not answer."""
    num_too_long: int
    """Problems left out because their prompt fills the model's context."""
    max_tokens: int
    f1_halves: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The subset and half of each problem, by its id; of other metrics than f1 empty."""

    def to_json(self) -> dict[str, Json]:
        row: dict[str, Json] = TypeAdapter(BenchmarkResult).dump_python(self, mode="json")
        return row

    @staticmethod
    def from_json(row: Json) -> "BenchmarkResult":
        try:
            return TypeAdapter(BenchmarkResult).validate_python(row)
        except ValidationError as error:
            raise DataError(f"not the result of a benchmark: {str(row)[:200]}") from error


def make_result(
    summary: EvalSummary,
    groups: Sequence[Group],
    *,
    model: str,
    loaded: LoadedBenchmark,
    num_failed: int,
    num_too_long: int,
) -> BenchmarkResult:
    """Compute the metric of every problem, and the means."""
    name, benchmark = loaded.name, loaded.benchmark
    solvable = [group for group in groups if group and is_solvable(group[0].problem)]
    values = {}
    for group in solvable:
        problem = group[0].problem
        value = metric_of(group, benchmark, has_one_answer=loaded.has_one_answer(problem))
        if value is not None:
            values[problem.id] = value
    if not values:
        raise DataError(
            f"{name}: no problem has {benchmark.k} graded responses of {model}, so there is no "
            "score"
        )
    problems = {group[0].problem.id: group[0].problem for group in solvable}
    feasible, hallucinated = _feasibility(solvable)
    is_f1 = benchmark.metric == "f1"
    halves = {id: half for id, problem in problems.items() if (half := read_f1_half(problem))}
    return BenchmarkResult(
        model=model,
        benchmark=name,
        metric=benchmark.label,
        score=_mean_f1(summary.f1, name) if is_f1 else fraction_estimate(list(values.values())),
        values=values,
        by_task=_by(values, problems, lambda problem: problem.task),
        by_source=_by(values, problems, lambda problem: problem.source or "unknown"),
        by_level=_by(values, problems, lambda problem: level_label(problem.level, unknown=UNKNOWN)),
        feasible=feasible,
        hallucinated=hallucinated,
        f1=summary.f1,
        tokens=summary.tokens,
        unfinished=summary.unfinished,
        no_answer=summary.no_answer,
        num_answers=summary.num_rollouts,
        num_unscored=summary.num_unscored,
        num_failed=num_failed,
        num_too_long=num_too_long,
        max_tokens=benchmark.sampling.max_tokens,
        f1_halves=halves if is_f1 else {},
    )


def metric_of(group: Group, benchmark: Benchmark, *, has_one_answer: bool = True) -> float | None:
    """Compute the metric of a problem; None if too few of its responses could be graded.

    Under `has_one_answer`, right answers vote together however they are spelled.
    """
    graded = [r for r in group if r.score is not None and r.score.verdict is not Verdict.UNSCORED]
    right = [r.score is not None and r.score.verdict is Verdict.CORRECT for r in graded]
    if len(graded) < benchmark.k:
        return None
    if benchmark.metric.startswith("maj"):
        answers = [r.score.answer if r.score is not None else None for r in graded]
        votes = _drop_markup(answers)
        if has_one_answer:
            votes = _merge_right(votes, right)
        return majority_at_k(votes, right, benchmark.k)
    return pass_at_k(len(graded), sum(right), benchmark.k)


def _drop_markup(answers: Sequence[str | None]) -> list[str | None]:
    """Drop what adds nothing to an answer: markup, and a name before `=` if all names are the same.

    Case and other brackets stay, since they may be all that two answers differ in.
    """
    bare = [None if answer is None else _bare(answer) for answer in answers]
    names = {match[1] for answer in bare if answer and (match := _NAME.match(answer))}
    if len(names) > 1:
        return bare
    return [None if answer is None else _bare(_NAME.sub("", answer)) for answer in bare]


def _bare(answer: str) -> str:
    bare = strip_wrapping(answer).removesuffix(".")
    inside = _IN_BRACKETS.fullmatch(bare)
    return (strip_wrapping(inside[1]) if inside else bare) or answer


def _merge_right(votes: Sequence[str | None], right: Sequence[bool]) -> list[str | None]:
    """Replace every right answer by the first of them."""
    pairs = zip(votes, right, strict=True)
    right_votes = [vote for vote, is_right in pairs if is_right and vote is not None]
    return [right_votes[0] if vote in right_votes else vote for vote in votes]


def with_token_counts(
    summary: EvalSummary, responses: Sequence[Sequence[StoredResponse]]
) -> EvalSummary:
    """Fill in response lengths from the ledger, because the rollouts hold text without tokens."""
    lengths = [
        fmean(response.tokens for response in siblings) for siblings in responses if siblings
    ]
    return replace(summary, tokens=mean_estimate(lengths))


def _by(
    values: Mapping[str, float], problems: Mapping[str, Problem], key: Callable[[Problem], str]
) -> dict[str, Estimate]:
    groups: dict[str, list[float]] = {}
    for id, value in values.items():
        groups.setdefault(key(problems[id]), []).append(value)
    return {name: fraction_estimate(groups[name]) for name in sorted(groups)}


def _feasibility(groups: Sequence[Group]) -> tuple[Estimate | None, Estimate | None]:
    """Estimate the fractions of responses that keep the rules, and that answer but break them."""

    def is_feasible(rollout: Rollout) -> bool:
        return rollout.score is not None and rollout.score.parts[FEASIBLE] == 1.0

    def is_hallucinated(rollout: Rollout) -> bool:
        has_answer = rollout.score is not None and rollout.score.verdict is not Verdict.NO_ANSWER
        return has_answer and not is_feasible(rollout)

    stated = [
        [r for r in group if r.score is not None and FEASIBLE in r.score.parts] for group in groups
    ]
    stated = [group for group in stated if group]
    if not stated:
        return None, None
    return (
        fraction_estimate([fmean(map(is_feasible, group)) for group in stated]),
        fraction_estimate([fmean(map(is_hallucinated, group)) for group in stated]),
    )


def _mean_f1(subsets: Mapping[str, F1], name: str) -> Estimate:
    """Average the F1 of the subsets, with an interval by the delta method over both halves."""
    if not subsets:
        raise DataError(f"{name}: f1 needs problems that declare two halves, and these do not")
    variance = 0.0
    count = 0
    for f1 in subsets.values():
        a, b = (half.mean for half in f1.halves.values())
        total = max(a + b, 1e-12)
        slopes = (2 * (b / total) ** 2, 2 * (a / total) ** 2)
        halves = [(half.high - half.low) / 2 for half in f1.halves.values()]
        variance += sum((slope * half) ** 2 for slope, half in zip(slopes, halves, strict=True))
        count += sum(half.count for half in f1.halves.values())
    means = [harmonic_mean([half.mean for half in f1.halves.values()]) for f1 in subsets.values()]
    mean = np.float64(fmean(means))
    if not 0 < mean < 1 or variance == 0:
        widths = [half.high - half.low for f1 in subsets.values() for half in f1.halves.values()]
        low, high = max(0.0, float(mean) - max(widths)), min(1.0, float(mean) + max(widths))
    else:
        ends = wilson_interval(mean, np.float64(variance / len(subsets) ** 2))
        low, high = float(ends[0]), float(ends[1])
    return Estimate(mean=float(mean), low=low, high=high, count=count)
