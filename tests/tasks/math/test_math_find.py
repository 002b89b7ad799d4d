"""Which part of a response counts as its answer."""

import pytest
from math_problems import verdict

from whet.tasks.math.find import find_answer
from whet.types import Verdict


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"2 + 2 = \boxed{4}", "4"),
        ("<think>2 + 2</think> <answer>4</answer>", "4"),
        (r"<answer>so \boxed{4}</answer>", "4"),
        (r"\boxed{10} and then \boxed{42}", "42"),
        (r"\boxed{1} and \boxed{2}", "1 , 2"),
        (r"\boxed{5}, that is \(\boxed{5}\)", "5"),
        (r"\boxed{15\frac{39}{40}} or \boxed{\frac{639}{40}}", r"\frac{639}{40}"),
        (r"\boxed{1} no no no no no \boxed{2}", "2"),
        ("#### 10\nTwice that then:\n#### 20", "20"),
        ("Answer: 41 was a guess.\nAnswer: 42", "42"),
        ("The answer is 42 because geometry proves it", "42"),
        ("Final Answer: The largest $n$ is 34.", "34"),
        ("Final Answer: The final answer is $(0, 1)$. I hope it is correct.", "$(0, 1)$"),
        ("First 6*7.\n42", "42"),
        ("so $x+y = 1000$ and more\nit is $7$", "7"),
        ("the error grows by 100%.", "100%"),
        ("x = 4", "x = 4"),
        ("共有**858颗**糖果。", "858"),
    ],
)
def test_the_answer_is_found(text: str, answer: str) -> None:
    found = find_answer(text)

    assert found is not None and found.text.strip() == answer


@pytest.mark.parametrize(
    "text",
    ["", "  \n", "<think>it is \\boxed{42}", "<think>\\boxed{42}</think>", "<answer></answer>"],
)
def test_no_answer_is_said_to_be_none(text: str) -> None:
    assert verdict("42", text) is Verdict.NO_ANSWER


def test_the_span_points_into_the_whole_response() -> None:
    text = "<think>5</think> the answer is 7."

    found = find_answer(text)

    assert found is not None and text[found.start : found.end].strip() == "7"


def test_an_answer_in_the_thinking_part_does_not_count() -> None:
    assert verdict("42", r"<think>\boxed{42}</think> it is \boxed{43}") is Verdict.WRONG


def test_listing_guesses_is_not_an_answer() -> None:
    assert verdict("42", r"\boxed{41} or \boxed{42}") is Verdict.WRONG
    assert verdict("42", r"\boxed{41, 42}") is Verdict.WRONG
    assert verdict("42", r"\boxed{42 \text{ or } 43}") is Verdict.WRONG
