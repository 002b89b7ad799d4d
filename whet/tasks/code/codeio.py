"""CodeI/O: predict a program's output, or find an input that gives an output, both as JSON.

    answer    the recorded output or input, as JSON text
    payload   {"program": source, "entry": the function, else "main_solution",
               "direction": "input" or "output", "input": {argument: value}, "output": value}

The last JSON value of the response counts, with or without {"input": ...} or {"output": ...} around
it. A predicted output is compared as JSON: true is not 1, and 1 is 1.0. A predicted input counts if
running the program on it, in the sandbox, gives the recorded output, whatever input was recorded.
"""

import json
from typing import Literal

from whet.tasks.answers import read_final
from whet.tasks.code import tests_text
from whet.tasks.code.code_task import (
    CodeConfig,
    CodeTask,
    WrongError,
    check_call,
    score_run,
    text_of,
    unread,
)
from whet.tasks.code.cruxeval import Direction, direction_of
from whet.types import Json, Problem, Score


class CodeIOConfig(CodeConfig):
    name: Literal["codeio"] = "codeio"


class CodeIO(CodeTask):
    """Compare a predicted output, or run the program on a predicted input."""

    name = "codeio"
    config: CodeIOConfig

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the predicted value is right. Parts: `correct` 0 or 1."""
        direction = direction_of(problem)
        answer = read_final(text, lambda span: _read(span, direction))
        if answer is None:
            return unread("no JSON value could be read")
        span, (value,) = answer
        return score_run(lambda: self._check(problem, direction, value), span)

    def solve(self, problem: Problem, seed: int) -> str | None:
        direction = text_of(problem, "direction")
        return f"```json\n{json.dumps({direction: problem.payload.get(direction)})}\n```"

    def _check(self, problem: Problem, direction: Direction, value: Json) -> str:
        if equal(value, problem.payload.get(direction)):
            return f"the recorded {direction}"
        if direction == "output":
            raise WrongError("another output")
        if not isinstance(value, dict):
            raise WrongError("the input is not an object of arguments")
        entry = text_of(problem, "entry", "main_solution")
        job = {"program": text_of(problem, "program"), "entry": entry}
        wanted = problem.payload.get("output")
        return check_call(self.config, job, ((), value), lambda output: equal(output, wanted))


def unsupported_reason(problem: Problem) -> str | None:
    """Explain why a row cannot be graded here, for importers; None where it can."""
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
        if len(value) != len(wanted):
            return False
        return all(equal(one, two, depth + 1) for one, two in zip(value, wanted, strict=True))
    if isinstance(value, dict) and isinstance(wanted, dict):
        own = {_key(key): item for key, item in value.items()}
        other = {_key(key): item for key, item in wanted.items()}
        if own.keys() != other.keys():
            return False
        return all(equal(own[key], other[key], depth + 1) for key in own)
    is_number = isinstance(value, int | float) and isinstance(wanted, int | float)
    return (is_number or type(value) is type(wanted)) and value == wanted


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    return json.dumps(key) if isinstance(key, int | float | None) else repr(key)


def _read(span: str, direction: Direction) -> tuple[Json] | None:
    for text in dict.fromkeys((span, span[span.find("{") : span.rfind("}") + 1])):
        try:
            value: Json = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.keys() == {direction}:
            return (value[direction],)
        return (value,)
    return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
