"""Countdown: exact values, the numbers as asked, and nothing that is not arithmetic."""

import pytest

from whet.errors import DataError
from whet.tasks.warmup.countdown import Countdown, CountdownConfig, Use, search
from whet.types import Json, Message, Problem, Verdict


def asked(
    numbers: list[Json], target: Json, use: Use | None = None, answer: str | None = None
) -> Problem:
    payload: dict[str, Json] = {"numbers": numbers, "target": target} | (
        {} if use is None else {"use": use}
    )
    prompt = (Message(role="user", content="?"),)
    return Problem(
        id="c/0",
        task="countdown",
        prompt=prompt,
        answer=answer,
        payload=payload,
        level=None,
        split="rl",
        source="",
    )


def graded(response: str, use: Use = "all") -> Verdict:
    return Countdown().score(asked([3, 8, 8, 3], 24, use), response).verdict


@pytest.mark.parametrize(
    "answer",
    [
        "8 / (3 - 8/3)",
        "8/(3-8/3) = 24",
        "$8 \\div (3 - 8 \\div 3)$",
        "8 ÷ (3 − 8 ÷ 3)",
        "\\boxed{8 / (3 - 8 / 3) = 24}",
    ],
)
def test_an_expression_that_reaches_the_target_exactly_is_right(answer: str) -> None:
    assert graded(f"<answer>{answer}</answer>") is Verdict.CORRECT


@pytest.mark.parametrize(
    "answer",
    [
        "3 * 8",
        "8 * 3 + 8 - 8",
        "(8 + 8) * 3 / 2",
        "24",
        "8 * 3 * (8 - 3) / 5",
        "8 + 8 + 3 + 3",
        "38 - 8 - 3 - 3",
        "8 / (3 - 8 / 3) + 0",
        "8/(3-3)*8*3",
    ],
)
def test_other_values_and_other_numbers_are_wrong(answer: str) -> None:
    assert graded(f"<answer>{answer}</answer>") is Verdict.WRONG


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "8 / (3 - 8/3",
        "8 ** 3 // 8 + 3",
        "8 / (3 - 8/3) = 25",
        "24 # 3 8 8 3",
        "int('24') # 3 8 8 3",
        "__import__('os').getpid() * 0 + 24",
        "8!/3!",
        "x + 8",
        "8 / (3 - 2.6666666666666667)",
    ],
)
def test_what_is_no_arithmetic_is_no_answer_and_is_never_run(answer: str) -> None:
    assert graded(f"<answer>{answer}</answer>") is Verdict.NO_ANSWER


def test_a_value_near_the_target_is_not_the_target() -> None:
    near = asked([1, 3, 999999999, 1], 3)
    original = abs(3 + 1 / 999999999 - 3) < 1e-5
    assert original
    assert Countdown().score(near, "<answer>3 + 1 / 999999999</answer>").verdict is Verdict.WRONG


def test_leftover_numbers_are_allowed_only_where_the_problem_says_so() -> None:
    assert graded("<answer>3 * 8</answer>", "some") is Verdict.CORRECT
    assert graded("<answer>3 * 8</answer>", "all") is Verdict.WRONG
    assert graded("<answer>8 + 8 + 8</answer>", "some") is Verdict.WRONG
    free = Countdown(CountdownConfig(use="some"))
    assert free.score(asked([3, 8, 8, 3], 24), "<answer>3 * 8</answer>").verdict is Verdict.CORRECT
    assert (
        free.score(asked([3, 8, 8, 3], 24, "all"), "<answer>3 * 8</answer>").verdict
        is Verdict.WRONG
    )


def test_the_parts_tell_the_value_from_the_numbers() -> None:
    parts = Countdown().score(asked([3, 8], 24, "all"), "<answer>4 * 6</answer>").parts
    assert parts == {"correct": 0.0, "numbers": 0.0, "value": 1.0}
    parts = Countdown().score(asked([3, 8], 24, "all"), "<answer>3 + 8</answer>").parts
    assert parts == {"correct": 0.0, "numbers": 1.0, "value": 0.0}


def test_a_gold_is_found_where_none_is_given() -> None:
    task = Countdown()
    for problem in (
        asked([5, 5, 5, 1], 24),
        asked([2, 2], 4, answer="nonsense"),
        asked([7, 2, 9], 7, "some"),
    ):
        gold = task.solve(problem, 0)
        assert gold is not None and task.score(problem, gold).verdict is Verdict.CORRECT
    assert task.solve(asked([1, 1], 24), 0) is None


def test_with_some_numbers_left_over_made_problems_hold_too() -> None:
    task = Countdown(CountdownConfig(use="some", count=20))
    for problem in task.problems("rl"):
        gold = task.solve(problem, 0)
        assert gold is not None and task.score(problem, gold).verdict is Verdict.CORRECT
        assert "at most once" in problem.prompt[0].content


@pytest.mark.parametrize(("numbers", "target"), [(["3", 8], 24), ([3, 8], "24"), ([3, 8], None)])
def test_problems_without_numbers_are_the_fault_of_the_data(
    numbers: list[Json], target: Json
) -> None:
    with pytest.raises(DataError, match="payload"):
        Countdown().score(asked(numbers, target), "x")


def test_harder_problems_take_a_search_more_joins() -> None:
    work = []
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        tried = 0
        for seed in range(6):
            made = Countdown().generate(seed, level)
            numbers, target = made.payload["numbers"], made.payload["target"]
            assert isinstance(numbers, list) and isinstance(target, int)
            tried += search([int(str(number)) for number in numbers], target, "all")[1]
        work.append(tried)
    assert work == sorted(work) and work[4] > 100 * work[0], work
