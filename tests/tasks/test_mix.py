"""Several tasks as one: their problems in turn, each graded by its own, in this process and in
others."""

from dataclasses import replace
from itertools import islice

import pytest

from whet.errors import DataError
from whet.grading.grader import Grader
from whet.grading.limits import GradingConfig
from whet.tasks.registry import Mix
from whet.tasks.task_config import build_task, read_task_config
from whet.testing.contracts import check_task
from whet.types import Verdict

TWO = {"name": "mix", "tasks": ["game24", {"name": "reverse", "count": 2}]}


def mix() -> Mix:
    task = build_task(read_task_config(TWO))
    assert isinstance(task, Mix)
    return task


def test_problems_come_in_turn_and_a_part_that_has_no_more_ends_earlier() -> None:
    names = [problem.task for problem in islice(mix().problems("dev"), 6)]

    assert names == ["game24", "reverse", "game24", "reverse", "game24", "game24"]


def test_each_part_answers_for_its_own_problems() -> None:
    task, (hand, text) = mix(), islice(mix().problems("dev"), 2)

    assert task.vary(hand, 1).id == hand.id and task.vary(text, 1) == text
    assert task.solve(text, 0) == build_task(read_task_config("reverse")).solve(text, 0)
    assert [note.is_right for note in task.comment(hand, "1 + 1 = 3")] == [False]
    asked = task.parse_question("4 6 8 1")
    assert asked is not None and asked.task == "game24"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_grader_takes_a_mix_apart(workers: int) -> None:
    task, problems = mix(), list(islice(mix().problems("dev"), 4))

    with Grader(task, GradingConfig(workers=workers)) as grader:
        right = dict(grader.grade((p.id, p, task.solve(p, 0) or "") for p in problems))
        wrong = dict(grader.grade((p.id, p, "nothing") for p in problems))

    assert {score.verdict for score in right.values()} == {Verdict.CORRECT}
    assert Verdict.CORRECT not in {score.verdict for score in wrong.values()}


def test_a_problem_of_no_part_is_named_with_the_parts() -> None:
    stranger = replace(next(iter(mix().problems("dev"))), task="zebra")

    with pytest.raises(DataError, match=r"of the task 'zebra', and the mix has game24, reverse"):
        mix().score(stranger, "")


def test_a_part_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="reverse is in the mix twice"):
        read_task_config({"name": "mix", "tasks": ["reverse", {"name": "reverse", "count": 3}]})


def test_the_parts_of_a_mix_keep_the_contract_that_they_keep_alone() -> None:
    for subtask in mix().subtasks:
        check_task(subtask, problems_per_split=2)
