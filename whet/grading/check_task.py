"""Prove a grader on its own data: gold is right, and what only looks like an answer is not.

A variant is not held against the grader where it is the gold answer by chance, and the task itself
is asked whether it is: it reads the same answer there (`Score.answer`) as in the gold, or a number
equal to it, so that `12.0` for `12` is no finding. Another row's gold is not tried where it reads
the same; where it is right and reads differently, as 1/2 and 0.5, it is chance if the two golds are
right for each other's problems, or if the task has many right answers. Chance is rare: for random
text, prompts and other rows' golds it is no excuse once more than a fifth of them are right. Empty,
huge and verdict-quoting texts have none at all.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from whet.errors import DataError
from whet.grading.grader import Grader
from whet.grading.limits import Limits
from whet.grading.variants import Variant, empty_words, number, variants_of
from whet.grading.worker import unscored
from whet.rng import stream
from whet.tasks.base import Task
from whet.types import Problem, Score, Verdict

NUM_OTHERS = 3
"""Golds of other rows that are tried on each row."""
NUM_NEARBY = 30
NUM_HUGE_ROWS = 4
"""A million characters are tried on this many rows only: one costs as much as hundreds of
others."""
RARE = 0.2
EXCUSED = (
    Variant.TRUNCATED,
    Variant.SHIFTED,
    Variant.DOUBLED,
    Variant.OUTSIDE,
    Variant.ECHO,
    Variant.RANDOM,
)
SELDOM = (Variant.OTHER, Variant.ECHO, Variant.RANDOM)

Progress = Callable[[int], None]
"""Told how many responses have just been graded."""
FIRST_ROWS = 8
"""Problems that a grader is tried on before training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One response that a grader got wrong: the problem, the kind of response, its text, and what
    was said of it."""

    problem: Problem
    variant: Variant
    text: str
    score: Score

    def __str__(self) -> str:
        row = f" (row {self.problem.source_id})" if self.problem.source_id else ""
        text = repr(
            self.text
            if len(self.text) <= 80
            else f"{self.text[:60]}… {len(self.text):,} characters"
        )
        note = f": {self.score.note}" if self.score.note else ""
        return f"{self.problem.id}{row}: {self.variant} {text} is graded {self.score.verdict}{note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a check found: problems tried, those without a gold answer, responses graded, and the
    failures."""

    num_problems: int
    num_without_gold: int
    num_responses: int
    failures: tuple[Failure, ...]

    def __str__(self) -> str:
        rows = len({failure.problem.id for failure in self.failures})
        num = len(self.failures)
        found = (
            f"{num:,} failure{'s' if num > 1 else ''} in {rows:,} of them" if rows else "no failure"
        )
        gold = f", {self.num_without_gold:,} with no gold" if self.num_without_gold else ""
        return f"{self.num_problems:,} problems{gold}, {self.num_responses:,} responses graded: {found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    row: int
    variant: Variant
    text: str
    other: int | None = None
    """The row whose gold it is."""


def check(
    task: Task, problems: Sequence[Problem], *, limits: Limits | None = None, seed: int = 0
) -> list[Failure]:
    """Try a task's grader on problems and list what it gets wrong."""
    return list(prove(task, problems, limits=limits, seed=seed).failures)


