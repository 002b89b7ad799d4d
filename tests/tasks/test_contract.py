"""Every task keeps the contract of tasks."""

import pytest

from whet.tasks.base import Task
from whet.tasks.registry import TaskConfig, build
from whet.testing.contracts import check_task
from whet.testing.fakes import SumTask
from whet.types import Problem, Score, Verdict


def test_the_made_up_task_keeps_the_contract() -> None:
    check_task(SumTask())


def test_the_game_of_24_keeps_the_contract() -> None:
    task: Task = build(TaskConfig())

    check_task(task, problems_per_split=10)


class Generous(SumTask):
    def score(self, problem: Problem, text: str) -> Score:
        return Score(verdict=Verdict.CORRECT, parts={})


def test_a_grader_that_likes_garbage_breaks_the_contract() -> None:
    with pytest.raises(AssertionError, match="is right for"):
        check_task(Generous())
