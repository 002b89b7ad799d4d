"""Predict what a program returns, or find an input that gives an output: CRUXEval and CodeI/O.

cruxeval: the value is a Python literal.
    answer    the recorded output or input, as Python text
    payload   {"program": source that defines f, "direction": "input" or "output",
               "input": the recorded arguments, "output": the recorded result, as literals}
codeio: the value is JSON.
    answer    the recorded output or input, as JSON text
    payload   {"program": source, "entry": the function, else "main_solution",
               "direction": "input" or "output", "input": {argument: value}, "output": value}

A predicted output is compared with the recorded one, and nothing is run. A predicted input is right
if the program gives the recorded output for it in the sandbox, even if another input was recorded.

A response to cruxeval ends with the completed assertion, the call, or just the literal; True is not
1, and 1 is not 1.0. An assertion about another call, or about another output, is wrong. In a
response to codeio, the last JSON value counts, with or without {"input": ...} or {"output": ...}
around it; true is not 1, and 1 is 1.0.
"""

import ast
import json
import re
from collections.abc import Mapping
from typing import Literal, TypeGuard

from whet.tasks.answers import read_final
from whet.tasks.base import data_error
from whet.tasks.code import program, tests_text
from whet.tasks.code.closing import (
    cut_below_assertion,
    find_input,
    find_output,
    is_on_input,
    parameters,
    plain_latex,
)
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
from whet.tasks.code.python_literals import (
    equal,
    is_same_value,
    read_expression,
    read_literal,
    value_of,
)
from whet.types import Json, Message, Problem, Score, Split, content_id

Direction = Literal["input", "output"]
_ASKED: dict[Direction, str] = {
    "input": "Find arguments for which the assertion holds; any that give this output are right.",
    "output": "Complete the assertion with the literal that the call returns.",
}
_BLANK = re.compile(
    r"(?<![\w'\"(\[?])`?\?\?`?\s*(?:(==?|[→:]|->)|(?=(?:is|should|must|equals|has)\b))"
)
"""The blank of the question in a sentence that says what replaces it: `?? should be 7`."""
Claim = tuple[object, ast.Call | None]
"""An output, and the call that an assertion says gives it."""


class CruxEvalConfig(CodeConfig):
    name: Literal["cruxeval"] = "cruxeval"


class CodeIOConfig(CodeConfig):
    name: Literal["codeio"] = "codeio"


