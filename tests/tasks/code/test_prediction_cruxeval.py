import random
import string

import pytest
from code_rows import make

from whet.errors import DataError
from whet.tasks.code.prediction import CruxEval, Direction, problem_of, unsupported_reason
from whet.tasks.code.python_literals import read_literal
from whet.types import Verdict

ROW = {
    "code": "def f(text, n):\n    return text[:n][::-1]",
    "input": "'hello', 3",
    "output": "'leh'",
    "id": "sample_0",
}
GIVEN = problem_of(ROW, "input")
RESULT = problem_of(ROW, "output")


def test_the_recorded_pair_is_right_in_both_directions() -> None:
    task = CruxEval()
    for problem in (GIVEN, RESULT):
        assert unsupported_reason(problem) is None
        assert task.score(problem, task.solve(problem, 0) or "").verdict == Verdict.CORRECT


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert f('help', 3) == 'leh'\n```",
        "[ANSWER]assert f('hel', 99) == 'leh'[/ANSWER]",
        "so\nAnswer: f(text='hel', n=3)",
        "<think>f('x', 1)</think>\n'heliport', 3",
        "```python\ndef f(text, n):\n    return text[:n][::-1]\nassert f('hell', 3) == 'leh'\n```",
    ],
)
def test_any_input_that_gives_the_output_is_right(text: str) -> None:
    assert CruxEval().score(GIVEN, text).verdict == Verdict.CORRECT


@pytest.mark.parametrize(
    "text", ["f('heal', 3)", "f('leh')", "f('leh', 'n')", "'h', 3", "f()", "f(None, None)"]
)
def test_other_inputs_are_wrong(text: str) -> None:
    assert CruxEval().score(GIVEN, text).verdict == Verdict.WRONG


@pytest.mark.parametrize(
    "text",
    [
        "assert True",
        "assert f == f",
        "f(__import__('os').getcwd(), 3)",
        "f(*['hel', 3])",
        "f(**{'n': 3})",
        "g('hel', 3)",
        "f(...)",
        "assert f(??) == 'leh'",
        "I do not know",
        "",
        "(" * 3000,
        "f(" + "-" * 4000 + "1)",
        "f('" + "x" * 5000 + "')",
    ],
)
def test_what_is_not_a_call_on_literals_is_no_answer(text: str) -> None:
    """The original ran the model's assertion in the grader's process: `assert True` passed, and any
    code ran."""
    assert CruxEval().score(GIVEN, text).verdict == Verdict.NO_ANSWER


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("'leh'", Verdict.CORRECT),
        ('assert f("hello", 3) == "leh"', Verdict.CORRECT),
        ("```python\n'leh'\n```", Verdict.CORRECT),
        ("'hel'", Verdict.WRONG),
        ("assert f('hello', 3) == f('hello', 3)", Verdict.NO_ANSWER),
        ("assert 'leh' == f('hello', 3)", Verdict.NO_ANSWER),
        ("leh", Verdict.NO_ANSWER),
        ("f('hello', 3)", Verdict.NO_ANSWER),
    ],
)
def test_an_output_is_compared_as_a_literal(text: str, verdict: Verdict) -> None:
    assert CruxEval().score(RESULT, text).verdict == verdict


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("[True, 2, {0: 'a'}]", "another output"),
        ("[1.0, 2, {0: 'a'}]", "another output"),
        ("[1, 2, {False: 'a'}]", "another output"),
        ("(1, 2, {0: 'a'})", "another output"),
        ("assert f(6) == [1, 2, {0: 'a'}]", "the assertion is about another call"),
        ("assert f(5.0) == [1, 2, {0: 'a'}]", "the assertion is about another call"),
        ("assert f(5, 1) == [1, 2, {0: 'a'}]", "the assertion is about another call"),
        ("assert f(k=5) == [1, 2, {0: 'a'}]", "the assertion is about another call"),
        ("assert f(5) == [1, 2, {0: 'a'}]", "the output is right"),
        ("assert f(n=5) == [1, 2, {0: 'a'}]", "the output is right"),
        ("[1, 2, {0: 'a'}]", "the output is right"),
    ],
)
def test_an_output_has_the_types_and_the_call_that_were_asked(text: str, note: str) -> None:
    """Python's own equality takes True for 1, and an assertion about another call says nothing of
    this one."""
    row = {
        "code": "def f(n, k=0):\n    return [1, 2, {0: 'a'}]",
        "input": "5",
        "output": "[1, 2, {0: 'a'}]",
        "id": "0",
    }

    score = CruxEval().score(problem_of(row, "output"), text)

    assert score.note == note
    assert (score.verdict is Verdict.CORRECT) is (note == "the output is right")


def test_an_assertion_of_another_output_is_wrong_whatever_its_arguments() -> None:
    assert CruxEval().score(GIVEN, "assert f('hel', 3) == 'lah'").verdict is Verdict.WRONG


@pytest.mark.parametrize("direction", ["input", "output"])
@pytest.mark.parametrize("first", ["assert f(5) == [5, 25]", "assert f(5) == [5, 24]"])
def test_two_assertions_in_one_line_are_no_answer(direction: Direction, first: str) -> None:
    row = {"code": "def f(n):\n    return [n, n * n]", "input": "5", "output": "[5, 25]", "id": "0"}
    text = f"{first} assert f(5) == [5, 25]"
    for response in (text, f"```python\n{text}\n```", f"So {text}."):
        score = CruxEval().score(problem_of(row, direction), response)
        assert score.verdict is Verdict.NO_ANSWER, response


def test_a_program_that_gives_the_output_in_another_type_does_not_give_it() -> None:
    row = {"code": "def f(n):\n    return n", "input": "1", "output": "1", "id": "0"}
    verdicts = [
        CruxEval().score(problem_of(row, "input"), f"f({given})").verdict
        for given in ("1", "True", "1.0")
    ]

    assert verdicts == [Verdict.CORRECT, Verdict.WRONG, Verdict.WRONG]


def test_a_function_that_does_not_end_on_an_input_is_wrong() -> None:
    loop = problem_of(
        {
            "code": "def f(n):\n    while n:\n        pass\n    return 1",
            "input": "0",
            "output": "1",
            "id": "1",
        },
        "input",
    )
    task = CruxEval(CruxEval().config.model_copy(update={"seconds": 1.0}))

    score = task.score(loop, "f(5)")

    assert score.verdict == Verdict.WRONG
    assert "not done after" in score.note


def test_rows_that_cannot_be_graded_are_refused() -> None:
    evil = {**ROW, "code": "def f(x):\n    return eval(x)"}

    assert (
        unsupported_reason(problem_of(evil, "input"))
        == "the program uses eval, which can run its input as code"
    )
    assert (
        unsupported_reason(problem_of({**ROW, "code": "def f("}, "input"))
        == "the program is not Python"
    )
    assert (
        unsupported_reason(problem_of({**ROW, "output": "f"}, "input"))
        == "the recorded output is not a literal"
    )
    with pytest.raises(DataError, match=r"payload\.output"):
        CruxEval().score(make("cruxeval", {"direction": "output"}), "1")


def test_odd_escapes_pass_without_a_warning() -> None:
    assert read_literal("'\\w'") == ("\\w",)


def test_random_text_never_raises_and_is_never_right() -> None:
    source, task = random.Random(0), CruxEval()
    for _ in range(5_000):
        letters = source.choice((string.printable, "f(),'.:[]{}=1-a"))
        text = "".join(source.choices(letters, k=source.randrange(60)))
        assert task.score(GIVEN, text).verdict != Verdict.CORRECT
        assert task.score(RESULT, text).verdict != Verdict.CORRECT
