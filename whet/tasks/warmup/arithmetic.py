"""Arithmetic: work out an expression of whole numbers with + - * and brackets, step by step.

answer the value, a whole number payload {"expression": "...", "steps": [...]}; the verdict needs
only the answer, and the part `steps` only the expression
"""

import ast
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from whet.answers.final_answer import decided_text
from whet.answers.pieces import read_stated
from whet.level_bands import level_band
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import LineNote
from whet.tasks.expressions import SIGNS, combine, parse_expression, read_value
from whet.tasks.generated import GeneratedConfig, GeneratedTask, read_gold
from whet.types import Json, Problem, Score, Split

_SHAPES = (
    (2, 2, 9, "+-"),
    (2, 3, 99, "+-"),
    (3, 4, 99, "+-*"),
    (5, 6, 99, "+-*"),
    (7, 9, 999, "+-*"),
)
"""Fewest and most numbers, the largest number, and the operations, for each fifth of difficulty."""
_HIGHEST = 10**9
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_ASK = "Work out {expression}\nWrite one operation a line, then a line with Answer: and the value."
_NUMBER = re.compile(
    r"[-+]?(?:\d{1,40}|\d{1,3}(?:(?:,\d{3}){1,13}|(?: \d{3}){1,13}))(?:\.0{1,40})?"
)
_WIDE_SPACE = re.compile("[\u00a0\u2009\u202f]|\\\\[,;]")
_STEP = re.compile(r"(-?\d{1,9}) ?([-+*]) ?\(?(-?\d{1,9})\)? ?= ?(-?\d{1,9})\.?")


@dataclass(frozen=True, slots=True)
class ExpressionNode:
    """A number, or an operation on two, with its value."""

    value: int
    symbol: str = ""
    parts: "tuple[ExpressionNode, ...]" = ()


class ArithmeticConfig(GeneratedConfig):
    name: Literal["arithmetic"] = "arithmetic"