class CruxEval(CodeTask):
    """Compare a predicted output, or run the function on a predicted input."""

    name = "cruxeval"
    config: CruxEvalConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Grade whether the predicted value is right. Parts: `correct` 0 or 1."""
        marked = cut_below_assertion(
            text.replace("[ANSWER]", "<answer>").replace("[/ANSWER]", "</answer>")
        )
        wanted = read_literal(text_of(problem, "output"))
        if wanted is None:
            raise data_error(problem, "a literal in payload.output", text_of(problem, "output"))
        if direction_of(problem) == "output":
            predicted = _find_claim(marked)
            if predicted is None:
                return unread("no literal could be read")
            span, claim = predicted
            return score_run(lambda: _check_output(problem, claim, wanted[0]), span)
        marked = _BLANK.sub(lambda blank: "the input is " if blank[1] else "the input ", marked)
        given = _find_arguments(marked, parameters(text_of(problem, "program"), "f"))
        if given is None:
            return unread("no arguments could be read")
        span, args, claimed = given

        def check_input() -> str:
            if claimed is not None and not is_same_value(claimed[0], wanted[0]):
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
        """Grade whether the predicted value is right. Parts: `correct` 0 or 1."""
        direction = direction_of(problem)
        answer = read_final(text, lambda span: _read_json(plain_latex(span), direction))
        answer = answer or self._find_in_words(problem, direction, text)
        if answer is None:
            return unread("no JSON value could be read")
        span, (value,) = answer
        return score_run(lambda: self._check(problem, direction, value), span)

    def solve(self, problem: Problem, seed: int) -> str | None:
        direction = text_of(problem, "direction")
        return f"```json\n{json.dumps({direction: problem.payload.get(direction)})}\n```"

    def _find_in_words(
        self, problem: Problem, direction: Direction, text: str
    ) -> tuple[str, tuple[object]] | None:
        """Find the value that the last sentence gives for the call in question."""
        entry = text_of(problem, "entry", "main_solution")
        names = parameters(text_of(problem, "program"), entry)
        if direction == "input":
            given = find_input(text, entry, names, _read_value)
            if given is None or given.call is None:
                return None
            claimed = _read_value(given.value) if given.value else None
            is_other = claimed and not equal(claimed[0], problem.payload.get("output"))
            arguments = None if is_other else _named_arguments(given.call, names)
            return (ast.unparse(given.call), (arguments,))
        stated = find_output(text, entry, _read_value)
        value = _read_value(stated.value or "") if stated else None
        if stated is None or value is None:
            return None
        asked = problem.payload.get("input")
        if stated.call and asked and not equal(_named_arguments(stated.call, names), asked):
            return (ast.unparse(stated.call), (None,))
        return (stated.value or "", value)

    def _check(self, problem: Problem, direction: Direction, value: object) -> str:
        if equal(value, problem.payload.get(direction)):
            return f"the recorded {direction}"
        if direction == "output":
            raise WrongError("another output")
        entry = text_of(problem, "entry", "main_solution")
        names = parameters(text_of(problem, "program"), entry)
        if not isinstance(value, dict) and len(names) == 1:
            value = {names[0]: value}
        if not isinstance(value, dict):
            raise WrongError("the input is not an object of arguments")
        job = {"program": text_of(problem, "program"), "entry": entry}
        wanted = problem.payload.get("output")
        return check_call(self.config, job, ((), value), lambda output: equal(output, wanted))


def direction_of(problem: Problem) -> Direction:
    """Read what the question asks for; without the program, an input cannot be tried."""
    direction = text_of(problem, "direction")
    if direction == "input" and text_of(problem, "program"):
        return "input"
    if direction == "output":
        return "output"
    needs = "input with its program, or output, in payload.direction"
    raise data_error(problem, needs, direction)


def problem_of(row: Mapping[str, Json], direction: Direction, split: Split = "test") -> Problem:
    """Make a problem from a published row: code, input, output and id."""
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
    """Check a predicted output: it must be for the call in question and equal the recorded one."""
    value, call = claim
    if call is not None and "input" in problem.payload:
        given = text_of(problem, "input")
        if not is_same_call(call, given, text_of(problem, "program")):
            raise WrongError("the assertion is about another call")
    if not is_same_value(value, wanted):
        raise WrongError("another output")
    return "the output is right"


def read_output(text: str) -> Claim | None:
    """Read an output: a literal, or the right side of an assertion about a call of `f`."""
    node = read_expression(text)
    call = None
    if _is_equation(node):
        call = node.left if _is_call(node.left) else None
        node = node.comparators[0] if call is not None else None
    value = None if node is None else value_of(node)
    return None if value is None else (value[0], call)


def read_arguments(text: str) -> CallArguments | None:
    """Read the literals that `f` is called with, in an assertion, a call, or alone."""
    node = read_expression(text)
    if _is_equation(node):
        node = node.left
    if node is not None and not _is_call(node):
        node = read_expression(f"f({text.strip()})")
    if not _is_call(node):
        return None
    positional = [value_of(argument) for argument in node.args]
    by_name = {keyword.arg: value_of(keyword.value) for keyword in node.keywords}
    if None in positional or None in by_name.values() or None in by_name:
        return None
    values = tuple(value[0] for value in positional if value)
    return values, {name: value[0] for name, value in by_name.items() if name and value}


def is_same_call(call: ast.Call, given: str, source: str) -> bool:
    """Whether a call has the arguments in a text such as `'hello', n=3`, by position or by name."""
    asked = read_expression(f"f({given})")
    if not isinstance(asked, ast.Call):
        return True
    names = parameters(source, "f")
    one = _bind(call, names)
    other = _bind(asked, names)
    if one.keys() != other.keys():
        return False
    return all(_same_nodes(node, other[name]) for name, node in one.items())


def _find_claim(text: str) -> tuple[str, Claim] | None:
    """Find the output that a response predicts: by itself, or in its last sentence."""
    if is_on_input(text):
        return None
    final = read_final(text, lambda span: read_output(plain_latex(span)))
    stated = None if final else find_output(text, "f", read_literal)
    value = read_literal(stated.value or "") if stated else None
    return (
        final if stated is None or value is None else (stated.value or "", (value[0], stated.call))
    )


def _find_arguments(
    text: str, names: list[str]
) -> tuple[str, CallArguments, tuple[object] | None] | None:
    """Find the arguments that a response predicts, and the output that it says they give."""
    final = read_final(text, lambda span: _if_call(plain_latex(span)))
    if final is not None and (args := read_arguments(final[1])) is not None:
        claim = read_output(final[1])
        return final[0], args, (claim[0],) if claim and claim[1] else None
    if (given := find_input(text, "f", names, read_literal)) and given.call:
        args = read_arguments(ast.unparse(given.call))
        claimed = read_literal(given.value) if given.value else None
        return (ast.unparse(given.call), args, claimed) if args else None
    alone = read_final(text, lambda span: read_arguments(plain_latex(span)))
    return (*alone, None) if alone else None


def _if_call(span: str) -> str | None:
    """Return a span that is a call of `f` or an assertion about one."""
    node = read_expression(span)
    node = node.left if _is_equation(node) else node
    return span if _is_call(node) and read_arguments(span) is not None else None


def _is_call(node: ast.expr | None) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "f"


def _is_equation(node: ast.expr | None) -> TypeGuard[ast.Compare]:
    return isinstance(node, ast.Compare) and [type(sign) for sign in node.ops] == [ast.Eq]


def _bind(call: ast.Call, names: list[str]) -> dict[str, ast.expr]:
    """Map parameter names to arguments; those without a name go by their position."""
    bound: dict[str, ast.expr] = {}
    for position, node in enumerate(call.args):
        bound[names[position] if position < len(names) else str(position)] = node
    return bound | {keyword.arg or "**": keyword.value for keyword in call.keywords}


def _same_nodes(one: ast.expr, other: ast.expr) -> bool:
    left = value_of(one)
    right = value_of(other)
    if left and right:
        return is_same_value(left[0], right[0])
    return ast.dump(one) == ast.dump(other)


def _named_arguments(call: ast.Call, names: list[str]) -> dict[str, object]:
    """Return the arguments of a call by name, in the form of a recorded input."""
    values = {name: value_of(node) for name, node in _bind(call, names).items()}
    return {name: value[0] for name, value in values.items() if value}


def _read_json(span: str, direction: Direction) -> tuple[object] | None:
    for text in dict.fromkeys((span, span[span.find("{") : span.rfind("}") + 1])):
        value = _read_value(text)
        if value is None:
            continue
        if isinstance(value[0], dict) and value[0].keys() == {direction}:
            return (value[0][direction],)
        return value
    return None


def _read_value(text: str) -> tuple[object] | None:
    """Read a value in JSON, or else as a Python literal."""
    try:
        return (json.loads(text, parse_constant=_refuse_constant),)
    except (ValueError, RecursionError):
        return read_literal(text)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
