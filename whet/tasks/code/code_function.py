"""Functions graded by tests: rows of HumanEval, MBPP, LeetCode, LiveCodeBench and TACO.

    answer    the reference program, or null
    payload   {"entry": "has_close_elements", or "Solution().twoSum",
               "tests": ["def check(candidate): ...", or "assert f(1) == 2", ...],
               "setup": source that program and tests run first: imports, helpers, node classes}

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


class CodeFunctionConfig(CodeConfig):
    name: Literal["code_function"] = "code_function"


class CodeFunction(CodeTask):
    """Run the tests of a row against the last program of a response that defines the entry."""

    name = "code_function"
    config: CodeFunctionConfig

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the program passes every test. Parts: `correct` 0 or 1."""
        tests = tests_of(problem)
        if not tests.tests or not tests.entry:
            raise DataError(
                f"problem {problem.id} needs texts in payload.tests and a name in payload.entry"
            )
        source = program.last_definition(text, root(tests.entry))
        if source is None:
            return unread("there is no fenced program")
        return to_score(
            run_tests(Sandbox(self.config.sandbox), tests, source, self.config.limits), source
        )


def root(entry: str) -> str:
    """Name what a program must define for an entry.

    >>> root("Solution().twoSum")
    'Solution'
    """
    return entry.partition(".")[0].removesuffix("()")


def tests_of(problem: Problem) -> Tests:
    given = problem.payload.get("tests")
    texts = [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
    if not isinstance(given, list) or len(texts) < len(given):
        raise DataError(
            f"problem {problem.id} needs a list of texts in payload.tests, "
            f"not {json.dumps(given)[:60]}"
        )
    return Tests(
        kind="function",
        tests="\n".join(texts),
        setup=text_of(problem, "setup"),
        entry=text_of(problem, "entry"),
    )


def unsupported_reason(problem: Problem) -> str | None:
    """Explain why a row cannot be graded here, for importers; None where it can."""
    tests = tests_of(problem)
    if not tests.entry:
        return "there is no entry to call"
    return tests_text.unsupported_reason(
        tests.tests, entry=tests.entry, module=tests.module, setup=tests.setup
    )
