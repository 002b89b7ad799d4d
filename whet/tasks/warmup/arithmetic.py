"""Arithmetic: work out an expression of whole numbers with + - * and brackets, step by step.

answer   the value, a whole number
payload  {"expression": "...", "steps": [...]}; the grader needs nothing but the answer
"""

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import StepNote
from whet.tasks.game24.lines import SIGNS, combine, parse, read
from whet.tasks.generated import GeneratedConfig, GeneratedTask, fifth, read_gold
from whet.types import Json, Problem, Score, Split

_SHAPES = (
    (2, 2, 9, "+-"),
    (2, 3, 99, "+-"),
    (3, 4, 99, "+-*"),
    (5, 6, 99, "+-*"),
    (7, 9, 999, "+-*"),
)
"""Fewest and most numbers, the largest of them, and the operations in each fifth of difficulty."""
_HIGHEST = 10**9
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_ASK = "Work out {expression}\nWrite one operation a line, then a line with Answer: and the value."
_NUMBER = re.compile(r"[-+]?(?:\d{1,40}|\d{1,3}(?:,\d{3}){1,13})(?:\.0{1,40})?")
_STEP = re.compile(r"(-?\d{1,9}) ?([-+*]) ?\(?(-?\d{1,9})\)? ?= ?(-?\d{1,9})\.?")


@dataclass(frozen=True, slots=True)
class Node:
    """A number, or an operation on two, with its value."""

    value: int
    symbol: str = ""
    parts: "tuple[Node, ...]" = ()


class ArithmeticConfig(GeneratedConfig):
    name: Literal["arithmetic"] = "arithmetic"


class Arithmetic(GeneratedTask):
    """Generated expressions, an exact grader, gold steps, and a comment on every step."""

    name = "arithmetic"
    config: ArithmeticConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare whole numbers exactly.

        Parts: `correct` 0 or 1; `steps`, the share of true lines among those that state an
        operation.
        """
        gold = read_gold(problem, _whole, "a whole number")
        marks = [note.ok for note in self.notes(problem, text) if note.ok is not None]
        steps = sum(marks) / len(marks) if marks else 0.0
        answer = read_final(text, _whole)
        if answer is None:
            return replace(no_answer(), parts={"correct": 0.0, "steps": steps})
        note = "the value" if answer[1] == gold else "not the value"
        return to_score(answer[1] == gold, {"steps": steps}, answer[0], note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        steps = problem.payload.get("steps")
        lines = [str(step) for step in steps] if isinstance(steps, list) else []
        return problem.answer and "\n".join((*lines, f"Answer: {problem.answer}"))

    def notes(self, problem: Problem, text: str) -> Sequence[StepNote]:
        """Judge every line that states an operation; other lines have no comment."""
        return [_note(line) for line in text[: 1 << 16].splitlines() if line.strip()]

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        fewest, most, highest, symbols = _SHAPES[fifth(level)]
        tree = _tree(rng, rng.randint(fewest, most), highest, symbols)
        if tree is None:
            return None
        expression = write(tree)
        asked = _ASK.format(expression=expression)
        payload: dict[str, Json] = {"expression": expression, "steps": [*_steps(tree)]}
        return self.make_problem(asked, str(tree.value), payload, level, core=expression)


def write(node: Node) -> str:
    """Write an expression with the brackets it needs and no others.

    >>> two = Node(2)
    >>> write(Node(0, "-", (two, Node(4, "+", (two, two)))))
    '2 - (2 + 2)'
    """
    if not node.parts:
        return str(node.value)
    left, right = (write(part) for part in node.parts)
    is_sum = [part.symbol in ("+", "-") for part in node.parts]
    if node.symbol == "*" and is_sum[0]:
        left = f"({left})"
    if node.symbol in ("*", "-") and is_sum[1]:
        right = f"({right})"
    return f"{left} {node.symbol} {right}"


def _steps(node: Node) -> Iterator[str]:
    for part in node.parts:
        yield from _steps(part)
    if node.parts:
        yield f"{node.parts[0].value} {node.symbol} {node.parts[1].value} = {node.value}"


def _tree(rng: Random, num_leaves: int, highest: int, symbols: str) -> Node | None:
    """Draw an expression; None where a number in it grows beyond nine digits."""
    if num_leaves == 1:
        return Node(rng.randint(1, highest))
    size = rng.randint(1, num_leaves - 1)
    left = _tree(rng, size, highest, symbols)
    right = _tree(rng, num_leaves - size, highest, symbols)
    if left is None or right is None:
        return None
    symbol = rng.choice(symbols)
    value = _OPERATIONS[symbol](left.value, right.value)
    return Node(value, symbol, (left, right)) if abs(value) < _HIGHEST else None


def _note(line: str) -> StepNote:
    match = _STEP.fullmatch(line.strip()) if len(line) < 100 else None
    a, b, c = (read(match[group]) for group in (1, 3, 4)) if match else (None, None, None)
    if not match or a is None or b is None:
        return StepNote(line=line, ok=None, note="")
    is_right = combine(a, match[2], b) == c
    return StepNote(line=line, ok=is_right, note="right" if is_right else "false arithmetic")


def _whole(span: str) -> int | None:
    """Read a number, or a true equation that ends in one: `8 + 4 = 12`."""
    expression, equals, number = (
        span.strip("$`* ").removesuffix(".").translate(SIGNS).rpartition("=")
    )
    number = number.strip()
    if not _NUMBER.fullmatch(number) or not number.isascii():
        return None
    value = int(number.partition(".")[0].replace(",", ""))
    left = parse(expression.strip()) if equals else None
    return value if not equals or (left is not None and left.value == (value, 1)) else None
