"""Ordering puzzles: put things in a row from clues on who stands left of whom.

answer   JSON text of the list of names from left to right
payload  what a generated puzzle was made of, for reading only; the grader needs only the answer
"""

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Literal

from whet.level_bands import level_band
from whet.tasks.answers import strip_text_commands, write_in_line
from whet.tasks.generated import GeneratedConfig, GeneratedTask, grade_final_answer, split_of
from whet.tasks.literals import parse_literal, plain
from whet.tasks.logic.clue_choice import clues_for, draw_arrangement
from whet.tasks.logic.positions import Clue
from whet.tasks.logic.vocabulary import CATEGORIES
from whet.types import Json, Problem, Score, Split

_SIZES = ((3, 3), (4, 5), (6, 6), (7, 8), (9, 10))
"""Fewest and most things in each fifth of difficulty."""
_KINDS = (
    ("before", "after", "left", "right", "apart"),
    ("before", "after", "left", "right", "apart"),
    ("before", "after", "before", "after", "left", "apart"),
    ("before", "after", "apart", "beside"),
    ("before", "after", "apart", "beside", "amid"),
)
_HEADING = re.compile(r"\**[^\n:*]{0,60}\bleft to right\b[^\n:*]{0,20}:\**\s*", re.IGNORECASE)
_NAME = re.compile(r"[^\W_][\w'’-]*(?: [\w'’-]+){0,3}")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_SENTENCE = re.compile(
    r"(?:so|thus|therefore|hence|the|my|this|that|it|I|we)\b.*\b(?:is|are|be|get)\b", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"\w{3}[.!] +[A-Z]")
_BRACKETS = re.compile(r"[()\[\]{}<>](?:[ ,]+[()\[\]{}<>])*")
_WORDS = {
    "before": "{} is to the left of {}",
    "after": "{} is to the right of {}",
    "left": "{} is immediately to the left of {}",
    "right": "{} is immediately to the right of {}",
    "beside": "{} and {} are next to each other",
    "amid": "{} is somewhere between {} and {}",
}
_ASK = (
    "Put the {plural} in order from left to right. The {plural} are {names}.\n{clues}\n"
    "End with the names in order, from left to right, as a list between answer tags: "
    "<answer>[...]</answer>"
)


class OrderingConfig(GeneratedConfig):
    name: Literal["ordering"] = "ordering"


class Ordering(GeneratedTask):
    """Generated orders of three to ten things, and an exact grader."""

    name = "ordering"
    config: OrderingConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare the order of the answer with the gold one, case aside.

        Parts: `correct` 0 or 1; `placed`, the fraction of places that are right.
        """
        return grade_final_answer(problem, text, order_of, _compare, needs="a list of names")

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        n = rng.randint(*_SIZES[level_band(level)])
        plural = rng.choice(sorted(CATEGORIES))
        names = rng.sample(CATEGORIES[plural], n)
        solution = draw_arrangement(n, 1, rng)
        order = [names[item] for item in solution.items[0]]
        if split not in (None, split_of(self.name, list(order))):
            return None
        clues = clues_for(solution, _KINDS[level_band(level)], rng)
        assert clues is not None, "the clues left of and right of tell any two orders apart"
        items = [name if plural == "people" else f"the {name}" for name in names]
        lines = [f"{n}. {_write_clue(clue, plural, items)}" for n, clue in enumerate(clues, 1)]
        prompt = _ASK.format(plural=plural, names=", ".join(names), clues="\n".join(lines))
        rows: list[Json] = [[clue.kind, *clue.items, clue.number] for clue in clues]
        payload: dict[str, Json] = {"clues": rows, "names": list(names)}
        return self.make_problem(prompt, json.dumps(order), payload, level, core=list(order))


def order_of(text: str) -> list[str] | None:
    """Read names in order: a list in brackets, with commas or arrows, one a line, or words.

    None if it is none of these.
    """
    text = _HEADING.sub("", strip_text_commands(text).replace("**", "").strip(), count=1)
    text = text.strip().removesuffix(".")
    names = _names_in_brackets(text) if text.startswith(("[", "(")) else _names_in_words(text)
    return None if names is None else [plain(name).removeprefix("the ") for name in names]


def _names_in_brackets(text: str) -> list[str] | None:
    if _BRACKETS.fullmatch(text):
        return text.replace(",", " ").split()
    if "," not in text:
        text = f"[{write_in_line(text[1:-1])}]"
    tree = parse_literal(text)
    names = [leaf for leaf in tree if isinstance(leaf, str)] if isinstance(tree, list) else []
    return names if isinstance(tree, list) and len(names) == len(tree) else None


def _names_in_words(text: str) -> list[str] | None:
    if _BRACKETS.fullmatch(text):
        return text.replace(",", " ").split()
    line = write_in_line(text)
    if "\n" in text:
        names = line.split(", ")
        return names if all(map(_NAME.fullmatch, names)) else None
    if _SENTENCE.match(line) or _SENTENCE_END.search(line):
        return None
    if "," in line:
        return _names_in_brackets(f"[{line}]")
    words = line.split()
    return words if len(words) > 1 and all(map(_WORD.fullmatch, words)) else None


def _compare(order: list[str], gold: list[str]) -> tuple[dict[str, float], str]:
    if len(order) != len(gold):
        return {"placed": 0.0}, f"{len(order)} names for {len(gold)} places"
    right = sum(name == other for name, other in zip(order, gold, strict=True))
    return {"placed": right / len(gold)}, f"{right} of {len(gold)} places are right"


def _write_clue(clue: Clue, plural: str, names: Sequence[str]) -> str:
    items = [names[item] for item in clue.items]
    if clue.kind == "apart":
        singular = "person" if plural == "people" else plural.removesuffix("s")
        count = f"is 1 {singular}" if clue.number == 1 else f"are {clue.number or 'no'} {plural}"
        return f"There {count} between {items[0]} and {items[1]}"
    sentence = _WORDS[clue.kind].format(*items)
    return sentence[0].upper() + sentence[1:]
