"""`import whet` in a notebook: tasks, grading, and a run as tables."""

import subprocess
import sys
from pathlib import Path

import pytest

import whet
from whet.config import Config
from whet.errors import ConfigError, DataError
from whet.store.run import RunStore
from whet.testing.fakes import group
from whet.types import Verdict

HEAVY = ("torch", "numpy", "pydantic", "pyarrow")


def test_a_task_grades_its_own_solution_as_correct() -> None:
    task = whet.task("countdown")
    problem = next(iter(task.problems("dev")))
    text = task.solve(problem, 0)
    assert text is not None
    assert whet.grade(task, problem, text).verdict is Verdict.CORRECT
    assert whet.grade("countdown", problem, "I do not know.").verdict is not Verdict.CORRECT


def test_an_unknown_task_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"there is no task 'none'; known are .*countdown"):
        whet.task("none")


def test_a_run_is_read_as_tables(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, Config(), {}, resume=False) as run:
        run.log_metrics(1, {"loss": 0.5})
        run.log_metrics(2, {"loss": 0.25, "reward/mean": 1.0})
        run.write_rollouts("train", 1, [group([1.0, 0.0])])
        run.write_rollouts("train", 2, [group([0.5])])
        run.write_rollouts("eval", 2, [group([None])])
        run.write_eval(2, {"pass": 1})

    tables = whet.read_run(tmp_path)

    assert tables.metrics.to_pylist() == [
        {"step": 1.0, "loss": 0.5, "reward/mean": None},
        {"step": 2.0, "loss": 0.25, "reward/mean": 1.0},
    ]
    rows = tables.rollouts.select(["step", "kind", "reward", "text"]).to_pylist()
    assert [(row["step"], row["kind"], row["reward"]) for row in rows] == [
        (1, "train", 1.0),
        (1, "train", 0.0),
        (2, "train", 0.5),
        (2, "eval", None),
    ]
    assert tables.evals == {2: {"pass": 1}}


def test_a_run_without_steps_has_empty_tables(tmp_path: Path) -> None:
    RunStore.open(tmp_path, Config(), {}, resume=False).close()
    tables = whet.read_run(str(tmp_path))
    assert (len(tables.metrics), len(tables.rollouts), tables.evals) == (0, 0, {})


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no run"):
        whet.read_run(tmp_path)


def test_importing_whet_loads_nothing_heavy_and_knows_no_other_names() -> None:
    script = f"import sys, whet; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'sharpen'"):
        whet.sharpen  # noqa: B018
