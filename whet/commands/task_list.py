"""List tasks, and check their graders on their own data."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from rich.markup import escape
from rich.table import Column, Table

from whet.commands.grade_file import MakeTask, make_tasks
from whet.data.problems import read_problems
from whet.errors import DataError
from whet.grading.check_task import Failure, GraderReport, check_grader
from whet.grading.limits import Limits
from whet.tasks.base import Task, list_problems
from whet.tasks.code.sandbox import describe
from whet.tasks.generated import Generator
from whet.tasks.registry import TASKS, make_task
from whet.track.progress import bar, printer, say
from whet.types import SPLITS, Problem

CHECKED = 5
"""Problems of each split that are tried where no file is given."""
NUM_LISTED = 20
"""Problems looked at of a task that can make any number of them."""


def list_tasks() -> None:
    """Print every task with how many problems it makes itself, their levels, and an example."""
    widths = {
        "task": max(map(len, TASKS)),
        "problems": len("any number"),
        "levels": len("0.0 to 1.0"),
    }
    columns = [Column(name, no_wrap=True, min_width=width) for name, width in widths.items()]
    table = Table(
        *columns, Column("example", no_wrap=True, overflow="ellipsis"), box=None, pad_edge=False
    )
    for name in TASKS:
        task = make_task(name)
        problems = list(_own_problems(task, NUM_LISTED if isinstance(task, Generator) else None))
        levels = sorted(problem.level for problem in problems if problem.level is not None)
        span = f"{levels[0]:.1f} to {levels[-1]:.1f}" if levels else ""
        count = f"{len(problems):,}" if problems else ""
        example = problems[0].prompt[-1].content if problems else "from files: whet data import"
        table.add_row(
            name,
            "any number" if isinstance(task, Generator) else count,
            span,
            escape(" ".join(example.split())[:60]),
        )
    printer.print(table)
    say(describe())


def check_tasks(name: str | None, file: Path | None) -> None:
    """Check the grader of one task, of all that make problems, or of a file's problems; print
    failures and counts."""
    if file is not None:
        proofs = check_file(file, task=name)
    else:
        chosen = [make_task(task) for task in ([name] if name else TASKS)]
        proofs = [check_task(task) for task in chosen if name or next(_own_problems(task, 1), None)]
    problems = sum(p.num_problems for p in proofs)
    responses = sum(p.num_responses for p in proofs)
    without = sum(p.num_without_gold for p in proofs)
    failures = sum(len(p.failures) for p in proofs)
    say(
        f"{problems:,} problems ({without:,} with no gold), {responses:,} responses graded, "
        f"{failures:,} failures"
    )
    if failures:
        raise DataError(f"{failures:,} responses were graded wrongly; the lines above name them")


def check_task(task: Task, *, workers: int | None = None, per_split: int = CHECKED) -> GraderReport:
    """Try a grader on the task's own problems."""
    problems = [
        problem for split in SPLITS for problem in islice(list_problems(task, split), per_split)
    ]
    return _check_and_print(task, problems, workers)


def check_file(
    file: Path,
    *,
    task: str | None = None,
    workers: int | None = None,
    make: MakeTask = make_task,
) -> list[GraderReport]:
    """Try the graders of a file's problems on them, task by task; `task` leaves out the others."""
    by_task: dict[str, list[Problem]] = {}
    for problem in read_problems(file):
        if task in (None, problem.task):
            by_task.setdefault(problem.task, []).append(problem)
    if not by_task:
        raise DataError(f"{file} has no problems{f' of the task {task}' if task else ''}")
    tasks = make_tasks(((str(file), name) for name in by_task), (), make)
    return [_check_and_print(tasks[name], problems, workers) for name, problems in by_task.items()]


def _check_and_print(task: Task, problems: Sequence[Problem], workers: int | None) -> GraderReport:
    with bar(task.name, 0) as advance:
        proof = check_grader(task, problems, limits=Limits(workers=workers), progress=advance)
    rows: dict[str, list[Failure]] = {}
    for failure in proof.failures:
        rows.setdefault(failure.problem.id, []).append(failure)
    for first, *rest in rows.values():
        say(f"{first}{f' (and {len(rest)} more)' if rest else ''}")
    say(f"{task.name}: {proof}")
    return proof


def _own_problems(task: Task, count: int | None) -> Iterator[Problem]:
    """Take problems that a task lists itself, evenly from its splits; all of them for None."""
    for split in SPLITS:
        yield from islice(
            list_problems(task, split), None if count is None else max(1, count // len(SPLITS))
        )
