"""CRUXEval: given a short function, say what it returns for an input, or find an input that gives
an output.

    answer    the recorded output or input, as Python text
    payload   {"program": source that defines f, "direction": "input" or "output",
               "input": the recorded arguments, "output": the recorded result, both as Python literals}

A response ends with the assertion completed, the call, or the literal alone. A predicted output is
compared as a value of the same types, true is not 1, and nothing is run. A predicted input counts
if running the function on it gives the recorded output; the function runs in the sandbox, on
literals only. An assertion about another call than the one asked, or another output, is wrong.
"""

import json
from collections.abc import Mapping
from typing import Literal

from whet.errors import DataError
from whet.tasks.answers import read_final
from whet.tasks.code import plain, program, tests_text
from whet.tasks.code.assertions import (
    Arguments,
    Claim,
    is_same_call,
    literal,
    read_arguments,
    read_output,
    same,
)
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
from whet.types import Json, Message, Problem, Score, Split, content_id

Direction = Literal["input", "output"]
_ASKED: dict[Direction, str] = {
    "input": "Find arguments for which the assertion holds; any that give this output are right.",
    "output": "Complete the assertion with the literal that the call returns.",
}


class CruxEvalConfig(CodeConfig):
    name: Literal["cruxeval"] = "cruxeval"


class CruxEval(CodeTask):
    """Compare a predicted output, or run the function on a predicted input."""

    name = "cruxeval"

    def __init__(self, config: CruxEvalConfig | None = None) -> None:
        self.config = config or CruxEvalConfig()
        self._sandbox = Sandbox(self.config.sandbox)

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the predicted value is right. Parts: `correct` 0 or 1."""
        marked = text.replace("[ANSWER]", "<answer>").replace("[/ANSWER]", "</answer>")
        wanted = literal(text_of(problem, "output"))
        if wanted is None:
            raise DataError(f"problem {problem.id} needs a Python literal in payload.output")
        if direction_of(problem) == "output":
            said = read_final(marked, read_output)
            return (
                unread("no literal could be read")
                if said is None
                else scored(_compared(problem, said[1]), said[0])
            )
        given = read_final(marked, read_arguments)
        if given is None:
            return unread("no arguments could be read")
        claimed = read_final(marked, read_output)
        if (
            claimed is not None
            and claimed[1].call is not None
            and not same(claimed[1].value, wanted[0])
        ):
            return scored(
                Judged(passed=False, note="the assertion is about another output"), given[0]
            )
        return scored(contained(lambda: self._ran(problem, given[1], wanted[0])), given[0])

    def solve(self, problem: Problem, seed: int) -> str | None:
        text = f"assert f({text_of(problem, 'input')}) == {text_of(problem, 'output')}"
        return program.fenced(text)

    def _ran(self, problem: Problem, arguments: Arguments, wanted: object) -> Judged:
        data = plain.encode(arguments)
        reply = call(
            self._sandbox, text_of(problem, "program"), "f", list(data), self.config.limits
        )
        if isinstance(reply, str):
            return Judged(passed=False, note=reply)
        found = returned(reply)
        is_right = found is not None and same(found[0], wanted)
        return Judged(
            passed=is_right, note="gives the output" if is_right else "does not give the output"
        )


def direction_of(problem: Problem) -> Direction:
    """Read what is asked for; an input cannot be tried without the program."""
    said = text_of(problem, "direction")
    source = text_of(problem, "program")
    if said == "input" and source:
        return "input"
    if said == "output":
        return "output"
    raise DataError(
        f"problem {problem.id} needs input or output in payload.direction, not {said!r}, and for an input the program"
    )


def problem_of(row: Mapping[str, Json], direction: Direction, split: Split = "test") -> Problem:
    """Make a problem of a published row: code, input, output and id."""
    code = str(row["code"])
    given = str(row["input"])
    result = str(row["output"])
    blank = f"assert f(??) == {result}" if direction == "input" else f"assert f({given}) == ??"
    question = f"```python\n{code.strip()}\n\n{blank}\n```\n{_ASKED[direction]} End with the assertion in a python block."
    return Problem(
        id=content_id("cruxeval", [code, direction, given, result]),
        task="cruxeval",
        prompt=(Message(role="user", content=question),),
        answer=given if direction == "input" else result,
        payload={"program": code, "direction": direction, "input": given, "output": result},
        level=None,
        split=split,
        source="cruxeval",
        source_id=str(row["id"]),
    )


def unsupported(problem: Problem) -> str | None:
    """Say why a row cannot be graded here, for importers; None where it can."""
    if literal(text_of(problem, "output")) is None:
        return "the recorded output is not a literal"
    return tests_text.runs_text(text_of(problem, "program"))


def returned(reply: bytes) -> tuple[object] | None:
    """Read the answer of a program's process; None where it raised or is not plain."""
    try:
        row = json.loads(reply)
        return (plain.decode(row["value"]),) if isinstance(row, dict) and "value" in row else None
    except (ValueError, RecursionError, plain.NotPlainError):
        return None


def _compared(problem: Problem, said: Claim) -> Judged:
    """Judge a predicted output: of the call that was asked, and equal to the recorded one."""
    given = text_of(problem, "input")
    source = text_of(problem, "program")
    wanted = literal(text_of(problem, "output"))
    if (
        said.call is not None
        and "input" in problem.payload
        and not is_same_call(said.call, given, source)
    ):
        return Judged(passed=False, note="the assertion is about another call")
    is_right = wanted is not None and same(said.value, wanted[0])
    return Judged(passed=is_right, note="the output is right" if is_right else "another output")
