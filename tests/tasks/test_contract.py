"""Every task keeps the contract of tasks."""

import pytest

from whet.commands.grade_file import EXAMPLES
from whet.data.problems import read_problems
from whet.grading.check_task import check_grader
from whet.grading.limits import GradingConfig
from whet.tasks.registry import TASKS
from whet.tasks.task_config import build_task, read_task_config
from whet.testing.contracts import check_task
from whet.testing.fakes import SumTask
from whet.types import Problem, Score, Verdict


def test_the_made_up_task_keeps_the_contract() -> None:
    check_task(SumTask())


@pytest.mark.parametrize("name", TASKS)
def test_every_task_keeps_the_contract(name: str) -> None:
    few = {"count": 3} if "count" in type(read_task_config(name)).model_fields else {}

    check_task(build_task(read_task_config({"name": name, **few})), problems_per_split=3)


class Generous(SumTask):
    def score(self, problem: Problem, text: str) -> Score:
        return Score(verdict=Verdict.CORRECT, parts={})


def test_a_grader_that_likes_garbage_breaks_the_contract() -> None:
    with pytest.raises(AssertionError, match="is right for"):
        check_task(Generous())


EXAMPLE_ROWS = read_problems(EXAMPLES)


@pytest.mark.parametrize("name", sorted({problem.task for problem in EXAMPLE_ROWS}))
def test_every_grader_passes_the_check_on_the_examples_of_its_task(name: str) -> None:
    rows = [problem for problem in EXAMPLE_ROWS if problem.task == name][:2]
    task = build_task(read_task_config(name))

    assert check_grader(task, rows, limits=GradingConfig(workers=0)).failures == ()
