"""Arithmetic and reversed text: exact answers only."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from whet.errors import DataError
from whet.tasks.expressions import parse_expression
from whet.tasks.warmup.arithmetic import Arithmetic
from whet.tasks.warmup.letters import Reverse, ReverseConfig
from whet.types import Message, Problem, Verdict

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def asked(task: str, answer: str) -> Problem:
    prompt = (Message(role="user", content="?"),)
    return Problem(
        id="x/0",
        task=task,
        prompt=prompt,
        answer=answer,
        payload={},
        level=None,
        split="rl",
        source="",
    )


@pytest.mark.parametrize(
    "response", ["Answer: -1234", "-1,234", "<answer>-1234.</answer>", "\\boxed{-1234.0}", "-01234"]
)
def test_the_value_is_right_in_its_usual_forms(response: str) -> None:
    assert Arithmetic().score(asked("arithmetic", "-1234"), response).verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("1234", Verdict.WRONG),
        ("-123400", Verdict.WRONG),
        ("-12.34", Verdict.NO_ANSWER),
        ("-1234.5", Verdict.NO_ANSWER),
        ("-12,34", Verdict.NO_ANSWER),
        ("2 - 1236", Verdict.NO_ANSWER),
        ("-1234 -1234", Verdict.NO_ANSWER),
        ("9" * 5000, Verdict.NO_ANSWER),
        ("-١٢٣٤", Verdict.NO_ANSWER),
    ],
)
def test_other_values_and_expressions_are_not_right(response: str, verdict: Verdict) -> None:
    assert Arithmetic().score(asked("arithmetic", "-1234"), response).verdict is verdict


def test_made_expressions_come_to_their_answer_and_so_does_every_step() -> None:
    task = Arithmetic()
    for seed in range(60):
        made = task.generate(seed, (seed % 5) / 5)
        expression = parse_expression(str(made.payload["expression"]))
        assert expression is not None and expression.value == (int(made.answer or ""), 1)
        gold = task.solve(made, 0) or ""
        assert [note.is_right for note in task.comment(made, gold)][-1] is None
        assert all(note.is_right for note in task.comment(made, gold)[:-1])
        assert task.score(made, gold).parts == {"correct": 1.0, "steps": 1.0}


def test_false_steps_are_found() -> None:
    told = "3 * 4 = 12\n12 - 15 = 3\nthinking\n2 * (-3) = -6\nAnswer: 1"
    notes = Arithmetic().comment(asked("arithmetic", "1"), told)
    assert [note.is_right for note in notes] == [True, False, None, True, None]


@pytest.mark.parametrize(
    ("expression", "lines", "share"),
    [
        ("5 + 3 - 4", "5 + 3 = 8\n8 - 4 = 4", 1.0),
        ("5 + 3 - 4", "3 - 4 = -1\n5 + -1 = 4", 1.0),
        ("10 - (3 + 4)", "3 + 4 = 7\n10 - 7 = 3", 1.0),
        ("10 - (3 + 4)", "10 - 3 = 7\n7 - 4 = 3", 1.0),
        ("10 - 2 * 3 * 4", "3 * 2 = 6\n4 * 6 = 24\n10 - 24 = -14", 1.0),
        ("(1 - 3) * (2 + 5)", "1 - 3 = -2\n2 + 5 = 7\n-2 * 7 = -14", 1.0),
        ("5 + 3 - 4", "5 + 3 = 8", 0.5),
        ("5 + 3 - 4", "1 + 1 = 2", 0.0),
        ("5 + 3 - 4", "5 + 3 = 8\n5 + 3 = 8", 0.5),
        ("5 + 3 - 4", "5 + 3 = 8\n1 + 1 = 2\n2 + 2 = 4\n8 - 4 = 4", 0.5),
        ("5 + 3 - 4", "5 + 3 = 9\n9 - 4 = 5", 0.0),
        ("5 + 3 * 4", "5 + 3 = 8\n8 * 4 = 32", 0.0),
        ("7", "1 + 1 = 2", 0.0),
        ("x +", "1 + 1 = 2", 0.0),
    ],
)
def test_only_operations_that_the_expression_needs_count_as_steps(
    expression: str, lines: str, share: float
) -> None:
    made = replace(asked("arithmetic", "1"), payload={"expression": expression})
    assert Arithmetic().score(made, lines).parts["steps"] == pytest.approx(share)


def test_no_step_counts_where_the_expression_is_not_known() -> None:
    assert Arithmetic().score(asked("arithmetic", "2"), "1 + 1 = 2").parts["steps"] == 0.0


def test_harder_expressions_take_more_operations_on_more_digits() -> None:
    digits = []
    for level in LEVELS:
        made = [str(Arithmetic().generate(seed, level).payload["steps"]) for seed in range(30)]
        digits.append(sum(len(re.findall(r"\d", steps)) for steps in made))
    assert all(harder > 1.3 * easier for easier, harder in pairwise(digits)), digits


@pytest.mark.parametrize(
    "response",
    ["Answer: ba adA", "<answer>ba adA</answer>", '"ba adA"', "`ba adA`", "well\nba adA"],
)
def test_the_reversed_text_is_right_in_its_usual_forms(response: str) -> None:
    assert Reverse().score(asked("reverse", "ba adA"), response).verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    ("response", "places"),
    [
        ("Answer: ba ada", 5 / 6),
        ("Answer: baadA", 2 / 6),
        ("Answer: ba adA!", 6 / 7),
        ("Answer: Ada ab", 0.0),
    ],
)
def test_every_character_counts(response: str, places: float) -> None:
    score = Reverse().score(asked("reverse", "ba adA"), response)
    assert score.verdict is Verdict.WRONG and score.parts["places"] == pytest.approx(places)


def test_no_text_reads_the_same_both_ways_and_golds_are_the_text_reversed() -> None:
    letters, words = Reverse(), Reverse(ReverseConfig(unit="words"))
    for seed in range(60):
        one, other = letters.generate(seed, (seed % 5) / 5), words.generate(seed, (seed % 5) / 5)
        text = str(one.payload["text"])
        assert one.answer == text[::-1] and one.answer.lower() != text.lower()
        assert (other.answer or "").split() == str(other.payload["text"]).split()[::-1]
        assert letters.score(one, letters.solve(one, 0) or "").verdict is Verdict.CORRECT


def test_short_names_that_are_palindromes_are_not_asked() -> None:
    texts = [str(Reverse().generate(seed, 0.0).payload["text"]).lower() for seed in range(1500)]
    assert "ann" in texts and "ada" not in texts


def test_harder_texts_are_longer() -> None:
    lengths = [
        sum(len(Reverse().generate(seed, level).answer or "") for seed in range(10))
        for level in LEVELS
    ]
    assert all(harder > 1.4 * easier for easier, harder in pairwise(lengths)), lengths


def test_problems_without_an_answer_are_the_fault_of_the_data() -> None:
    with pytest.raises(DataError, match="whole number"):
        Arithmetic().score(asked("arithmetic", "x"), "1")
    with pytest.raises(DataError, match="reversed text"):
        Reverse().score(asked("reverse", ""), "1")
