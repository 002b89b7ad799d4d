"""From the rows of a file to problems, and to rollouts where rows hold answers. Streamed; a bad row
stops it all."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from whet.data.importers.base import Answer, Draft, Fields, finished
from whet.data.sources import Advance, SourceRow, read_source
from whet.errors import DataError
from whet.store.files import replacing, write_rows
from whet.store.rollouts import write_rollouts
from whet.tasks.base import Task
from whet.tasks.registry import named, names
from whet.tasks.user_task import is_own
from whet.types import Completion, Finish, Problem, Role, Rollout, Score, Split, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A row that is left out, and why."""

    place: str
    source_id: str
    reason: str


@dataclass(kw_only=True)
class Tally:
    """What an import has come to so far."""

    tasks: Counter[str] = field(default_factory=Counter)
    num_rollouts: int = 0
    num_repeats: int = 0
    first_repeat: str = ""
    unsupported: list[Unsupported] = field(default_factory=list)

    @property
    def num_problems(self) -> int:
        return self.tasks.total()


class Graders:
    """Tries every problem on its task's grader, so that a row it cannot use is refused now and not
    at the first reward.

    A user's own task is left alone.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def check(self, problem: Problem) -> None:
        name = problem.task
        if is_own(name):
            return
        if name not in self._tasks and name not in names():
            raise DataError(f"task {name!r} is not known; known are {', '.join(names())}")
        if name not in self._tasks:
            self._tasks[name] = named(name)
        if problem.answer is not None or problem.payload:
            self._tasks[name].score(problem, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the rows of a file are read: by which function, under which name, for which split, for
    which tasks."""

    read: Callable[[Fields], Draft]
    source: str
    default_split: Split
    split: Split | None
    """None leaves it to the rows."""
    check: Callable[[Problem], None]
    """Refuses a problem that its task could not grade, with a DataError."""


def import_rows(file: Path, out: Path, plan: Plan, *, advance: Advance | None = None) -> Tally:
    """Write the problems of a file to `out`, and beside it the answers that came with them and the
    rows left out.

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
                    left = Unsupported(
                        place=row.place, source_id=problem.source_id or "", reason=draft.unsupported
                    )
                    tally.unsupported.append(left)
                    continue
                if not (draft.answers and problem.id in answered):
                    lines.write(_line(file, row, problem))
                    _count(tally, problem, row.place, seen)
                if draft.answers:
                    _answer(answered.setdefault(problem.id, []), problem, draft.answers)
        if not tally.num_problems:
            raise DataError(
                f"{file} has no rows" if not tally.unsupported else _none_left(file, tally)
            )
        tally.num_rollouts = _write_beside(out, tally, answered)
    return tally


def _write_beside(out: Path, tally: Tally, answered: dict[str, list[Rollout]]) -> int:
    """Write answers and the list of rows left out, where there are any; count the answers."""
    if answered:
        write_rollouts(rollout_file(out), [tuple(rollouts) for rollouts in answered.values()])
    if tally.unsupported:
        rows = (
            {"place": row.place, "source_id": row.source_id, "reason": row.reason}
            for row in tally.unsupported
        )
        write_rows(unsupported_file(out), rows)
    return sum(len(rollouts) for rollouts in answered.values())


def rollout_file(out: Path) -> Path:
    """Where the answers that came with problems are written."""
    return out.with_suffix(".rollouts.parquet")


def unsupported_file(out: Path) -> Path:
    """Where the rows that were left out are listed."""
    return out.with_suffix(".unsupported.jsonl")


def _read(file: Path, row: SourceRow, plan: Plan) -> tuple[Problem, Draft]:
    place = f"{file.name}:{row.place.split()[-1]}"
    source = plan.source or file.name
    try:
        draft = plan.read(row.fields)
        problem = finished(
            draft, split=plan.default_split, override=plan.split, source=source, place=place
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


def _none_left(file: Path, tally: Tally) -> str:
    first = tally.unsupported[0]
    return f"{file} has no row that can be graded here; the first, {first.place}: {first.reason}"


def _line(file: Path, row: SourceRow, problem: Problem) -> bytes:
    """Write a problem, if it is JSON that others can read too."""
    try:
        return (
            json.dumps(
                problem.to_json(), ensure_ascii=False, allow_nan=False, separators=(",", ":")
            ).encode()
            + b"\n"
        )
    except (ValueError, RecursionError) as error:
        raise DataError(_not_json(file, row, error)) from error


def _not_json(file: Path, row: SourceRow, error: Exception) -> str:
    """Say that a row holds half of a surrogate pair, a number that is not finite, or too many
    brackets."""
    reason = str(error).split(":")[0]
    return f"{file} {row.place} holds what cannot be written as JSON ({reason}): mend the row or leave it out"


def _answer(rollouts: list[Rollout], problem: Problem, answers: Sequence[Answer]) -> None:
    """Add answers to those a problem has; all of them hold the same problem."""
    problem = rollouts[0].problem if rollouts else problem
    for answer in answers:
        rollouts.append(_rollout(problem, answer, len(rollouts)))


def _rollout(problem: Problem, answer: Answer, number: int) -> Rollout:
    nothing = np.zeros(0, dtype=np.int32)
    written = Completion(
        tokens=nothing, logprobs=nothing.astype(np.float32), finish=Finish.STOP, version=0
    )
    return Rollout(
        id=f"{problem.id}:{number}",
        group=problem.id,
        problem=problem,
        role=Role.TEACHER,
        model=answer.model or problem.source,
        prompt_tokens=nothing,
        completion=written,
        text=answer.text,
        score=None if answer.is_good is None else _said(answer.is_good, answer.note),
    )


def _said(is_good: bool, note: str) -> Score:
    verdict = Verdict.CORRECT if is_good else Verdict.WRONG
    return Score(verdict=verdict, parts={"correct": float(is_good)}, note=note)


def problems_in(file: Path) -> Iterator[Problem]:
    """Read a file of problems one at a time; a broken row is named by file and line."""
    for row in read_source(file):
        try:
            yield Problem.from_json(row.fields)
        except DataError as error:
            raise DataError(f"{file} {row.place}: {error}") from error
