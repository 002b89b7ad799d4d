"""Predict what a program returns, or find an input that gives an output: CRUXEval and CodeI/O.

cruxeval: the value is a Python literal.
    answer    the recorded output or input, as Python text
    payload   {"program": source that defines f, "direction": "input" or "output",
               "input": the recorded arguments, "output": the recorded result, as literals}
codeio: the value is JSON.
    answer    the recorded output or input, as JSON text
    payload   {"program": source, "entry": the function, else "main_solution",
               "direction": "input" or "output", "input": {argument: value}, "output": value}

A predicted output is compared with the recorded one, and nothing is run. A predicted input counts
if running the program on it, in the sandbox, gives the recorded output, whatever was recorded.

A response to cruxeval ends with the assertion completed, the call, or the literal alone; true is
not 1, and 1 is not 1.0. An assertion about another call than the one asked, or another output, is
wrong. Of a response to codeio the last JSON value counts, with or without {"input": ...} or
{"output": ...} around it; true is not 1, and 1 is 1.0.
"""

import ast
import json
from collections.abc import Mapping
from typing import Literal, TypeGuard

from whet.answers.doubt import is_doubtful
from whet.answers.withdrawal import is_disowned
from whet.json_values import content_id
from whet.tasks.answers import read_final
from whet.tasks.base import data_error
from whet.tasks.code import plain, program, tests_text
from whet.tasks.code.code_task import (
    CallArguments,
    CodeConfig,
    CodeTask,
    WrongError,
    check_call,
    score_run,
    text_of,
    unread,
)
from whet.types import Json, Message, Problem, Score, Split

Direction = Literal["input", "output"]
_ASKED: dict[Direction, str] = {
    "input": "Find arguments for which the assertion holds; any that give this output are right.",
    "output": "Complete the assertion with the literal that the call returns.",
}
_MAX_CHARS = 4096
Claim = tuple[object, ast.Call | None]
"""An output, and the call that an assertion claims to give it."""


class CruxEvalConfig(CodeConfig):
    name: Literal["cruxeval"] = "cruxeval"


class CodeIOConfig(CodeConfig):
    name: Literal["codeio"] = "codeio"


class CruxEval(CodeTask):
    """Compare a predicted output, or run the function on a predicted input."""

    name = "cruxeval"
    config: CruxEvalConfig

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the predicted value is right. Parts: `correct` 0 or 1."""
        marked = text.replace("[ANSWER]", "<answer>").replace("[/ANSWER]", "</answer>")
        wanted = read_literal(text_of(problem, "output"))
        if wanted is None:
            raise data_error(problem, "a literal in payload.output", text_of(problem, "output"))
        if direction_of(problem) == "output":
            predicted = read_final(marked, read_output)
            if predicted is None:
                return unread("no literal could be read")
            span, claim = predicted
            return score_run(lambda: _check_output(problem, claim, wanted[0]), span)
        arguments = read_final(marked, read_arguments)
        if arguments is None:
            return unread("no arguments could be read")
        span, args = arguments
        _, (claimed, call) = read_final(marked, read_output) or ("", (None, None))

        def check_input() -> str:
            if call and not is_same_value(claimed, wanted[0]):
                raise WrongError("the assertion is about another output")
            job = {"program": text_of(problem, "program"), "entry": "f"}
            return check_call(self.config, job, args, lambda value: is_same_value(value, wanted[0]))

        return score_run(check_input, span)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return program.fence(
            f"assert f({text_of(problem, 'input')}) == {text_of(problem, 'output')}"
        )


class CodeIO(CodeTask):
    """Compare a predicted output, or run the program on a predicted input."""

    name = "codeio"
    config: CodeIOConfig

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the predicted value is right. Parts: `correct` 0 or 1."""
        direction = direction_of(problem)
        answer = read_final(text, lambda span: _read_json(span, direction))
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


def direction_of(problem: Problem) -> Direction:
    """Read what is asked for; an input cannot be tried without the program."""
    direction = text_of(problem, "direction")
    if direction == "input" and text_of(problem, "program"):
        return "input"
    if direction == "output":
        return "output"
    needs = "input with its program, or output, in payload.direction"
    raise data_error(problem, needs, direction)