class Arithmetic(GeneratedTask):
    """Generated expressions, an exact grader, gold steps, and a comment on every step."""

    name = "arithmetic"
    config: ArithmeticConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare whole numbers exactly.

        Parts: `correct` 0 or 1; `steps`, the fraction of the expression's operations that are done,
        in any valid order; false, unneeded and repeated ones count against it.
        """
        gold = read_gold(problem, _whole, "a whole number")
        steps = _fraction_done(problem.payload.get("expression"), self.comment(problem, text))
        answer = read_final(text, _whole)
        if answer is None and "(" not in text[-200:] and (shown := decided_text(text)):
            answer = read_stated(shown, _whole)
        if answer is None:
            return replace(no_answer(), parts={"correct": 0.0, "steps": steps})
        note = "the value" if answer[1] == gold else "not the value"
        return to_score(answer[1] == gold, {"steps": steps}, answer[0], note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        steps = problem.payload.get("steps")
        lines = [str(step) for step in steps] if isinstance(steps, list) else []
        return problem.answer and "\n".join((*lines, f"Answer: {problem.answer}"))

    def comment(self, problem: Problem, text: str) -> Sequence[LineNote]:
        """Judge every line that states an operation; other lines have no comment."""
        return [_note(line) for line in text[: 1 << 16].splitlines() if line.strip()]

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        fewest, most, highest, symbols = _SHAPES[level_band(level)]
        tree = _tree(rng, rng.randint(fewest, most), highest, symbols)
        if tree is None:
            return None
        expression = write_expression(tree)
        asked = _ASK.format(expression=expression)
        payload: dict[str, Json] = {"expression": expression, "steps": [*_steps(tree)]}
        return self.make_problem(asked, str(tree.value), payload, level, core=expression)


def write_expression(node: ExpressionNode) -> str:
    """Write an expression with only the brackets it needs.

    >>> two = ExpressionNode(2)
    >>> write_expression(ExpressionNode(0, "-", (two, ExpressionNode(4, "+", (two, two)))))
    '2 - (2 + 2)'
    """
    if not node.parts:
        return str(node.value)
    left, right = (write_expression(part) for part in node.parts)
    is_sum = [part.symbol in ("+", "-") for part in node.parts]
    if node.symbol == "*" and is_sum[0]:
        left = f"({left})"
    if node.symbol in ("*", "-") and is_sum[1]:
        right = f"({right})"
    return f"{left} {node.symbol} {right}"


def _steps(node: ExpressionNode) -> Iterator[str]:
    for part in node.parts:
        yield from _steps(part)
    if node.parts:
        yield f"{node.parts[0].value} {node.symbol} {node.parts[1].value} = {node.value}"


def _tree(rng: Random, num_leaves: int, highest: int, symbols: str) -> ExpressionNode | None:
    """Draw an expression; None if a number in it grows beyond nine digits."""
    if num_leaves == 1:
        return ExpressionNode(rng.randint(1, highest))
    size = rng.randint(1, num_leaves - 1)
    left = _tree(rng, size, highest, symbols)
    right = _tree(rng, num_leaves - size, highest, symbols)
    if left is None or right is None:
        return None
    symbol = rng.choice(symbols)
    value = _OPERATIONS[symbol](left.value, right.value)
    return ExpressionNode(value, symbol, (left, right)) if abs(value) < _HIGHEST else None


def _note(line: str) -> LineNote:
    match = _STEP.fullmatch(line.strip()) if len(line) < 100 else None
    a, b, c = (read_value(match[group]) for group in (1, 3, 4)) if match else (None, None, None)
    if not match or a is None or b is None:
        return LineNote(line=line, is_right=None, note="")
    is_right = combine(a, match[2], b) == c
    return LineNote(line=line, is_right=is_right, note="right" if is_right else "false arithmetic")


def _fraction_done(expression: Json, notes: Sequence[LineNote]) -> float:
    """Apply the true lines to the expression, and count those that did part of it."""
    rest = _to_reducible(expression)
    needed = _num_numbers(rest) - 1
    stated = [note for note in notes if note.is_right is not None]
    num_done = 0
    for note in stated:
        match = _STEP.fullmatch(note.line.strip()) if note.is_right else None
        after = _work_off(rest, int(match[1]), match[2], int(match[3])) if match else None
        if after is not None:
            rest = after
            num_done += 1
    return num_done / max(needed, len(stated), 1)


Reducible = int | tuple[str, tuple["Reducible", ...]]
"""A number, or `+`, `*` or `-` (the negative) of parts. Sums are never directly inside sums, nor
products inside products; their parts may be combined in any order."""


def _to_reducible(expression: Json) -> Reducible:
    """Parse the problem's expression; 0, which needs no operation, if it is not an expression."""
    try:
        tree = ast.parse(str(expression)[:1000], mode="eval").body
        return _from_ast(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0


def _from_ast(node: ast.expr) -> Reducible:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _build("-", (_from_ast(operand),))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _build("+", (_from_ast(left), _from_ast(right)))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _build("+", (_from_ast(left), _build("-", (_from_ast(right),))))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _build("*", (_from_ast(left), _from_ast(right)))
    raise ValueError("not an expression of whole numbers with + - *")


def _build(symbol: str, parts: tuple[Reducible, ...]) -> Reducible:
    if symbol == "-":
        (part,) = parts
        if isinstance(part, int):
            return -part
        if part[0] == "+":
            return "+", tuple(_build("-", (inner,)) for inner in part[1])
        return part[1][0] if part[0] == "-" else ("-", parts)
    flat: list[Reducible] = []
    for part in parts:
        flat += part[1] if isinstance(part, tuple) and part[0] == symbol else (part,)
    return flat[0] if len(flat) == 1 else (symbol, tuple(flat))


def _work_off(node: Reducible, a: int, symbol: str, b: int) -> Reducible | None:
    """Apply one operation somewhere in the expression; None if it has no such operation."""
    if isinstance(node, int):
        return None
    kind, parts = node
    for index, part in enumerate(parts):
        if (after := _work_off(part, a, symbol, b)) is not None:
            return _build(kind, (*parts[:index], after, *parts[index + 1 :]))
    value = _OPERATIONS[symbol](a, b)
    # 10 - 3 - 4 has the parts -3 and -4, which the step 3 + 4 combines.
    choices = {
        "++": [(a, b, value), (-a, -b, -value)],
        "+-": [(a, -b, value), (-a, b, -value)],
        "**": [(a, b, value)],
    }
    for left, right, joined in choices.get(kind + symbol, ()):
        others = list(parts)
        if left in others:
            others.remove(left)
            if right in others:
                others.remove(right)
                return _build(kind, (joined, *others))
    return None


def _num_numbers(node: Reducible) -> int:
    return 1 if isinstance(node, int) else sum(map(_num_numbers, node[1]))


def _whole(span: str) -> int | None:
    """Read a number, or a true equation that ends in one: `8 + 4 = 12`."""
    expression, equals, number = (
        span.strip("$`* ").removesuffix(".").translate(SIGNS).rpartition("=")
    )
    number = _WIDE_SPACE.sub(" ", number.strip())
    if not _NUMBER.fullmatch(number) or not number.isascii():
        return None
    value = int(number.partition(".")[0].replace(",", "").replace(" ", ""))
    left = parse_expression(expression.strip()) if equals else None
    return value if not equals or (left is not None and left.value == (value, 1)) else None
