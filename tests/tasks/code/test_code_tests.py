import random
import string
import tempfile
from itertools import pairwise

import pytest
from code_rows import humaneval, leetcode, make, mbpp

from whet.errors import DataError
from whet.tasks.code.code_tests import CodeFunction, CodeFunctionConfig, unsupported_reason
from whet.tasks.code.program import fence
from whet.tasks.code.sandbox import ProgramLimits, run_script
from whet.types import Json, Verdict

FILES = {"humaneval": humaneval, "mbpp": mbpp, "leetcode": leetcode}
COUNTS = {"humaneval": 164, "mbpp": 240, "leetcode": 115}


@pytest.mark.parametrize("file", FILES)
def test_every_row_is_supported_and_its_reference_passes(file: str) -> None:
    task, problems = CodeFunction(CodeFunctionConfig(seconds=30.0)), FILES[file]()

    refused = {
        problem.id: unsupported_reason(problem)
        for problem in problems
        if unsupported_reason(problem)
    }
    scores = {problem.id: task.score(problem, task.solve(problem, 0) or "") for problem in problems}

    assert refused == {}
    assert {
        id: score.note for id, score in scores.items() if score.verdict != Verdict.CORRECT
    } == {}
    assert len(problems) == COUNTS[file]


@pytest.mark.parametrize("file", FILES)
def test_the_next_rows_reference_is_wrong(file: str) -> None:
    task, problems = CodeFunction(), FILES[file]()
    pairs = list(pairwise(problems))[::4]

    verdicts = [task.score(problem, task.solve(other, 0) or "").verdict for problem, other in pairs]

    assert set(verdicts) == {Verdict.WRONG}


FIVE = make(
    "code_function", {"entry": "f", "tests": ["assert f(2) == 5", "assert not f(3) == 5"]}, None
)


def test_a_right_function_passes_and_a_wrong_one_fails_with_the_line() -> None:
    task = CodeFunction()

    right = task.score(FIVE, fence("def f(x):\n    return 2 * x + 1"))
    wrong = task.score(FIVE, fence("def f(x):\n    return 4"))

    assert (right.verdict, right.parts["correct"]) == (Verdict.CORRECT, 1.0)
    assert (wrong.verdict, wrong.note) == (Verdict.WRONG, "assert f(2) == 5: AssertionError: ")


@pytest.mark.parametrize(
    "program", ["def f(x):\n    raise SystemExit(0)", "import os\nos._exit(0)"]
)
def test_an_early_exit_passes_the_original_rule_and_not_this_one(program: str) -> None:
    """Reasoning360 joined program and tests into one script, and took exit status 0 for success."""
    with tempfile.TemporaryFile() as nothing:
        ran = run_script(program + "\nassert f(2) == 5", nothing, ProgramLimits())

    assert ran.fault == ""
    assert CodeFunction().score(FIVE, fence(program)).verdict == Verdict.WRONG


def test_an_always_equal_object_passes_the_original_rule_and_not_this_one() -> None:
    program = (
        "class E:\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return E()"
    )
    with tempfile.TemporaryFile() as nothing:
        ran = run_script(program + "\nassert f(2) == 5", nothing, ProgramLimits())

    assert ran.fault == ""
    assert CodeFunction().score(FIVE, fence(program)).verdict == Verdict.WRONG


def test_the_same_answers_come_every_time_from_a_program_that_draws_lots() -> None:
    task = CodeFunction()
    program = fence(
        "import random\ndef f(x):\n    return 5 if hash('a') % 2 == random.getrandbits(1) else 4"
    )

    assert len({task.score(FIVE, program).verdict for _ in range(6)}) == 1


def test_the_last_block_that_defines_the_entry_counts() -> None:
    right, wrong = fence("def f(x):\n    return 2 * x + 1"), fence("def f(x):\n    return 0")
    usage = fence("print(f(2))")

    assert CodeFunction().score(FIVE, f"{wrong}\n{right}\n{usage}").verdict == Verdict.CORRECT
    assert CodeFunction().score(FIVE, f"{right}\n{wrong}").verdict == Verdict.WRONG
    assert CodeFunction().score(FIVE, "def f(x):\n    return 2 * x + 1").verdict == Verdict.CORRECT


