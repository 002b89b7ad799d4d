"""whet from a notebook: a task, its grader, and what a run has written.

    import whet
    task = whet.task("countdown")
    score = whet.grade(task, problem, text)
    run = whet.read_run("runs/game24/05-rl")

Everything here is offered by `import whet` and loaded on first use.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from whet.store.files import Row
from whet.store.rollouts import read_columns
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.registry import make_task
from whet.types import Problem, Score


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunTables:
    """A run as tables, which `.to_pandas()` turns into data frames."""

    metrics: pa.Table
    """One row per logged step; a metric that a step does not have is null."""
    rollouts: pa.Table
    """One row per answer: `step`, `kind` (train or eval), and the columns of the rollout files."""
    evals: dict[int, Row]
    """Every evaluation by its step."""


def task(name: str) -> Task:
    """Make a task by its name, such as "countdown", or a user's own by "file.py:Class"."""
    return make_task(name)


def grade(task: Task | str, problem: Problem, text: str) -> Score:
    """Grade one response in this process, without time or memory limits.

    Training grades in processes that can be killed; use this for texts you trust.
    """
    grader = make_task(task) if isinstance(task, str) else task
    return grader.score(problem, text)


def read_run(folder: str | Path) -> RunTables:
    """Read a run folder, also one that is still being written."""
    run = RunStore.view(Path(folder))
    rows = run.metrics()
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: pa.array([row.get(name) for row in rows], pa.float64()) for name in names}
    tables = []
    for kind in ("train", "eval"):
        for step in run.rollout_steps(kind):
            table = read_columns(run.rollout_file(kind, step))
            labels = pa.table({"step": [step] * len(table), "kind": [kind] * len(table)})
            for name in table.column_names:
                labels = labels.append_column(name, table.column(name))
            tables.append(labels)
    rollouts = pa.concat_tables(tables).unify_dictionaries() if tables else pa.table({})
    return RunTables(metrics=pa.table(columns), rollouts=rollouts, evals=run.evals())
