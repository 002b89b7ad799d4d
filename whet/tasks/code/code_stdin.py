"""Programs that read standard input and write output: Codeforces, LiveCodeBench, TACO.

    answer    a reference program, or null
    payload   {"cases": [{"input": "...", "output": "..."}, ...],
               "tolerance": 1e-6 if the statement allows an error,
               "any_case": true if it allows YES and NO in any case}

Every case runs in a fresh sandbox, and the first that fails ends the run. Outputs are compared
exactly, except for what the whitespace setting ignores. Numbers may differ within a tolerance, and
words in case, only if the row says so.
"""

import re
import tempfile
import time
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import IO, Literal

from whet.tasks.base import data_error
from whet.tasks.code import program
from whet.tasks.code.code_task import CodeConfig, CodeTask, WrongError, score_run, unread
from whet.tasks.code.sandbox import run_script
from whet.types import Json, Problem, Score

Whitespace = Literal["exact", "lines", "tokens"]

_ERROR = re.compile(r"(?:absolute|relative)[^\n]{0,300}?10\^\{?-(\d{1,2})\}?")
_ANY_CASE = re.compile(r"in any case|case.insensitive", re.IGNORECASE)
_SEVERAL = re.compile(
    r"(?:print|output|report|find) any\b|(?:print|output)[^.\n]{0,80} in any order", re.IGNORECASE
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")


class CodeStdinConfig(CodeConfig):
    name: Literal["code_stdin"] = "code_stdin"
    whitespace: Whitespace = "lines"
    """Which differences are ignored: "lines" white space at the end of lines and of the output,
    "tokens" any white space, "exact" none."""


class CodeStdin(CodeTask):
    """Run the last program of a response on every case."""

    name = "code_stdin"
    config: CodeStdinConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Grade whether the program passes every case. Parts: `correct` 0 or 1."""
        cases = cases_of(problem)
        if not cases:
            raise data_error(problem, "cases in payload.cases", cases)
        source = program.last_program(text)
        if source is None:
            return unread("there is no fenced program")
        return score_run(lambda: self._run_cases(problem, cases, source), source)

    def _run_cases(self, problem: Problem, cases: list[tuple[str, str]], source: str) -> str:
        limits = self.config.limits
        tolerance = problem.payload.get("tolerance")
        deadline = time.monotonic() + limits.wall
        cpu_seconds = 0.0
        for number, (stdin, wanted) in enumerate(cases, 1):
            with _open_input(stdin) as file:
                result = run_script(source, file, limits, deadline, self.config.sandbox)
            if result.fault:
                raise WrongError(f"case {number}: {result.fault}")
            cpu_seconds += result.cpu_seconds
            if cpu_seconds > limits.seconds:
                late = f"not done after {limits.seconds:g} s of processor time"
                raise WrongError(f"case {number}: {late}")
            is_same = same_output(
                result.output.decode("utf-8", "replace"),
                wanted,
                whitespace=self.config.whitespace,
                tolerance=tolerance if isinstance(tolerance, float) else 0.0,
                any_case=problem.payload.get("any_case") is True,
            )
            if not is_same:
                raise WrongError(f"case {number}: wrong output")
        return f"{len(cases)} cases pass"


def _open_input(text: str) -> IO[bytes]:
    """Open a file without a name, so that none is left behind, for reading only."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        return Path(f"/proc/self/fd/{file.fileno()}").open("rb")


def same_output(
    output: str, wanted: str, *, whitespace: Whitespace, tolerance: float, any_case: bool
) -> bool:
    """Compare an output with the expected one.

    >>> same_output("1 2 \\n", "1 2", whitespace="lines", tolerance=0.0, any_case=False)
    True
    >>> same_output("1.0", "1", whitespace="tokens", tolerance=0.0, any_case=False)
    False
    """
    if any_case:
        output = output.casefold()
        wanted = wanted.casefold()
    left = _pieces(output, whitespace)
    right = _pieces(wanted, whitespace)
    if left == right:
        return True
    if not tolerance or [len(line) for line in left] != [len(line) for line in right]:
        return False
    pairs = zip(chain(*left), chain(*right), strict=True)
    return all(one == other or _is_near(one, other, tolerance) for one, other in pairs)


def policies(statement: str) -> dict[str, Json]:
    """Read from a statement which differences are allowed: the payload's `tolerance` and
    `any_case`.

    >>> policies("accepted if the absolute or relative error does not exceed $10^{-6}$")
    {'tolerance': 1e-06}
    """
    allowances: dict[str, Json] = {}
    if error := _ERROR.search(statement):
        allowances["tolerance"] = float(f"1e-{error[1]}")
    if _ANY_CASE.search(statement):
        allowances["any_case"] = True
    return allowances


def unsupported_reason(statement: str, problem: Problem) -> str | None:
    """Explain why a row cannot be graded here, for importers; None if it can."""
    if not cases_of(problem):
        return "there are no cases of input and output"
    if several := _SEVERAL.search(statement):
        return f"several outputs are right ({several[0]!r}) and there is no checker"
    return None


def cases_of(problem: Problem) -> list[tuple[str, str]]:
    given = problem.payload.get("cases", [])
    pairs: list[tuple[str, str]] = []
    for row in given if isinstance(given, list) else ():
        if isinstance(row, dict) and row.keys() >= {"input", "output"}:
            pairs.append((str(row["input"]), str(row["output"])))
    if not isinstance(given, list) or len(pairs) < len(given):
        raise data_error(problem, "a list of inputs and outputs in payload.cases", given)
    return pairs


def _pieces(text: str, whitespace: Whitespace) -> list[list[str]]:
    """Split an output into lines of pieces that must be equal."""
    if whitespace == "exact":
        return [[text]]
    if whitespace == "tokens":
        return [text.split()]
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return [line.split(" ") for line in lines]


def _is_near(output: str, wanted: str, tolerance: float) -> bool:
    if len(output) > 100 or not _NUMBER.fullmatch(output) or not _NUMBER.fullmatch(wanted):
        return False
    one = float(output)
    other = float(wanted)
    return isfinite(one) and abs(one - other) <= tolerance * max(1.0, abs(other))
