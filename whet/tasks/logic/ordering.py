"""Ordering puzzles: put things in a row from clues on who stands left of whom. One order holds,
proved by our solver.

answer   JSON text of the list of names from left to right payload  what a generated puzzle was made
of, for reading only; the grader needs nothing but the answer
"""

import json
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import Task
from whet.tasks.generated import GeneratedConfig, fifth, first, level_of, question, split_of, spread
from whet.tasks.literals import parse, plain
from whet.tasks.logic.clues import Clue
from whet.tasks.logic.making import clues_for, shuffled
from whet.tasks.logic.words import CATEGORIES
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
_NUMBERED = re.compile(r"\s*\**([0-9]{1,3})[.):]\**\s+([^\n,:;()\[\]]{1,60}?)\s*[.,]?\s*")
_ARROW = re.compile(r"\s*(?:->|→|\\to\b|\\rightarrow\b)\s*")
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
    "End with the names in order, from left to right, as a list between answer tags: <answer>[...]</answer>"
)


class OrderingConfig(GeneratedConfig):
    name: Literal["ordering"] = "ordering"


class Ordering(Task):
    """Generated orders of three to ten things, and an exact grader with the share of things in
    place."""

    name = "ordering"
    is_bounded = True

    def __init__(self, config: OrderingConfig | None = None) -> None:
        self.config = config or OrderingConfig()

    def problems(self, split: Split) -> Iterator[Problem]:
        return spread(self, self.config, split)

    def generate(
        self, seed: int, level: float | None = None, split: Split | None = None
    ) -> Problem:
        place = level_of(seed, level)
        return first(self.name, seed, lambda rng: self._drawn(rng, place, split))

    def score(self, problem: Problem, text: str) -> Score:
        """Compare the order of the answer with the gold one, case aside.

        Parts: `correct` 0 or 1; `placed`, the share of places that are right.
        """
        gold = order_of(problem.answer or "")
        if gold is None:
            raise DataError(
                f"problem {problem.id} needs a list of names as its answer, not {problem.answer!r}"
            )
        found = read_final(text, order_of)
        if found is None:
            return no_answer("placed")
        span, order = found
        if len(order) != len(gold):
            return to_score(
                False, {"placed": 0.0}, span, f"{len(order)} names for {len(gold)} places"
            )
        right = sum(name == other for name, other in zip(order, gold, strict=True))
        return to_score(
            order == gold,
            {"placed": right / len(gold)},
            span,
            f"{right} of {len(gold)} places are right",
        )

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f"<answer>{problem.answer}</answer>"

    def _drawn(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        n = rng.randint(*_SIZES[fifth(level)])
        plural = rng.choice(sorted(CATEGORIES))
        names = rng.sample(CATEGORIES[plural][1], n)
        solution = shuffled(n, 1, rng)
        order = [names[item] for item in solution.items[0]]
        home = split_of(self.name, list(order))
        if split not in (None, home):
            return None
        clues = clues_for(solution, _KINDS[fifth(level)], rng)
        assert clues is not None, "the clues left of and right of tell any two orders apart"
        asked = _asked(plural, names, clues)
        answer = json.dumps(order)
        made: dict[str, Json] = {
            "clues": [[c.kind, *c.items, c.number] for c in clues],
            "names": list(names),
        }
        return question(self.name, asked, answer=answer, payload=made, level=level, split=home)


def order_of(text: str) -> list[str] | None:
    """Read a list of names, in brackets or, where there are several, with commas only; None where
    it is not one."""
    lines = [_NUMBERED.fullmatch(line) for line in text.splitlines()]
    if len(lines) > 1 and all(
        found and found[1] == str(place) for place, found in enumerate(lines, 1)
    ):
        return [plain(found[2].strip("*")) for found in lines if found]
    if "," not in text:
        text = _ARROW.sub(",", text)
    is_bracketed = text.startswith(("[", "("))
    tree = parse(text if is_bracketed else f"[{text}]")
    if not isinstance(tree, list):
        return None
    names = [plain(leaf) for leaf in tree if isinstance(leaf, str)]
    return names if len(names) == len(tree) and len(names) > (not is_bracketed) else None


def _asked(plural: str, names: Sequence[str], clues: Sequence[Clue]) -> str:
    called = [name if plural == "people" else f"the {name}" for name in names]
    lines = [f"{number}. {_said(clue, plural, called)}" for number, clue in enumerate(clues, 1)]
    return _ASK.format(plural=plural, names=", ".join(names), clues="\n".join(lines))


def _said(clue: Clue, plural: str, called: Sequence[str]) -> str:
    items = [called[item] for item in clue.items]
    if clue.kind == "apart":
        number = clue.number
        noun = CATEGORIES[plural][0] if clue.number == 1 else plural
        said = f"there {'is' if number == 1 else 'are'} {number or 'no'} {noun} between {items[0]} and {items[1]}"
    else:
        said = _WORDS[clue.kind].format(*items)
    return said[0].upper() + said[1:]
