"""Tables of cases, one a line: `yes` or `no`, a reference, and an answer or a whole response that
gives it or not; in `questions.txt` the question stands between them.

In responses the sign `⏎` stands for a line break.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from math_problems import is_right, problem, verdict

from whet.tasks.math import Math
from whet.types import Message, Verdict

HERE = Path(__file__).parent


def cases(name: str) -> list[tuple[str, str, bool]]:
    table = []
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("#"):
            expected, _, pair = line.partition(" ")
            gold, _, text = pair.strip().partition(" :: ")
            table.append((gold, text.replace("⏎", "\n"), {"yes": True, "no": False}[expected]))
    return table


def test_the_tables_hold_hundreds_of_cases_of_both_kinds() -> None:
    for name, least in (("answers.txt", 900), ("responses.txt", 330)):
        labels = [expected for _, _, expected in cases(name)]
        assert min(labels.count(True), labels.count(False)) >= least // 3
        assert len(labels) >= least


@pytest.mark.parametrize(("gold", "answer", "expected"), cases("answers.txt"))
def test_an_answer_in_a_box_is_graded_as_a_person_would(
    gold: str, answer: str, expected: bool
) -> None:
    assert is_right(gold, answer) is expected


@pytest.mark.parametrize(("gold", "response", "expected"), cases("responses.txt"))
def test_a_response_is_graded_as_a_person_would(gold: str, response: str, expected: bool) -> None:
    assert (verdict(gold, response) is Verdict.CORRECT) is expected


@pytest.mark.parametrize(("gold", "text", "expected"), cases("questions.txt"))
def test_a_response_is_graded_by_what_the_question_asks(
    gold: str, text: str, expected: bool
) -> None:
    question, _, response = text.partition(" :: ")
    asked = replace(problem(gold), prompt=(Message(role="user", content=question),))
    assert (Math().score(asked, response).verdict is Verdict.CORRECT) is expected
