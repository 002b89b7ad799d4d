"""Answers as models put them: in sentences, bold, boxes, tables, JSON, other scripts; hedged,
denied, cut, quoted."""

from collections import Counter
from pathlib import Path

import pytest

from whet.tasks.registry import named
from whet.text.final_answer import after_verb, only_number
from whet.types import Problem, Verdict


def test_a_response_is_graded_as_a_person_would(spoken_case: tuple[Problem, str, bool]) -> None:
    problem, response, is_right = spoken_case
    score = named(problem.task).score(problem, response)

    assert score.verdict in (Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER)
    assert (score.verdict is Verdict.CORRECT) is is_right, score.note


def test_the_table_holds_many_cases_of_both_kinds_for_many_tasks() -> None:
    lines = (Path(__file__).parent / "said.txt").read_text().splitlines()
    kinds = Counter(line.partition(" ")[0] for line in lines if line)

    assert min(kinds["yes"], kinds["no"]) >= 170
    assert len({line.split('"')[3] for line in lines if line.startswith("@")}) >= 15


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("We add them. The total is **1,062**.", "1,062"),
        ("The letters are: nda", "nda"),
        ("The total is not 5.", None),
        ("Is the total 5?", None),
        ("The total is about 5.", None),
        ("The reference answer is 5.", None),
        ("5", None),
        ("The total is 5." + " " * 400, None),
    ],
)
def test_a_sentence_tells_what_stands_behind_its_last_verb(line: str, expected: str | None) -> None:
    assert after_verb(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("It was highest in **2008**.", "2008."),
        ("She will pay \\$4.75", "\\$4.75"),
        ("It fell by -3", "-3"),
        ("From 2008 to 2009", None),
        ("Not in 2008", None),
        ("x = 5", None),
        ("no number", None),
    ],
)
def test_the_only_number_of_a_sentence_is_what_it_tells(line: str, expected: str | None) -> None:
    assert only_number(line) == expected
