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

from whet.answers.doubt import is_doubtful
from whet.answers.withdrawal import find_replacement
from whet.level_bands import level_band
from whet.tasks.algorithms.clrs_algorithms import ALGORITHMS, TRACED
from whet.tasks.generated import GeneratedConfig, GeneratedTask, grade_final_answer
from whet.types import Json, Problem, Score, Split

Item = Decimal | tuple["Item", ...]
"""A number, or an array: 0 for square and 1 for round brackets, then its elements."""

MAX_CHARS = 1 << 16
MAX_DEPTH = 4
_MAX_LABELLED = 2000

_PIECE = re.compile(
    r"\s*([\[\](),]|[-+]?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?(?![\w.]))"
)
_CLOSING = {"[": "]", "(": ")"}
_NAMED = re.compile(r"\A\s*(?:index|position|node|vertex|key|value)\s+(-?[0-9.]+\s*)\Z")
"""A single number with what it is."""
_EXPLANATION = re.compile(
    r"(?is)(?<=\S)\n\s*\n[*_]*(?:explanation|reasoning|reason|why|note)\b[*_]*:"
    r"(?!.*(?:\n\s*\n|[:=<\[]|boxed)).*\Z"
)
"""A last paragraph that explains an output and holds no other."""
_SIZES = ((4, 4), (5, 7), (8, 10), (11, 13), (14, 16))
"""Smallest and largest input in each fifth of difficulty."""


class ClrsConfig(GeneratedConfig):
    name: Literal["clrs"] = "clrs"
    trace: bool = False
    """Ask for the intermediate states too, of the algorithms that have them here."""


class Printout(NamedTuple):
    """The intermediate states, None if there is no trace, and the output."""

    trace: tuple[Item, ...] | None
    output: tuple[Item, ...]


class Clrs(GeneratedTask):
    """Generated runs of thirty algorithms, and an exact grader for their printouts."""

    name = "clrs"
    config: ClrsConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare printouts: every number by its exact value, every bracket and the order as is.

        Parts: `correct` 0 or 1; `output`, 1 if what follows the trace is right; `trace`, the
        fraction of right states, where the gold answer has them.
        """
        algorithm = ALGORITHMS.get(str(problem.payload.get("algorithm")))
        read = partial(printout_of, label=algorithm.output if algorithm else "")
        explained = _EXPLANATION.search(text, max(len(text) - _MAX_LABELLED, 0))
        if explained and not is_doubtful(explained[0]) and not find_replacement(explained[0]):
            text = text[: explained.start()]
        return grade_final_answer(problem, text, read, _compare, needs="a CLRS printout")

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else problem.answer.strip()

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        least, most = _SIZES[level_band(level)]
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
    """Read `output` or `trace | output`; None if it is neither, or there is no output.

    The label that the question ends with may be repeated: `median: 5`.
    """
    text = _NAMED.sub(r"\1", _strip_label(text, label) if label else text)
    before, bar, after = text.rpartition("|")
    trace = parse_items(before) if bar else None
    output = parse_items(after)
    if not output or (bar and trace is None):
        return None
    return Printout(trace, output)


def _strip_label(text: str, label: str) -> str:
    """Take what follows a label, or each of its parts; the text itself without one."""
    plain = text.replace("**", "").replace("=", ":").strip().removesuffix(".")
    parts = [rf"{re.escape(name)}[ \t]*:[ \t]*" for name in label.split(", ")]
    lead = r"(?:[^\n]{0,200}\b(?:so|thus|hence|therefore),? (?:the )?)?"
    whole = re.fullmatch(rf"({lead}){re.escape(label)}[ \t]*:\s*(.*)", plain, re.DOTALL)
    if whole and not is_doubtful(whole[1]):
        return whole[2].strip("` ")
    each = re.fullmatch(r"([^:]*?)[\s,;]*".join(parts) + "([^:]*)", plain[:_MAX_LABELLED])
    return ", ".join(one.strip("` ") for one in each.groups()) if each else text


def parse_items(text: str) -> tuple[Item, ...] | None:
    """Read the items of a text; None if it holds anything else.

    Spaces or commas separate the elements, and 0.50, 0.5 and 5e-1 are the same number; nothing else
    may differ: brackets and order count.

    >>> parse_items("[1 0.50], 2") == parse_items("[1, 5e-1] 2.0")
    True
    >>> parse_items("[1 2]") == parse_items("(1, 2)")
    False
    >>> parse_items("[1 ᧑]")
    """
    text = text.replace("\\ ", " ").rstrip()
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


def fraction_right(items: tuple[Item, ...], gold: tuple[Item, ...]) -> float:
    """Give the fraction of right items, of the longer of the two; 1 if both are empty."""
    longer = max(len(items), len(gold))
    return sum(a == b for a, b in zip(items, gold, strict=False)) / longer if longer else 1.0


def _compare(answer: Printout, gold: Printout) -> tuple[dict[str, float], str]:
    parts = {"output": float(answer.output == gold.output)}
    note = "the output is right" if parts["output"] else "not the output"
    if gold.trace is not None:
        parts["trace"] = 0.0 if answer.trace is None else fraction_right(answer.trace, gold.trace)
        note += f", {parts['trace']:.0%} of the trace is right"
    return parts, note
