"""Answers as models put them: in sentences, bold, boxes, tables, JSON, other scripts; hedged,
denied, cut, quoted."""

from collections import Counter
from pathlib import Path

from whet.tasks.registry import build_default_task
from whet.types import Problem, Verdict


def test_a_response_is_graded_as_a_person_would(spoken_case: tuple[Problem, str, bool]) -> None:
    problem, response, is_right = spoken_case
    score = build_default_task(problem.task).score(problem, response)

    assert score.verdict in (Verdict.CORRECT, Verdict.WRONG, Verdict.NO_ANSWER)
    assert (score.verdict is Verdict.CORRECT) is is_right, score.note


def test_the_table_holds_many_cases_of_both_kinds_for_many_tasks() -> None:
    lines = (Path(__file__).parent / "said.txt").read_text().splitlines()
    kinds = Counter(line.partition(" ")[0] for line in lines if line)

    assert min(kinds["yes"], kinds["no"]) >= 170
    assert len({line.split('"')[3] for line in lines if line.startswith("@")}) >= 15
