"""Import a data file: rows become problems, and rollouts where they hold answers.

Rows are streamed. A bad row stops the import.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from whet.data.importers.base import Answer, Draft
from whet.data.sources import Advance, Row, SourceRow, read_source
from whet.errors import DataError
from whet.store.files import replacing, write_rows
from whet.store.rollouts import write_rollouts
from whet.tasks.base import Task
from whet.tasks.registry import TASKS, make_task
from whet.types import Problem, Rollout, Score, Split, Verdict
from whet.user_code import is_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A row that is left out, and why."""

    place: str
    source_id: str
    reason: str


@dataclass(kw_only=True)
class Tally:
    """The counts of an import so far."""

    tasks: Counter[str] = field(default_factory=Counter)
    num_rollouts: int = 0
    num_repeats: int = 0
    first_repeat: str = ""
    unsupported: list[Unsupported] = field(default_factory=list)

    @property
    def num_problems(self) -> int:
        return self.tasks.total()


class Graders:
    """Try every problem on its task's grader, so that an unusable row is refused at once.

    A user's own task is not run.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def check(self, problem: Problem) -> None:
        name = problem.task
        if is_reference(name):
            return
        if name not in self._tasks and name not in TASKS:
            raise DataError(f"task {name!r} is not known; known are {', '.join(TASKS)}")
        if name not in self._tasks:
            self._tasks[name] = make_task(name)
        if problem.answer is not None or problem.payload:
            self._tasks[name].score(problem, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the rows of a file are read."""

    read: Callable[[Row], Draft]
    source: str
    default_split: Split
    split: Split | None
    """None takes it from the rows."""
    check: Callable[[Problem], None]
    """Raises a DataError for a problem that its task cannot grade."""


def import_rows(file: Path, out: Path, plan: Plan, *, advance: Advance | None = None) -> Tally:
    """Write the problems of a file to `out`, and next to it their answers and the rows left out.

    Everything is written, or nothing. A row that answers the problem of an earlier row adds to its
    answers.
    """
    tally = Tally()
    seen = dict[str, str]()
    answered = dict[str, list[Rollout]]()
    with replacing(out) as new:
        with new.open("wb") as lines:
            for row in read_source(file, advance=advance):
                problem, draft = _read(file, row, plan)
                if draft.unsupported is not None:
                    source_id = problem.source_id or ""
                    tally.unsupported.append(
                        Unsupported(place=row.place, source_id=source_id, reason=draft.unsupported)
                    )
                    continue
                if not (draft.answers and problem.id in answered):
                    lines.write(_line(file, row, problem))
                    _count(tally, problem, row.place, seen)
                if draft.answers:
                    _add_answers(answered.setdefault(problem.id, []), problem, draft.answers)
        if not tally.num_problems:
            raise DataError(_explain_empty(file, tally))
        if answered:
            write_rollouts(rollout_file(out), [tuple(rollouts) for rollouts in answered.values()])
        if tally.unsupported:
            write_rows(unsupported_file(out), map(asdict, tally.unsupported))
        tally.num_rollouts = sum(len(rollouts) for rollouts in answered.values())
    return tally


def rollout_file(out: Path) -> Path:
    """Return where the answers that come with problems are written."""
    return out.with_suffix(".rollouts.parquet")


def unsupported_file(out: Path) -> Path:
    """Return where the rows that are left out are listed."""
    return out.with_suffix(".unsupported.jsonl")


def _read(file: Path, row: SourceRow, plan: Plan) -> tuple[Problem, Draft]:
    place = f"{file.name}:{row.place.split()[-1]}"
    source = plan.source or file.name
    try:
        draft = plan.read(row.fields)
        problem = draft.to_problem(
            split=plan.default_split, override=plan.split, source=source, place=place
        )
        if draft.unsupported is None:
            plan.check(problem)
    except DataError as error:
        raise DataError(f"{file} {row.place}: {error}") from error
    except (UnicodeError, RecursionError) as error:
        raise DataError(_not_json(file, row, error)) from error
    return problem, draft


def _count(tally: Tally, problem: Problem, place: str, seen: dict[str, str]) -> None:
    """Add a problem; one that asks what an earlier row asks is a repeat."""
    tally.tasks[problem.task] += 1
    first = seen.setdefault(problem.id, place)
    if first is not place:
        tally.num_repeats += 1
        tally.first_repeat = tally.first_repeat or f"{place} repeats {first}"


def _explain_empty(file: Path, tally: Tally) -> str:
    if not tally.unsupported:
        return f"{file} has no rows"
    first = tally.unsupported[0]
    return f"{file} has no row that can be graded here; the first, {first.place}: {first.reason}"


def _line(file: Path, row: SourceRow, problem: Problem) -> bytes:
    """Write a problem as a line of strict JSON."""
    row_json = problem.to_json()
    try:
        text = json.dumps(row_json, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode() + b"\n"
    except (ValueError, RecursionError) as error:
        raise DataError(_not_json(file, row, error)) from error


def _not_json(file: Path, row: SourceRow, error: Exception) -> str:
    """Explain half of a surrogate pair, a number that is not finite, or too many brackets."""
    reason = str(error).split(":")[0]
    return (
        f"{file} {row.place} holds what cannot be written as JSON ({reason}): "
        "fix the row or leave it out"
    )


def _add_answers(rollouts: list[Rollout], problem: Problem, answers: Sequence[Answer]) -> None:
    """Add answers to those a problem has; all of them share one problem object."""
    problem = rollouts[0].problem if rollouts else problem
    for answer in answers:
        model = answer.model or problem.source
        score = None
        if answer.is_good is not None:
            verdict = Verdict.CORRECT if answer.is_good else Verdict.WRONG
            parts = {"correct": float(answer.is_good)}
            score = Score(verdict=verdict, parts=parts, note=answer.note)
        number = len(rollouts)
        rollouts.append(
            Rollout.from_text(problem, answer.text, model=model, number=number, score=score)
        )


def problems_in(file: Path) -> Iterator[Problem]:
    """Read a file of problems one at a time; a broken row is named by file and line."""
    for row in read_source(file):
        try:
            yield Problem.from_json(row.fields)
        except DataError as error:
            raise DataError(f"{file} {row.place}: {error}") from error
