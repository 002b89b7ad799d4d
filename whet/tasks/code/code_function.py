"""Functions graded by tests: HumanEval, MBPP, LeetCode, LiveCodeBench and TACO rows with a function
to call.

    answer    the reference program, or null
    payload   {"entry": "has_close_elements", or "Solution().twoSum",
               "tests": ["def check(candidate): ...", or "assert f(1) == 2", ...],
               "setup": source that both the program and the tests run first: imports, helpers, node classes}

Each text of `tests` is run in turn, in a process of its own that never executes model text:
`candidate`, the entry's name and every name the tests do not make themselves stand for the program,
and a function `check` is called with `candidate`. Arguments and results cross as plain data, so
arguments are copies and what a program does to them is not seen. Instances of classes that `setup`
defines, such as ListNode, cross by their fields.
"""

import json
from typing import Literal

from whet.errors import DataError
from whet.tasks.code import program, tests_text
from whet.tasks.code.judging import CodeConfig, CodeTask, Tests, judge, scored, text_of, unread
from whet.tasks.code.sandbox import Sandbox
from whet.types import Problem, Score


class CodeFunctionConfig(CodeConfig):
    name: Literal["code_function"] = "code_function"


class CodeFunction(CodeTask):
    """Run the tests of a row against the last program of a response that defines the entry."""

    name = "code_function"

    def __init__(self, config: CodeFunctionConfig | None = None) -> None:
        self.config = config or CodeFunctionConfig()
        self._sandbox = Sandbox(self.config.sandbox)

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the program passes every test. Parts: `correct` 0 or 1."""
        tests = tests_of(problem)
        if not tests.tests or not tests.entry:
            raise DataError(
                f"problem {problem.id} needs texts in payload.tests and a name in payload.entry"
            )
        found = program.last_definition(text, root(tests.entry))
        if found is None:
            return unread("there is no fenced program")
        return scored(judge(self._sandbox, tests, found, self.config.limits), found)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else program.fenced(problem.answer)


def root(entry: str) -> str:
    """Name what a program must define for an entry.

    >>> root("Solution().twoSum")
    'Solution'
    """
    return entry.partition(".")[0].removesuffix("()")


def tests_of(problem: Problem) -> Tests:
    listed = problem.payload.get("tests")
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(texts) < len(listed):
        raise DataError(
            f"problem {problem.id} needs a list of texts in payload.tests, not {json.dumps(listed)[:60]}"
        )
    return Tests(
        kind="function",
        tests="\n".join(texts),
        setup=text_of(problem, "setup"),
        entry=text_of(problem, "entry"),
    )


def unsupported(problem: Problem) -> str | None:
    """Say why a row cannot be graded here, for importers; None where it can."""
    tests = tests_of(problem)
    if not tests.entry:
        return "there is no entry to call"
    return tests_text.unsupported(
        tests.tests, entry=tests.entry, module=tests.module, setup=tests.setup
    )
