import ast

import pytest

from whet.tasks.code import referee
from whet.tasks.code.program import blocks, fence, last_definition, last_program
from whet.tasks.code.referee import Approx, Raises
from whet.tasks.code.tests_text import free_names, runs_text, unsupported_reason


def test_blocks_are_those_of_python_or_of_no_language_that_are_closed() -> None:
    text = "a\n```python\nx = 1\n```\n```c\nint y;\n```\n```\nz\n```\n  ```py\nw\n  ```\n```python\ncut"

    assert blocks(text) == [("python", "x = 1"), ("", "z"), ("py", "w")]


def test_reasoning_is_not_read() -> None:
    draft, final = fence("draft"), fence("final")

    assert last_program(f"<think>{draft}</think>\n{final}") == "final"
    assert last_program(f"<think>\n{draft}\n</think>\nnothing") is None
    assert last_program(f"{draft}\n<think>\n{final}") is None


def test_an_empty_block_is_not_a_program() -> None:
    assert last_program("```python\nx\n```\n```\n\n```") == "x"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x): pass", "def f(x): pass"),
        ("f = len", "f = len"),
        ("    def f(x): pass", None),
        ("def foo(x): pass", None),
        ("```python\ndef f(): pass", None),
    ],
)
def test_a_text_without_fences_is_a_program_where_it_defines_the_entry(
    text: str, found: str | None
) -> None:
    assert last_definition(text, "f") == found


def test_a_name_that_is_no_name_is_not_looked_for() -> None:
    assert last_definition("def f(x): pass", "f.*") is None


def test_free_names_leave_out_everything_the_tests_make() -> None:
    text = (
        "import os.path as p\nfrom a import b\ndef g(x, *y, k=z):\n    try:\n        q = [i for i in x]\n"
        "    except ValueError as e:\n        print(e)\nclass C: pass\nasync def h(): return w\n"
    )

    assert free_names(ast.parse(text)) == {"z", "w"}


def test_tests_may_import_the_program_and_the_standard_library_only() -> None:
    assert (
        unsupported_reason("from solution import f\nassert f(1)", entry="", module="solution")
        is None
    )
    assert unsupported_reason("from . import f", entry="", module="solution") is not None
    assert (
        unsupported_reason("assert f(1)", entry="f", module="solution", setup="import numpy")
        is not None
    )


def test_programs_that_run_text_are_known() -> None:
    assert runs_text("def f(x):\n    return x.eval()") is None
    assert runs_text("from importlib import import_module") is not None


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        (1.0000001, Approx(1), True),
        (1.1, Approx(1), False),
        (1.1, Approx(1, abs=0.2), True),
        (1.1, Approx(1, rel=0.2), True),
        (1e-13, Approx(0), True),
        (float("nan"), Approx(1), False),
        (float("inf"), Approx(1), False),
        (float("inf"), Approx(float("inf")), True),
        ([1, 2.0000001], Approx([1, 2]), True),
        ([1], Approx([1, 2]), False),
        (1, Approx([1]), False),
        ({"a": 1.0000001}, Approx({"a": 1}), True),
        ({"b": 1}, Approx({"a": 1}), False),
        ("x", Approx("x"), True),
        ("x", Approx(1), False),
    ],
)
def test_approx_agrees_with_pytest(actual: object, expected: Approx, same: bool) -> None:
    real = pytest.approx(expected._expected, rel=expected._rel, abs=expected._abs)

    assert (actual == expected) is same
    assert (actual == real) is same


def test_raises_wants_the_kind_and_the_message() -> None:
    with Raises(ValueError, match="b+") as caught:
        raise ValueError("abc")
    assert str(caught.value) == "abc"
    with pytest.raises(AssertionError, match="did not raise"), Raises(ValueError):
        pass
    with pytest.raises(AssertionError, match="does not match"), Raises(ValueError, match="x"):
        raise ValueError("abc")
    with pytest.raises(KeyError), Raises(ValueError):
        raise KeyError


def test_cases_multiply_and_the_first_failure_is_told() -> None:
    seen: list[tuple[int, int]] = []

    @referee.parametrize("a", [1, 2])
    @referee.parametrize(["b"], [3, referee.param(4)])
    def test_both(a: int, b: int) -> None:
        seen.append((a, b))
        if a == 2:
            referee.fail("two")

    assert referee.run_pytest({"test_both": test_both}) == "test_both: AssertionError: two"
    assert seen == [(1, 3), (1, 4), (2, 3)]
    assert referee.run_pytest({}) == "there are no tests"
