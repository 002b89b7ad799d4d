"""CLRS-Text: carry out a textbook algorithm on a small input and print its output.

answer   the output as CLRS-Text prints it; where the question asks for a trace,
         `state, state, ... | output`
payload  {"algorithm": name, "size": n}, for reading only

All thirty algorithms can be generated, three of them with traces; imported rows may hold the
traces of any.
"""

import re
from decimal import Decimal
from functools import partial
from random import Random
from typing import Literal, NamedTuple

from whet.tasks.algorithms.inputs import ALGORITHMS, TRACED
from whet.tasks.generated import GeneratedConfig, GeneratedTask, grade
from whet.types import Json, Problem, Score, Split, fifth

Item = Decimal | tuple["Item", ...]
"""A number, or an array: 0 for square and 1 for round brackets, then its elements."""

MAX_CHARS = 1 << 16
MAX_DEPTH = 4

_PIECE = re.compile(
    r"\s*([\[\](),]|[-+]?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?(?![\w.]))"
)
_CLOSING = {"[": "]", "(": ")"}
_SIZES = ((4, 4), (5, 7), (8, 10), (11, 13), (14, 16))
"""Smallest and largest input in each fifth of difficulty."""


class ClrsConfig(GeneratedConfig):
    name: Literal["clrs"] = "clrs"
    trace: bool = False
    """Ask for the intermediate states too, of the algorithms that have them here."""


class Printout(NamedTuple):
    """The intermediate states, None where there is no trace, and the output."""

    trace: tuple[Item, ...] | None
    output: tuple[Item, ...]


class Clrs(GeneratedTask):
    """Generated runs of thirty algorithms, and an exact grader for their printouts."""

    name = "clrs"
    config: ClrsConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare printouts: every number by its exact value, every bracket and the order as is.

        Parts: `correct` 0 or 1; `output`, 1 where what follows the trace is right; `trace`, the
        share of right states, where the gold answer has them.
        """
        algorithm = ALGORITHMS.get(str(problem.payload.get("algorithm")))
        label = algorithm.output if algorithm else ""
        read = partial(printout_of, label=label)
        return grade(problem, text, read, _compare, needs="a CLRS printout")

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else problem.answer.strip()

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        least, most = _SIZES[fifth(level)]
        known = {
            name: algorithm
            for name, algorithm in (TRACED if self.config.trace else ALGORITHMS).items()
            if algorithm.size is None or least <= algorithm.size <= most
        }
        name = rng.choice(sorted(known))
        size = known[name].size or rng.randint(least, most)
        shown, trace, output = known[name].draw(rng, size)
        core = shown.partition(", initial_trace")[0]
        prompt = f"{name}:\n{shown}\n{known[name].output}:\n"
        payload: dict[str, Json] = {"algorithm": name, "size": size}
        return self.make_problem(prompt, f"{trace}{output}", payload, level, core=core)


def printout_of(text: str, label: str = "") -> Printout | None:
    """Read `output` or `trace | output`; None where it is neither, or there is no output.

    The label that the question ends with may be said again: `median: 5`.
    """
    name, mark, rest = text.replace("**", "").replace("=", ":", 1).partition(":")
    is_labelled = mark and label and name.strip() == label
    before, bar, after = (rest if is_labelled else text).rpartition("|")
    trace = parse(before) if bar else None
    output = parse(after)
    if not output or (bar and trace is None):
        return None
    return Printout(trace, output)


def parse(text: str) -> tuple[Item, ...] | None:
    """Read the items of a text; None where it holds anything else.

    Spaces or commas part the elements, and 0.50, 0.5 and 5e-1 are the same number; nothing else is
    forgiven: brackets and order count.

    >>> parse("[1 0.50], 2") == parse("[1, 5e-1] 2.0"), parse("[1 2]") == parse("(1, 2)")
    (True, False)
    >>> parse("[1 ᧑]")
    """
    text = text.rstrip()
    if len(text) > MAX_CHARS:
        return None
    start = 0
    levels: list[tuple[str, list[Item]]] = [("", [])]
    while start < len(text):
        match = _PIECE.match(text, start)
        if not match:
            return None
        start = match.end()
        piece = match[1]
        if piece in _CLOSING:
            if len(levels) > MAX_DEPTH:
                return None
            levels.append((piece, []))
        elif piece in ("]", ")"):
            opening, items = levels.pop()
            if not levels or _CLOSING.get(opening) != piece:
                return None
            levels[-1][1].append((Decimal("[(".index(opening)), *items))
        elif piece != ",":
            levels[-1][1].append(Decimal(piece))
    return tuple(levels[0][1]) if len(levels) == 1 else None


def share_right(items: tuple[Item, ...], gold: tuple[Item, ...]) -> float:
    """Give the share of right items, of the longer of the two; 1 if both are empty."""
    longer = max(len(items), len(gold))
    return sum(a == b for a, b in zip(items, gold, strict=False)) / longer if longer else 1.0


def _compare(answer: Printout, gold: Printout) -> tuple[dict[str, float], str]:
    parts = {"output": float(answer.output == gold.output)}
    note = "the output is right" if parts["output"] else "not the output"
    if gold.trace is not None:
        parts["trace"] = 0.0 if answer.trace is None else share_right(answer.trace, gold.trace)
        note += f", {parts['trace']:.0%} of the trace is right"
    return parts, note