def prove(
    task: Task,
    problems: Sequence[Problem],
    *,
    limits: Limits | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Proof:
    """Try a task's grader on problems; failures come in the order of the problems."""
    patient = (limits or Limits()).model_copy(update={"unscored_share": 1.0})
    with Grader(task, patient) as grader:

        def graded(trials: Sequence[_Trial]) -> list[Score]:
            scores: dict[int, Score] = {}
            answers = (
                (index, problems[trial.row], trial.text) for index, trial in enumerate(trials)
            )
            for index, score in grader.grade(answers):
                scores[index] = score
                if progress is not None:
                    progress(1)
            return [scores[index] for index in range(len(trials))]

        golds, broken = _golds(task, problems, seed)
        read = dict(zip(golds, graded(list(golds.values())), strict=True))
        trials = [*golds.values(), *_trials(problems, golds, read, seed)]
        scores = [*read.values(), *graded(trials[len(golds) :])]
        found = list(zip(trials, scores, strict=True))
        swapped = [
            trial
            for trial, score in found
            if trial.other is not None and score.verdict is Verdict.CORRECT
        ]
        back = graded(
            [
                _Trial(row=_other(trial), variant=Variant.OTHER, text=golds[trial.row].text)
                for trial in swapped
            ]
        )
    mutual = {
        trial
        for trial, score in zip(swapped, back, strict=True)
        if score.verdict is Verdict.CORRECT
    }
    faults = [*broken, *_faults(task, found, golds, read, mutual)]
    return Proof(
        num_problems=len(problems),
        num_without_gold=len(problems) - len(golds) - len(broken),
        num_responses=len(trials) + len(back),
        failures=tuple(
            Failure(
                problem=problems[trial.row], variant=trial.variant, text=trial.text, score=score
            )
            for trial, score in sorted(faults, key=lambda fault: fault[0].row)
        ),
    )


_Found = tuple[_Trial, Score]


def _golds(
    task: Task, problems: Sequence[Problem], seed: int
) -> tuple[dict[int, _Trial], list[_Found]]:
    """Have the task answer each problem; one it cannot read is a fault already."""
    golds: dict[int, _Trial] = {}
    broken: list[_Found] = []
    for row, problem in enumerate(problems):
        try:
            text = task.solve(problem, seed)
        except DataError as error:
            broken.append((_Trial(row=row, variant=Variant.GOLD, text=""), unscored(str(error))))
            continue
        if text is not None:
            golds[row] = _Trial(row=row, variant=Variant.GOLD, text=text)
    return golds, broken


def _trials(
    problems: Sequence[Problem], golds: Mapping[int, _Trial], read: Mapping[int, Score], seed: int
) -> Iterator[_Trial]:
    """List what to try on each row, every text once."""
    rows = list(golds)
    places = {row: place for place, row in enumerate(rows)}
    for row, problem in enumerate(problems):
        tried = {golds[row].text} if row in golds else set()
        made = empty_words(problem, stream(seed, "check", row), with_huge=row < NUM_HUGE_ROWS)
        spoiled = variants_of(golds[row].text, read[row].answer) if row in golds else ()
        for variant, text in (*made, *spoiled):
            if text not in tried:
                tried.add(text)
                yield _Trial(row=row, variant=variant, text=text)
        nearby = (
            (
                *rows[places[row] + 1 : places[row] + NUM_NEARBY],
                *rows[: min(places[row], NUM_NEARBY)],
            )
            if row in golds
            else ()
        )
        for other in _others(row, nearby, problems, golds, read):
            yield _Trial(row=row, variant=Variant.OTHER, text=golds[other].text, other=other)


def _others(
    row: int,
    nearby: Sequence[int],
    problems: Sequence[Problem],
    golds: Mapping[int, _Trial],
    read: Mapping[int, Score],
) -> list[int]:
    """Find a few rows whose golds are another answer than this row's."""
    others = (
        other
        for other in nearby
        if problems[other].id != problems[row].id
        and golds[other].text != golds[row].text
        and not _is_same(read[other].answer, read[row].answer)
    )
    return list(islice(others, NUM_OTHERS))


def _faults(
    task: Task,
    found: Sequence[_Found],
    golds: Mapping[int, _Trial],
    read: Mapping[int, Score],
    mutual: set[_Trial],
) -> Iterator[_Found]:
    tried = Counter(trial.variant for trial, _ in found)
    right = Counter(trial.variant for trial, score in found if score.verdict is Verdict.CORRECT)
    is_common = {variant: right[variant] > max(2, RARE * tried[variant]) for variant in SELDOM}
    for trial, score in found:
        is_right = score.verdict is Verdict.CORRECT
        if score.verdict is Verdict.UNSCORED:
            if trial.row in golds:  # a grader may say that it cannot grade what has no reference
                yield trial, score
        elif (score.parts.get("correct", 0.0) == 1.0) != is_right:
            yield trial, score
        elif trial.variant is Variant.GOLD:
            if not is_right:
                yield trial, score
        elif is_right and (
            is_common.get(trial.variant, False)
            or not _is_excused(task, trial, score, golds, read, mutual)
        ):
            yield trial, score


def _is_excused(
    task: Task,
    trial: _Trial,
    score: Score,
    golds: Mapping[int, _Trial],
    read: Mapping[int, Score],
    mutual: set[_Trial],
) -> bool:
    """A right variant is excused where it is the gold answer by chance."""
    if trial.variant is Variant.OTHER:
        return trial in mutual or not task.has_one_answer
    if trial.row not in golds:
        return False
    if trial.variant is Variant.VERDICT:
        return _is_same(trial.text, golds[trial.row].text)
    return trial.variant in EXCUSED and _is_same(score.answer, read[trial.row].answer)


def _is_same(a: str | None, b: str | None) -> bool:
    if a is None or b is None:
        return False
    value = number(a)
    return "".join(a.split()).casefold() == "".join(b.split()).casefold() or (
        value is not None and value == number(b)
    )


def _other(trial: _Trial) -> int:
    assert trial.other is not None, "only another row's gold is swapped"
    return trial.other


def check_first(task: Task, problems: Sequence[Problem], limits: Limits | None = None) -> None:
    """Stop before training where the grader fails on the first problems."""
    if failures := prove(task, problems[:FIRST_ROWS], limits=limits).failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise DataError(f"the grader of {task.name} fails on its own data{more}: {failures[0]}")
