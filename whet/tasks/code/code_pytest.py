"""Modules graded by pytest-style tests, which import them as `solution` or under the name the row
gives.

    answer    the reference module, or null
    payload   {"tests": the test module's source, "module": the name it imports, "solution" where not given,
               "setup": source that both sides run first, "" where not given}

The tests run in a process of their own that never executes model text, with a small stand-in for
pytest: test functions and classes, unittest cases, `raises`, `approx`, `fail`, `param` and
`mark.parametrize`. Tests that use more of it are refused at import.
"""

from typing import Literal

from whet.errors import DataError
from whet.tasks.code import program, tests_text
from whet.tasks.code.judging import CodeConfig, CodeTask, Tests, judge, scored, text_of, unread
from whet.tasks.code.sandbox import Sandbox
from whet.types import Problem, Score


class CodePytestConfig(CodeConfig):
    name: Literal["code_pytest"] = "code_pytest"


class CodePytest(CodeTask):
    """Run a test module against the last program of a response."""

    name = "code_pytest"

    def __init__(self, config: CodePytestConfig | None = None) -> None:
        self.config = config or CodePytestConfig()
        self._sandbox = Sandbox(self.config.sandbox)

    def score(self, problem: Problem, text: str) -> Score:
        """State whether every test passes. Parts: `correct` 0 or 1."""
        tests = tests_of(problem)
        if not tests.tests:
            raise DataError(f"problem {problem.id} has no tests in payload.tests")
        found = program.last_program(text)
        if found is None:
            return unread("there is no fenced program")
        return scored(judge(self._sandbox, tests, found, self.config.limits), found)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else program.fenced(problem.answer)


def tests_of(problem: Problem) -> Tests:
    return Tests(
        kind="pytest",
        tests=text_of(problem, "tests"),
        setup=text_of(problem, "setup"),
        module=text_of(problem, "module", "solution"),
    )


def unsupported(problem: Problem) -> str | None:
    """Say why a row cannot be graded here, for importers; None where it can."""
    tests = tests_of(problem)
    return tests_text.unsupported(tests.tests, entry="", module=tests.module, setup=tests.setup)
