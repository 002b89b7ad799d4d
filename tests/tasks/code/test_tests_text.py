import ast

from whet.tasks.code.tests_text import free_names, runs_text, unsupported_reason


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
