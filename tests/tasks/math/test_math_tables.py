"""Two tables of cases, one a line: `yes` or `no`, a reference, and an answer or a whole response
that gives it or not.

In `responses.txt` the sign `⏎` stands for a line break.
"""

from pathlib import Path

import pytest
from math_problems import is_right, verdict

from whet.types import Verdict

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
