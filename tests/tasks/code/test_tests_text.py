import ast

import pytest

from whet.tasks.code.tests_text import (
    free_names,
    runs_text,
    scopes_that_look_at_arguments,
    unsupported_reason,
)


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
    ("body", "is_watched"),
    [
        ("f(a); assert a == [1]", True),
        ("assert f(a) == 2 and a == [1]", True),
        ("r = f(a); assert r is a", True),
        ("r = f(a); assert r == sorted(a)", False),
        ("assert f(a) == sorted(a)", False),
        ("assert f(a) == [1]", False),
        ("assert len(f(a)) == len(a)", False),
        ("f(a); assert not a", True),
        ("f(a); assert len(a) == 2", True),
        ("f(a); return a", True),
        ("self.assertEqual(f(a), sorted(a))", False),
        ("f(a); self.assertEqual(a, [1])", True),
        ("r = f(a); self.assertIsNot(r, a)", True),
        ("s = f(); s.add(a); assert a == [1]", True),
        ("assert b == [1]; f(a)", False),
    ],
)
def test_scopes_that_look_at_arguments_are_told_from_others(body: str, is_watched: bool) -> None:
    tests = f"from solution import f\ndef test_it(self, a, b):\n    {body}"
    scopes = scopes_that_look_at_arguments(ast.parse(tests), "solution")

    assert scopes == ([range(2, 4)] if is_watched else [])
