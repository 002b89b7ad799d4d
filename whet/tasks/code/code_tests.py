"""Programs graded by tests: functions (`code_function`) and modules (`code_pytest`).

code_function: rows of HumanEval, MBPP, LeetCode, LiveCodeBench and TACO.
    answer    the reference program, or null
    payload   {"entry": "has_close_elements", or "Solution().twoSum",
               "tests": ["def check(candidate): ...", or "assert f(1) == 2", ...],
               "setup": source that program and tests run first: imports, helpers, node classes}
code_pytest: tests that import the program as `solution` or as the row says.
    answer    the reference module, or null
    payload   {"tests": the test module's source, "module": the name it imports, else "solution",
               "setup": source that both sides run first, else ""}

Tests run in their own process, which never executes model text (see `referee`). For a function,
`candidate`, the entry's name and every name that the tests do not define themselves refer to the
program, and a function `check` is called with `candidate`. Arguments and results cross as plain
data, so arguments are copies, and a program's changes to them come back only to tests that check
them. Instances of classes that `setup` defines, such as ListNode, cross by their fields.
"""

import json
import time
from dataclasses import asdict, dataclass
from typing import Literal

from whet.tasks.base import data_error
from whet.tasks.code import frames, program, tests_text
from whet.tasks.code.code_task import (
    Allowance,
    CodeConfig,
    CodeTask,
    WrongError,
    ask_program,
    load_program,
    score_run,
    text_of,
    unread,
)
from whet.tasks.code.sandbox import LostError, Process, ProgramLimits, open_process
from whet.types import Problem, Score


class CodeFunctionConfig(CodeConfig):
    name: Literal["code_function"] = "code_function"


class CodePytestConfig(CodeConfig):
    name: Literal["code_pytest"] = "code_pytest"


class CodeFunction(CodeTask):
    """Run the tests of a row against the last program of a response that defines the entry."""

    name = "code_function"
    config: CodeFunctionConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Grade whether the program passes every test. Parts: `correct` 0 or 1."""
        tests = tests_of(problem)
        if not tests.tests or not tests.entry:
            needs = "texts in payload.tests and a name in payload.entry"
            raise data_error(problem, needs, dict(problem.payload))
        source = program.last_definition(text, tests_text.entry_root(tests.entry))
        return _score_tests(self.config, tests, source)


class CodePytest(CodeTask):
    """Run a test module against the last program of a response that is not itself a test."""

    name = "code_pytest"
    config: CodePytestConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Grade whether every test passes. Parts: `correct` 0 or 1."""
        tests = tests_of(problem)
        if not tests.tests:
            raise data_error(problem, "tests in payload.tests", tests.tests)
        if reason := tests_text.pytest_fault(tests.tests):
            raise data_error(problem, "tests that can run here", reason)
        return _score_tests(self.config, tests, program.last_module(text, tests.module))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The tests of a problem as source.

    `entry` is what `candidate` refers to, and `module` is what they may import.
    """

    kind: Literal["function", "pytest"]
    tests: str
    setup: str
    entry: str = ""
    module: str = "solution"


def tests_of(problem: Problem) -> Tests:
    setup = text_of(problem, "setup")
    if problem.task == CodePytest.name:
        module = text_of(problem, "module", "solution")
        tests = text_of(problem, "tests")
        return Tests(kind="pytest", tests=tests, setup=setup, module=module)
    given = problem.payload.get("tests")
    texts = [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
    if not isinstance(given, list) or len(texts) < len(given):
        raise data_error(problem, "a list of texts in payload.tests", given)
    entry = text_of(problem, "entry")
    return Tests(kind="function", tests="\n".join(texts), setup=setup, entry=entry)


def unsupported_reason(problem: Problem) -> str | None:
    """Explain why a row cannot be graded here, for importers; None if it can."""
    tests = tests_of(problem)
    if tests.kind == "function" and not tests.entry:
        return "there is no entry to call"
    return tests_text.unsupported_reason(
        tests.tests, entry=tests.entry, module=tests.module, setup=tests.setup
    )


def _score_tests(config: CodeConfig, tests: Tests, source: str | None) -> Score:
    if source is None:
        return unread("there is no fenced program")
    return score_run(lambda: _run_tests(config, tests, source), source)


def _run_tests(config: CodeConfig, tests: Tests, source: str) -> str:
    """Run tests against a program; anything but a timely answer in plain data is a failure."""
    limits = config.limits
    with (
        open_process(config.sandbox, "program", limits) as model,
        open_process(config.sandbox, "referee", limits) as referee,
    ):
        job = {"setup": tests.setup, "program": source, "entry": tests.entry}
        load_program(model, job, limits)
        return _relay(model, referee, tests, limits)


def _relay(model: Process, referee: Process, tests: Tests, limits: ProgramLimits) -> str:
    """Relay calls from the tests to the program, and its answers back, until there is a verdict."""
    num_calls = 0
    allowance = Allowance(limits.wall)
    tests_allowance = Allowance(limits.wall)
    reply = json.dumps(asdict(tests)).encode()
    try:
        while True:
            with tests_allowance.spend() as deadline:
                referee.send(reply, deadline)
                message = referee.receive(deadline)
            if message[:1] != b"C":
                break
            num_calls += 1
            reply = ask_program(model, message, allowance, limits)
    except (frames.LateError, frames.ClosedError) as error:
        fault = f"the tests are not done after {limits.wall:g} s"
        if isinstance(error, frames.ClosedError):
            referee.status(time.monotonic() + 1)
            fault = "the tests' process is gone"
        raise (WrongError if num_calls else LostError)(fault) from None
    report = json.loads(message[1:])
    if not report["passed"]:
        raise WrongError(report["note"])
    if num_calls == 0:
        raise LostError("the tests never called the program")
    return f"all tests pass, {num_calls} calls"