@pytest.mark.parametrize(
    "text", ["", "```python\ndef f(x):\n    return 5", "<think>" + fence("def f(x): pass"), "f"]
)
def test_a_response_without_a_closed_block_has_no_answer(text: str) -> None:
    assert CodeFunction().score(FIVE, text).verdict == Verdict.NO_ANSWER


def test_a_row_is_refused_with_the_reason() -> None:
    assert (
        unsupported_reason(make("code_function", {"tests": ["assert f(1)"]}))
        == "there is no entry to call"
    )
    row = make("code_function", {"entry": "f", "tests": ["def check(candidate):\n    assert True"]})
    assert unsupported_reason(row) == "the tests never call the program"


def test_tests_that_never_call_the_program_leave_it_unscored() -> None:
    row = make("code_function", {"entry": "f", "tests": ["if 1 > 2:\n    f(1)"]})

    assert CodeFunction().score(row, fence("def f(x): pass")).verdict == Verdict.UNSCORED


@pytest.mark.parametrize(
    ("tests", "program"),
    [
        (
            "s = Stack()\ns.push(3)\nassert s.pop() == 3",
            "class Stack(list):\n    push = list.append",
        ),
        (
            "q = Q()\nassert q.same(q) is True",
            "class Q:\n    def same(self, other):\n        return self is other",
        ),
        ("assert f(1)", "import re\ndef f(x):\n    return re.match('a', 'a')"),
        ("assert not f(1)", "import re\ndef f(x):\n    return re.match('b', 'a')"),
        (
            "try:\n    f(1)\n    assert False\nexcept ValueError as e:\n    assert 'no' in str(e)",
            "def f(x):\n    raise ValueError('no')",
        ),
        (
            "assert f(b'a', {1: (2,)}, n=None) == [b'a', {1: (2,)}, None]",
            "def f(a, b, n):\n    return [a, b, n]",
        ),
        ("import sys\nassert f(10 ** 5000) == 10 ** 5000 + 1", "def f(n):\n    return n + 1"),
        (
            "assert Solution().twice(4) == 8",
            "class Solution:\n    def twice(self, n):\n        return 2 * n",
        ),
    ],
)
def test_tests_may_use_objects_exceptions_and_every_plain_type(tests: str, program: str) -> None:
    row = make("code_function", {"entry": "f", "tests": [tests]})

    score = CodeFunction().score(row, fence(program))

    assert score.verdict == Verdict.CORRECT, score.note


def test_arguments_are_copies_so_that_a_program_cannot_edit_the_tests() -> None:
    row = make("code_function", {"entry": "f", "tests": ["a = [3, 1]\nassert f(a) == sorted(a)"]})

    assert (
        CodeFunction().score(row, fence("def f(a):\n    a.clear()\n    return []")).verdict
        == Verdict.WRONG
    )


@pytest.mark.parametrize(
    "payload",
    [
        {"entry": "f", "tests": 5},
        {"entry": "f", "tests": "assert f(1) == 2"},
        {"entry": "f", "tests": ["assert f(1) == 2", 5]},
        {"entry": "f", "tests": []},
        {"entry": 5, "tests": ["assert f(1) == 2"]},
        {"entry": "f", "tests": ["assert f(1) == 2"], "setup": []},
        {"tests": ["assert f(1) == 2"]},
    ],
)
def test_a_payload_of_another_shape_is_the_problems_fault_whatever_the_response(
    payload: dict[str, Json],
) -> None:
    for text in ("", fence("def f(n):\n    return 2 * n")):
        with pytest.raises(DataError, match=r"problem code_function/x needs .* in payload\."):
            CodeFunction().score(make("code_function", payload), text)


def test_random_text_never_raises_and_is_never_right() -> None:
    source, task = random.Random(0), CodeFunction()
    for number in range(10_000):
        text = "".join(source.choices(string.printable, k=source.randrange(120)))
        text = fence(f"def f(x): {text}") if number % 100 == 0 else text
        assert task.score(FIVE, text).verdict != Verdict.CORRECT


def test_a_response_of_a_million_characters_is_read_in_no_time() -> None:
    for text in ("```" * 400_000, "```\n" * 250_000, "<think>" * 150_000, "def f(" * 200_000):
        assert CodeFunction().score(FIVE, text).verdict == Verdict.NO_ANSWER
