"""CodeI/O: given a program, predict its output for an input, or find an input that gives an output,
both as JSON.

    answer    the recorded output or input, as JSON text
    payload   {"program": source, "entry": the function, "main_solution" where not given,
               "direction": "input" or "output", "input": {argument: value}, "output": value}

The last JSON value of the response counts, with or without {"input": ...} or {"output": ...} around
it. A predicted output is compared as JSON: true is not 1, and 1 is 1.0. A predicted input counts if
running the program on it, in the sandbox, gives the recorded output, whatever input was recorded.
"""

import json
from typing import Literal

from whet.tasks.answers import read_final
from whet.tasks.code import plain, tests_text
from whet.tasks.code.cruxeval import Direction, direction_of, returned
from whet.tasks.code.judging import (
    CodeConfig,
    CodeTask,
    Judged,
    call,
    contained,
    scored,
    text_of,
    unread,
)
from whet.tasks.code.sandbox import Sandbox
from whet.types import Json, Problem, Score


class CodeIOConfig(CodeConfig):
    name: Literal["codeio"] = "codeio"


class CodeIO(CodeTask):
    """Compare a predicted output, or run the program on a predicted input."""

    name = "codeio"

    def __init__(self, config: CodeIOConfig | None = None) -> None:
        self.config = config or CodeIOConfig()
        self._sandbox = Sandbox(self.config.sandbox)

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the predicted value is right. Parts: `correct` 0 or 1."""
        direction = direction_of(problem)
        found = read_final(text, lambda span: _read(span, direction))
        if found is None:
            return unread("no JSON value could be read")
        span, (value,) = found
        if equal(value, problem.payload.get(direction)):
            return scored(Judged(passed=True, note=f"the recorded {direction}"), span)
        if direction == "output":
            return scored(Judged(passed=False, note="another output"), span)
        return scored(contained(lambda: self._ran(problem, value)), span)

    def solve(self, problem: Problem, seed: int) -> str | None:
        direction = text_of(problem, "direction")
        return f"```json\n{json.dumps({direction: problem.payload.get(direction)})}\n```"

    def _ran(self, problem: Problem, value: Json) -> Judged:
        if not isinstance(value, dict):
            return Judged(passed=False, note="the input is not an object of arguments")
        entry = text_of(problem, "entry", "main_solution")
        limits = self.config.limits
        reply = call(
            self._sandbox,
            text_of(problem, "program"),
            entry,
            list(plain.encode(((), value))),
            limits,
        )
        if isinstance(reply, str):
            return Judged(passed=False, note=reply)
        found = returned(reply)
        is_right = found is not None and equal(found[0], problem.payload.get("output"))
        return Judged(
            passed=is_right, note="gives the output" if is_right else "does not give the output"
        )


def unsupported(problem: Problem) -> str | None:
    """Say why a row cannot be graded here, for importers; None where it can."""
    if text_of(problem, "direction") not in ("input", "output"):
        return "the direction is neither input nor output"
    return tests_text.runs_text(text_of(problem, "program"))


def equal(value: object, wanted: object, depth: int = 0) -> bool:
    """Compare as JSON: tuples are lists, keys are text, true is not 1.

    >>> equal((1, {2: 1.0}), [1, {"2": 1}]), equal(True, 1)
    (True, False)
    """
    if depth > 100 or isinstance(value, bool) is not isinstance(wanted, bool):
        return False
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        is_long = len(value) != len(wanted)
        return not is_long and all(
            equal(one, other, depth + 1) for one, other in zip(value, wanted, strict=True)
        )
    if isinstance(value, dict) and isinstance(wanted, dict):
        own, other = ({_key(key): item for key, item in side.items()} for side in (value, wanted))
        return own.keys() == other.keys() and all(
            equal(own[key], other[key], depth + 1) for key in own
        )
    is_number = isinstance(value, int | float) and isinstance(wanted, int | float)
    return (is_number or type(value) is type(wanted)) and value == wanted


def _key(key: object) -> str:
    return (
        key
        if isinstance(key, str)
        else json.dumps(key)
        if isinstance(key, int | float | None)
        else repr(key)
    )


def _read(span: str, direction: Direction) -> tuple[Json] | None:
    for text in dict.fromkeys((span, span[span.find("{") : span.rfind("}") + 1])):
        try:
            value: Json = json.loads(text, parse_constant=_refused)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.keys() == {direction}:
            return (value[direction],)
        return (value,)
    return None


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
