"""Programs that read standard input and write standard output: Codeforces, LiveCodeBench and TACO
rows.

    answer    a reference program, or null
    payload   {"cases": [{"input": "...", "output": "..."}, ...],
               "tolerance": 1e-6 where the statement allows an error,
               "any_case": true where it allows YES and NO in any case}

Every case runs in a fresh sandbox, and the first that fails ends the run. Outputs are compared
exactly but for what the whitespace setting leaves out; numbers within a tolerance, and words in any
case, only where the row says so.
"""

import json
import re
import tempfile
import time
from math import isfinite
from pathlib import Path
from typing import Literal

from whet.errors import DataError
from whet.tasks.code import program
from whet.tasks.code.judging import CodeConfig, CodeTask, Judged, contained, scored, unread
from whet.tasks.code.sandbox import Sandbox
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
    """What may differ: "lines" blanks at the end of lines and of the output, "tokens" any white
    space, "exact" none."""


class CodeStdin(CodeTask):
    """Run the last program of a response on every case."""

    name = "code_stdin"
    config: CodeStdinConfig

    def __init__(self, config: CodeStdinConfig | None = None) -> None:
        self.config = config or CodeStdinConfig()
        self._sandbox = Sandbox(self.config.sandbox)

    def score(self, problem: Problem, text: str) -> Score:
        """State whether every case comes out right. Parts: `correct` 0 or 1."""
        cases = cases_of(problem)
        if not cases:
            raise DataError(f"problem {problem.id} has no cases in payload.cases")
        found = program.last_program(text)
        if found is None:
            return unread("there is no fenced program")
        return scored(contained(lambda: self._judged(problem, cases, found)), found)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else program.fenced(problem.answer)

    def _judged(self, problem: Problem, cases: list[tuple[str, str]], source: str) -> Judged:
        limits = self.config.limits
        deadline = time.monotonic() + limits.seconds
        for place, (given, wanted) in enumerate(cases, 1):
            with tempfile.NamedTemporaryFile() as file:
                file.write(given.encode("utf-8", "replace"))
                file.flush()
                with Path(file.name).open("rb") as read_only:
                    ran = self._sandbox.script(source, read_only, limits, deadline)
            if ran.fault:
                return Judged(passed=False, note=f"case {place}: {ran.fault}")
            if not self._same(problem, ran.output, wanted):
                return Judged(passed=False, note=f"case {place}: wrong output")
        return Judged(passed=True, note=f"{len(cases)} cases pass")

    def _same(self, problem: Problem, output: bytes, wanted: str) -> bool:
        tolerance = problem.payload.get("tolerance")
        return same_output(
            output.decode("utf-8", "replace"),
            wanted,
            whitespace=self.config.whitespace,
            tolerance=tolerance if isinstance(tolerance, float) else 0.0,
            any_case=problem.payload.get("any_case") is True,
        )


def same_output(
    said: str, wanted: str, *, whitespace: Whitespace, tolerance: float, any_case: bool
) -> bool:
    """Compare an output with the wanted one.

    >>> same_output("1 2 \\n", "1 2", whitespace="lines", tolerance=0.0, any_case=False)
    True
    >>> same_output("1.0", "1", whitespace="tokens", tolerance=0.0, any_case=False)
    False
    """
    if any_case:
        said = said.casefold()
        wanted = wanted.casefold()
    left = _pieces(said, whitespace)
    right = _pieces(wanted, whitespace)
    if left == right:
        return True
    if not tolerance or [len(line) for line in left] != [len(line) for line in right]:
        return False
    pairs = [pair for lines in zip(left, right, strict=True) for pair in zip(*lines, strict=True)]
    return all(one == other or _near(one, other, tolerance) for one, other in pairs)


def policies(statement: str) -> dict[str, Json]:
    """Read from a statement what may differ: the payload's `tolerance` and `any_case`.

    >>> policies("accepted if the absolute or relative error does not exceed $10^{-6}$")
    {'tolerance': 1e-06}
    """
    found: dict[str, Json] = {}
    if error := _ERROR.search(statement):
        found["tolerance"] = float(f"1e-{error[1]}")
    if _ANY_CASE.search(statement):
        found["any_case"] = True
    return found


def unsupported(statement: str, problem: Problem) -> str | None:
    """Say why a row cannot be graded here, for importers; None where it can."""
    if not cases_of(problem):
        return "there are no cases of input and output"
    if several := _SEVERAL.search(statement):
        return f"several outputs are right ({several[0]!r}) and there is no checker"
    return None


def cases_of(problem: Problem) -> list[tuple[str, str]]:
    listed = problem.payload.get("cases", [])
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    pairs = [
        (str(row["input"]), str(row["output"]))
        for row in rows
        if "input" in row and "output" in row
    ]
    if not isinstance(listed, list) or len(pairs) < len(listed):
        said = json.dumps(listed)[:60]
        raise DataError(
            f"problem {problem.id} needs a list of inputs and outputs in payload.cases, not {said}"
        )
    return pairs


def _pieces(text: str, whitespace: Whitespace) -> list[list[str]]:
    """Cut an output into lines of pieces that must be equal."""
    if whitespace == "exact":
        return [[text]]
    if whitespace == "tokens":
        return [text.split()]
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return [line.split(" ") for line in lines]


def _near(said: str, wanted: str, tolerance: float) -> bool:
    if len(said) > 100 or not _NUMBER.fullmatch(said) or not _NUMBER.fullmatch(wanted):
        return False
    one = float(said)
    other = float(wanted)
    return isfinite(one) and abs(one - other) <= tolerance * max(1.0, abs(other))
