import random
import string

import pytest
from code_rows import make

from whet.tasks.code.prediction import CodeIO, unsupported_reason
from whet.tasks.code.python_literals import equal
from whet.types import Json, Verdict

PROGRAM = "def main_solution(a, b):\n    return {'sum': a + b, 'pair': (a > b, None)}"
PAYLOAD: dict[str, Json] = {
    "program": PROGRAM,
    "input": {"a": 5, "b": 2},
    "output": {"sum": 7, "pair": [True, None]},
}
GIVEN = make("codeio", PAYLOAD | {"direction": "input"})
RESULT = make("codeio", PAYLOAD | {"direction": "output"})


def test_the_recorded_pair_is_right_in_both_directions() -> None:
    task = CodeIO()
    for problem in (GIVEN, RESULT):
        assert unsupported_reason(problem) is None
        assert task.score(problem, task.solve(problem, 0) or "").verdict == Verdict.CORRECT


def test_another_input_with_the_same_output_is_right_here_and_wrong_by_the_original_rule() -> None:
    """Reasoning360 asked for the recorded input."""
    other = {"a": 6, "b": 1}

    assert not equal(other, PAYLOAD["input"])
    assert (
        CodeIO().score(GIVEN, '```json\n{"input": {"a": 6, "b": 1}}\n```').verdict
        == Verdict.CORRECT
    )


def test_the_last_block_counts_where_the_original_took_the_first() -> None:
    wrong, right = '```json\n{"a": 1, "b": 6}\n```', '```json\n{"a": 6, "b": 1}\n```'

    assert CodeIO().score(GIVEN, f"{wrong}\nNo, wait:\n{right}").verdict == Verdict.CORRECT
    assert CodeIO().score(GIVEN, f"{right}\nNo, wait:\n{wrong}").verdict == Verdict.WRONG
    assert CodeIO().score(GIVEN, f"{wrong}\nor\n{right}").verdict == Verdict.NO_ANSWER


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": 6}',
        '{"a": 7}',
        '{"a": 5, "b": 2, "c": 0}',
        "[5, 2]",
        '{"a": "5", "b": 2}',
        "7",
        '{"a": 5, "b": 2e999}',
    ],
)
def test_other_inputs_are_wrong(text: str) -> None:
    assert CodeIO().score(GIVEN, text).verdict == Verdict.WRONG


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"sum": 7, "pair": [true, null]}', Verdict.CORRECT),
        ('{"output": {"pair": [true, null], "sum": 7.0}}', Verdict.CORRECT),
        ('The result is {"sum": 7, "pair": [true, null]}', Verdict.CORRECT),
        ('{"sum": 7, "pair": [1, null]}', Verdict.WRONG),
        ('{"sum": "7", "pair": [true, null]}', Verdict.WRONG),
        ('{"sum": 7}', Verdict.WRONG),
        ('{"input": {"a": 5, "b": 2}}', Verdict.WRONG),
        ('{"sum": NaN}', Verdict.NO_ANSWER),
        ("[" * 50_000, Verdict.NO_ANSWER),
        ("seven", Verdict.NO_ANSWER),
    ],
)
def test_an_output_is_compared_as_json(text: str, verdict: Verdict) -> None:
    assert CodeIO().score(RESULT, text).verdict == verdict


def test_values_compare_as_json_would_have_them() -> None:
    assert equal({1: 4, None: 2}, {"1": 4, "null": 2})
    assert equal({1: "a", 2.5: "b", (1,): "c"}, {"1": "a", "2.5": "b", "(1,)": "c"})
    assert not equal([1, 2], [1, 2, 3])
    assert not equal(1, "1")
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    assert not equal(deep, deep)


def test_rows_that_cannot_be_graded_are_refused() -> None:
    assert (
        unsupported_reason(make("codeio", PAYLOAD)) == "the direction is neither input nor output"
    )
    evil = make("codeio", PAYLOAD | {"direction": "input", "program": "import pickle"})
    assert unsupported_reason(evil) == "the program uses pickle, which can run its input as code"


def test_a_program_that_fails_on_the_input_makes_it_wrong() -> None:
    broken = make("codeio", PAYLOAD | {"direction": "input", "program": "1 / 0"})

    score = CodeIO().score(broken, '{"a": 1, "b": 1}')

    assert (score.verdict, score.note) == (Verdict.WRONG, "ZeroDivisionError: division by zero")


def test_random_text_never_raises_and_is_never_right() -> None:
    source, task = random.Random(0), CodeIO()
    for _ in range(5_000):
        letters = source.choice((string.printable, '{}[]":,1ab-.'))
        text = "".join(source.choices(letters, k=source.randrange(60)))
        assert task.score(GIVEN, text).verdict != Verdict.CORRECT
        assert task.score(RESULT, text).verdict != Verdict.CORRECT
