"""CRUXEval: given a short function, say what it returns for an input, or find an input that gives an output.

    answer    the recorded output or input, as Python text
    payload   {"program": source that defines f, "direction": "input" or "output",
               "input": the recorded arguments, "output": the recorded result, both as Python literals}

A response ends with the assertion completed, the call, or the literal alone. A predicted output is compared as a value
and nothing is run. A predicted input counts if running the function on it gives the recorded output; the function runs
in the sandbox, on literals only.
"""

import ast
import json
from collections.abc import Mapping
from typing import Literal

from whet.errors import DataError
from whet.tasks.answers import read_final
from whet.tasks.code import plain, program, tests_text
from whet.tasks.code.judging import CodeConfig, CodeTask, Judged, call, contained, scored, text_of, unread
from whet.tasks.code.sandbox import Sandbox
from whet.types import Json, Message, Problem, Score, Split, content_id

Direction = Literal["input", "output"]
Arguments = tuple[tuple[object, ...], dict[str, object]]

MAX_CHARS = 4096
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
        if text_of(problem, "direction") == "output":
            said = read_final(marked, _output)
            if said is None:
                return unread("no literal could be read")
            is_right = said[1][0] == wanted[0]
            return scored(
                Judged(passed=is_right, note="the output is right" if is_right else "another output"), said[0]
            )
        given = read_final(marked, _arguments)
        if given is None:
            return unread("no arguments could be read")
        return scored(contained(lambda: self._ran(problem, given[1], wanted[0])), given[0])

    def solve(self, problem: Problem, seed: int) -> str | None:
        text = f"assert f({text_of(problem, 'input')}) == {text_of(problem, 'output')}"
        return program.fenced(text)

    def _ran(self, problem: Problem, arguments: Arguments, wanted: object) -> Judged:
        data = plain.encode(arguments)
        reply = call(self._sandbox, text_of(problem, "program"), "f", list(data), self.config.limits)
        if isinstance(reply, str):
            return Judged(passed=False, note=reply)
        found = returned(reply)
        is_right = found is not None and found[0] == wanted
        return Judged(passed=is_right, note="gives the output" if is_right else "does not give the output")


def problem_of(row: Mapping[str, Json], direction: Direction, split: Split = "test") -> Problem:
    """Make a problem of a published row: code, input, output and id."""
    code, given, result = str(row["code"]), str(row["input"]), str(row["output"])
    blank = f"assert f(??) == {result}" if direction == "input" else f"assert f({given}) == ??"
    question = (
        f"```python\n{code.strip()}\n\n{blank}\n```\n{_ASKED[direction]} End with the assertion in a python block."
    )
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


def literal(text: str) -> tuple[object] | None:
    """Read one Python literal, wrapped so that None can be told from nothing.

    >>> literal("{'a': (1, 2)}"), literal("f(1)")
    (({'a': (1, 2)},), None)
    """
    node = _expression(text)
    return None if node is None else _value(node)


def returned(reply: bytes) -> tuple[object] | None:
    """Read the answer of a program's process; None where it raised or is not plain."""
    try:
        row = json.loads(reply)
        return (plain.decode(row["value"]),) if isinstance(row, dict) and "value" in row else None
    except (ValueError, RecursionError, plain.NotPlainError):
        return None


def _expression(text: str) -> ast.expr | None:
    """Parse an expression, or the condition of an assertion; a longer block by its last line."""
    text = text.strip()
    if len(text) > MAX_CHARS:
        return None
    for source in dict.fromkeys((text, text.rpartition("\n")[2])):
        tree = tests_text.parse(source.strip())
        node = tree.body[0] if tree is not None and len(tree.body) == 1 else None
        if isinstance(node, ast.Assert):
            return node.test
        if isinstance(node, ast.Expr):
            return node.value
    return None


def _value(node: ast.expr) -> tuple[object] | None:
    try:
        value = ast.literal_eval(node)
        plain.encode(value)  # the dots of `f(...)` are a literal too
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError, plain.NotPlainError):
        return None
    return (value,)


def _output(text: str) -> tuple[object] | None:
    node = _expression(text)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        node = node.comparators[0] if _is_call(node.left) else None
    return None if node is None else _value(node)


def _arguments(text: str) -> Arguments | None:
    node = _expression(text)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        node = node.left
    if node is not None and not _is_call(node):
        node = _expression(f"f({text.strip()})")
    if not isinstance(node, ast.Call) or not _is_call(node):
        return None
    args = [_value(argument) for argument in node.args]
    named = {keyword.arg: _value(keyword.value) for keyword in node.keywords}
    if any(value is None for value in (*args, *named.values())) or None in named:
        return None
    return tuple(value[0] for value in args if value), {
        name: value[0] for name, value in named.items() if name and value
    }


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "f"