def problem_of(row: Mapping[str, Json], direction: Direction, split: Split = "test") -> Problem:
    """Make a problem of a published row: code, input, output and id."""
    code = str(row["code"])
    given = str(row["input"])
    result = str(row["output"])
    blank = f"assert f(??) == {result}" if direction == "input" else f"assert f({given}) == ??"
    question = (
        f"```python\n{code.strip()}\n\n{blank}\n```\n{_ASKED[direction]} "
        "End with the assertion in a python block."
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


def unsupported_reason(problem: Problem) -> str | None:
    """Explain why a row cannot be graded here, for importers; None if it can."""
    if problem.task == CruxEval.name and read_literal(text_of(problem, "output")) is None:
        return "the recorded output is not a literal"
    if problem.task == CodeIO.name and text_of(problem, "direction") not in ("input", "output"):
        return "the direction is neither input nor output"
    return tests_text.runs_text(text_of(problem, "program"))


def _check_output(problem: Problem, claim: Claim, wanted: object) -> str:
    """Judge a predicted output: of the call that was asked, and equal to the recorded one."""
    value, call = claim
    if call is not None and "input" in problem.payload:
        given = text_of(problem, "input")
        if not is_same_call(call, given, text_of(problem, "program")):
            raise WrongError("the assertion is about another call")
    if not is_same_value(value, wanted):
        raise WrongError("another output")
    return "the output is right"


def read_literal(text: str) -> tuple[object] | None:
    """Read one Python literal, wrapped so that None can be told from nothing.

    >>> read_literal("{'a': (1, 2)}"), read_literal("f(1)")
    (({'a': (1, 2)},), None)
    """
    node = _expression(text)
    return None if node is None else _value(node)


def is_same_value(one: object, other: object) -> bool:
    """Compare values as Python does, with their types: True is not 1, and 1 is not 1.0.

    >>> is_same_value([1, {"a": 2}], [1, {"a": 2}])
    True
    >>> is_same_value([True, 2], [1, 2]), is_same_value({1.0}, {1})
    (False, False)
    """
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return all(is_same_value(left, right) for left, right in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        own = {key: key for key in other}
        return all(
            is_same_value(key, own[key]) and is_same_value(item, other[key])
            for key, item in one.items()
        )
    if isinstance(one, set | frozenset) and isinstance(other, set | frozenset):
        twins = {item: item for item in other}
        return all(is_same_value(item, twins[item]) for item in one)
    return True


def read_output(text: str) -> Claim | None:
    """Read an output: a literal, or the right side of an assertion about a call of `f`."""
    node = _expression(text)
    call = None
    if _is_equation(node):
        call = node.left if _is_call(node.left) else None
        node = node.comparators[0] if call is not None else None
    value = None if node is None else _value(node)
    return None if value is None else (value[0], call)


def read_arguments(text: str) -> CallArguments | None:
    """Read the literals that `f` is called with, in an assertion, a call, or alone."""
    node = _expression(text)
    if _is_equation(node):
        node = node.left
    if node is not None and not _is_call(node):
        node = _expression(f"f({text.strip()})")
    if not _is_call(node):
        return None
    positional = [_value(argument) for argument in node.args]
    by_name = {keyword.arg: _value(keyword.value) for keyword in node.keywords}
    if None in positional or None in by_name.values() or None in by_name:
        return None
    values = tuple(value[0] for value in positional if value)
    return values, {name: value[0] for name, value in by_name.items() if name and value}


def is_same_call(call: ast.Call, given: str, source: str) -> bool:
    """Tell whether a call has the arguments of a text such as `'hello', n=3`, by place or name."""
    asked = _expression(f"f({given})")
    if not isinstance(asked, ast.Call):
        return True
    names = _parameters(source)
    one = _bind(call, names)
    other = _bind(asked, names)
    if one.keys() != other.keys():
        return False
    return all(_same_nodes(node, other[name]) for name, node in one.items())


def _is_call(node: ast.expr | None) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "f"


def _is_equation(node: ast.expr | None) -> TypeGuard[ast.Compare]:
    return isinstance(node, ast.Compare) and [type(sign) for sign in node.ops] == [ast.Eq]


def _expression(text: str) -> ast.expr | None:
    """Parse an expression, or the condition of an assertion; a longer block by its last line."""
    text = text.strip()
    if len(text) > _MAX_CHARS:
        return None
    line = text.rpartition("\n")[2]
    for source in dict.fromkeys((text, line, _closing_assertion(line))):
        tree = tests_text.parse_python(source.strip())
        node = tree.body[0] if tree is not None and len(tree.body) == 1 else None
        if isinstance(node, ast.Assert):
            return node.test
        if isinstance(node, ast.Expr):
            return node.value
    return None


def _closing_assertion(line: str) -> str:
    """Take the one assertion that a sentence ends with: `so we may take assert f(1) == 2.`"""
    lead, assertion, rest = line.rpartition("assert ")
    if not lead or "assert " in lead or is_doubtful(lead) or is_disowned(f"{lead.rstrip(' :`')}:"):
        return ""
    return assertion + rest.rstrip(" .`*")


def _value(node: ast.expr) -> tuple[object] | None:
    try:
        value = ast.literal_eval(node)
        plain.encode_value(value)  # the dots of `f(...)` are a literal too
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError, plain.NotPlainError):
        return None
    return (value,)


def _parameters(source: str) -> list[str]:
    """List the names by which f takes its arguments, in order."""
    tree = tests_text.parse_python(source)
    names: list[str] = []
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef) and node.name == "f":
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return names


def _bind(call: ast.Call, names: list[str]) -> dict[str, ast.expr]:
    """Name the arguments of a call; those without a name go by their position."""
    bound: dict[str, ast.expr] = {}
    for position, node in enumerate(call.args):
        bound[names[position] if position < len(names) else str(position)] = node
    return bound | {keyword.arg or "**": keyword.value for keyword in call.keywords}


def _same_nodes(one: ast.expr, other: ast.expr) -> bool:
    left = _value(one)
    right = _value(other)
    if left and right:
        return is_same_value(left[0], right[0])
    return ast.dump(one) == ast.dump(other)


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


def _read_json(span: str, direction: Direction) -> tuple[Json] | None:
    for text in dict.fromkeys((span, span[span.find("{") : span.rfind("}") + 1])):
        try:
            value: Json = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.keys() == {direction}:
            return (value[direction],)
        return (value,)
    return None


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
