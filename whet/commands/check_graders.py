"""Check the graders of tasks, and print each failure on a line, with counts."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from whet.commands.grade_file import MakeTask, make_tasks
from whet.data.problems import read_problems
from whet.errors import DataError
from whet.grading.check_task import GraderReport, GradingFailure, check_grader
from whet.grading.limits import GradingConfig
from whet.tasks.base import Task, list_problems
from whet.tasks.registry import TASKS, build_default_task
from whet.track.progress import progress_bar, say
from whet.types import SPLITS, Problem, Verdict

CHECKED = 5
"""Problems of each split that are tried where no file is given."""
EXAMPLES = Path(__file__).parents[1] / "tasks" / "examples.jsonl"
"""A few example problems for each task that generates none and needs no judge model."""


def check_graders(name: str | None, file: Path | None) -> None:
    """Check the grader of one task, of all, or of a file's problems; print failures and counts."""
    if file is not None:
        proofs = check_file(file, task=name)
    else:
        chosen = [build_default_task(task) for task in ([name] if name else TASKS)]
        proofs = [
            _check_and_print(task, problems, workers=None, is_only=name is not None)
            for task in chosen
            if (problems := _problems_to_try(task)) or name
        ]
    num_problems = sum(p.num_problems for p in proofs)
    responses = sum(p.num_responses for p in proofs)
    without = sum(p.num_without_gold for p in proofs)
    failures = sum(len(p.failures) for p in proofs)
    say(
        f"{num_problems:,} problems ({without:,} with no gold), {responses:,} responses graded, "
        f"{failures:,} failures"
    )
    raised = sum(_is_raised(failure) for p in proofs for failure in p.failures)
    if raised:
        others = f", and graded {failures - raised:,} wrongly" if failures > raised else ""
        raise DataError(f"the grader raised for {raised:,} responses{others}; see the lines above")
    if failures:
        raise DataError(f"{failures:,} responses were graded wrongly; the lines above name them")


def _problems_to_try(task: Task) -> list[Problem]:
    """Take the task's own problems, or its examples if it makes none."""
    problems = [
        problem for split in SPLITS for problem in islice(list_problems(task, split), CHECKED)
    ]
    return problems or [one for one in read_problems(EXAMPLES) if one.task == task.name]


def check_file(
    file: Path,
    *,
    task: str | None = None,
    workers: int | None = None,
    make: MakeTask = build_default_task,
) -> list[GraderReport]:
    """Check graders on the problems of a file, task by task; `task` selects one of them."""
    by_task: dict[str, list[Problem]] = {}
    for problem in read_problems(file):
        if task in (None, problem.task):
            by_task.setdefault(problem.task, []).append(problem)
    if not by_task:
        raise DataError(f"{file} has no problems{f' of the task {task}' if task else ''}")
    tasks = make_tasks(((str(file), name) for name in by_task), (), make)
    return [_check_and_print(tasks[name], problems, workers) for name, problems in by_task.items()]


def _check_and_print(
    task: Task, problems: Sequence[Problem], workers: int | None, *, is_only: bool = False
) -> GraderReport:
    with progress_bar(task.name, 0) as advance:
        proof = check_grader(task, problems, limits=GradingConfig(workers=workers), advance=advance)
    rows: dict[str, list[GradingFailure]] = {}
    for failure in proof.failures:
        error = failure.score.note.partition(":")[0]  # "the grader raised KeyError"
        key = error if _is_raised(failure) else failure.problem.id
        rows.setdefault(key, []).append(failure)
    for first, *rest in rows.values():
        like = " like this" if _is_raised(first) else ""
        say(f"{first}{f' (and {len(rest)} more{like})' if rest else ''}")
    if not is_only:
        say(f"{task.name}: {proof}")
    return proof


def _is_raised(failure: GradingFailure) -> bool:
    """Whether a user's grader raised an error, rather than gave a wrong verdict."""
    return failure.score.verdict is Verdict.UNSCORED
