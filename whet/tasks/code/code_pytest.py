"""Modules graded by pytest-style tests, which import them as `solution` or as the row says.

    answer    the reference module, or null
    payload   {"tests": the test module's source, "module": the name it imports, else "solution",
               "setup": source that both sides run first, else ""}

The tests run in a process of their own that never executes model text, with a small stand-in for
pytest: test functions and classes, unittest cases, `raises`, `approx`, `fail`, `param` and
`mark.parametrize`. Tests that use more of it are refused at import.
"""

from typing import Literal

from whet.errors import DataError
from whet.tasks.code import program, tests_text
from whet.tasks.code.code_task import (
    CodeConfig,
    CodeTask,
    Tests,
    run_tests,
    text_of,
    to_score,
    unread,
)
from whet.tasks.code.sandbox import Sandbox
from whet.types import Problem, Score


class CodePytestConfig(CodeConfig):
    name: Literal["code_pytest"] = "code_pytest"


class CodePytest(CodeTask):
    """Run a test module against the last program of a response."""

    name = "code_pytest"
    config: CodePytestConfig

    def score(self, problem: Problem, text: str) -> Score:
        """State whether every test passes. Parts: `correct` 0 or 1."""
        tests = tests_of(problem)
        if not tests.tests:
            raise DataError(f"problem {problem.id} has no tests in payload.tests")
        source = program.last_program(text)
        if source is None:
            return unread("there is no fenced program")
        return to_score(
            run_tests(Sandbox(self.config.sandbox), tests, source, self.config.limits), source
        )


def tests_of(problem: Problem) -> Tests:
    return Tests(
        kind="pytest",
        tests=text_of(problem, "tests"),
        setup=text_of(problem, "setup"),
        module=text_of(problem, "module", "solution"),
    )


def unsupported_reason(problem: Problem) -> str | None:
    """Explain why a row cannot be graded here, for importers; None where it can."""
    tests = tests_of(problem)
    return tests_text.unsupported_reason(
        tests.tests, entry="", module=tests.module, setup=tests.setup
    )
