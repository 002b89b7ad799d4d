"""Prove graders on problems and say what they get wrong: one line a failing row, and a last line
with counts."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from whet.commands.grade_file import MakeTask, make_known
from whet.data.problems import read_problems
from whet.errors import DataError, WhetError
from whet.grading.check_task import Failure, GraderReport, check_grader
from whet.grading.limits import Limits
from whet.tasks.base import Task
from whet.tasks.user_task import load_user_task
from whet.track.progress import bar, say
from whet.types import SPLITS, Problem

PER_SPLIT = 50
"""Problems of a task's own that are tried of each split."""


def check_task(
    task: Task, *, workers: int | None = None, per_split: int = PER_SPLIT
) -> GraderReport:
    """Try a grader on the task's own problems."""
    problems = [problem for split in SPLITS for problem in islice(task.problems(split), per_split)]
    return _shown(task, problems, workers)


def check_file(
    file: Path,
    *,
    make: MakeTask,
    workers: int | None = None,
    own: Sequence[str] = (),
    task: str | None = None,
) -> list[GraderReport]:
    """Try the graders of a file's problems on them, task by task; `task` leaves out the others."""
    found: dict[str, list[Problem]] = {}
    for problem in read_problems(file):
        if task in (None, problem.task):
            found.setdefault(problem.task, []).append(problem)
    if not found:
        raise DataError(f"{file} has no problems{f' of the task {task}' if task else ''}")
    tasks = {each.name: each for each in map(load_user_task, own)}
    for name in found.keys() - tasks.keys():
        try:
            tasks[name] = make_known(name, make)
        except WhetError as error:
            raise DataError(f"{file}: {error}") from error
    return [_shown(tasks[name], problems, workers) for name, problems in found.items()]


def _shown(task: Task, problems: Sequence[Problem], workers: int | None) -> GraderReport:
    with bar(task.name, 0) as advance:
        proof = check_grader(task, problems, limits=Limits(workers=workers), progress=advance)
    rows: dict[str, list[Failure]] = {}
    for failure in proof.failures:
        rows.setdefault(failure.problem.id, []).append(failure)
    for first, *rest in rows.values():
        say(f"{first}{f' (and {len(rest)} more)' if rest else ''}")
    say(f"{task.name}: {proof}")
    return proof
