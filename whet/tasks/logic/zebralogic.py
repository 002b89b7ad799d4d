"""Houses in a row, in the JSON form of ZebraLogic: `{"solution": {"House 1": {"Name": "Ada", ...},
...}}`.

answer   JSON text of `{"House 1": {attribute: value, ...}, ...}`, one entry a house, or of a
`header` and `rows`;
         nothing where the solution is not published, which is told as unscored
payload  what a generated puzzle was made of, for reading only; the grader needs nothing but the
answer

Sizes run from 2 x 2 to 6 x 6 as there. The last complete JSON object of a response is its answer; a
`reasoning` beside the `solution` is not read.
"""

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import Task
from whet.tasks.generated import GeneratedConfig, fifth, first, level_of, question, split_of, spread
from whet.tasks.literals import Tree, last_object, parse, plain
from whet.tasks.logic.clues import Clue
from whet.tasks.logic.making import Solution, clues_for, shuffled
from whet.tasks.logic.words import PHRASES, VALUES
from whet.tasks.logic.zebra import named_values
from whet.types import Json, Problem, Score, Split, Verdict

Cells = dict[tuple[str, str], str]

_SIZES = (
    ((2, 2), (2, 3), (3, 2)),
    ((2, 5), (3, 3), (4, 2)),
    ((3, 5), (4, 3), (4, 4)),
    ((4, 5), (5, 4), (6, 3)),
    ((5, 6), (6, 5), (6, 6)),
)
"""Houses and attributes in each fifth of difficulty."""
_KINDS = (
    "same",
    "same",
    "same",
    "left",
    "right",
    "before",
    "after",
    "beside",
    "apart",
    "at",
    "not_at",
    "not_at",
)
_HARD_KINDS = ("same", "left", "before", "after", "beside", "apart", "not_at")
_WORDS = {
    "same": "{} is {}.",
    "left": "{} is directly left of {}.",
    "right": "{} is directly right of {}.",
    "before": "{} is somewhere to the left of {}.",
    "after": "{} is somewhere to the right of {}.",
    "beside": "{} and {} are next to each other.",
    "apart": "There {number} between {} and {}.",
    "at": "{} is in house {number}.",
    "not_at": "{} is not in house {number}.",
}
_ASK = (
    "There are {n} houses, numbered 1 to {n} from left to right. A different person lives in each, and no two have the "
    "same value of anything below:\n{values}\n\nClues:\n{clues}\n\nWho lives where? End with a JSON object of this "
    'form, with every house and every attribute:\n{{"reasoning": "...", "solution": {{"House 1": {form}, ...}}}}'
)


class ZebraLogicConfig(GeneratedConfig):
    name: Literal["zebralogic"] = "zebralogic"


class ZebraLogic(Task):
    """Generated puzzles of two to six houses, and a grader of the JSON form with the share of right
    cells."""

    name = "zebralogic"
    is_bounded = True

    def __init__(self, config: ZebraLogicConfig | None = None) -> None:
        self.config = config or ZebraLogicConfig()

    def problems(self, split: Split) -> Iterator[Problem]:
        return spread(self, self.config, split)

    def generate(
        self, seed: int, level: float | None = None, split: Split | None = None
    ) -> Problem:
        place = level_of(seed, level)
        return first(self.name, seed, lambda rng: self._drawn(rng, place, split))

    def score(self, problem: Problem, text: str) -> Score:
        """Compare every cell with the gold one, case and outer spaces aside.

        Parts: `correct` 0 or 1; `cells`, the share of right cells.
        """
        told = read_final(text, last_object)
        cells = cells_of(told[1]) if told else None
        if told is None or cells is None:
            return no_answer("cells")
        if problem.answer is None:
            return Score(
                verdict=Verdict.UNSCORED,
                parts={},
                answer=told[1],
                note="this problem has no gold answer",
            )
        gold = cells_of(problem.answer)
        if gold is None:
            raise DataError(
                f"problem {problem.id} needs houses as its answer, not {problem.answer!r}"
            )
        right = sum(cells.get(cell) == value for cell, value in gold.items())
        note = f"{right} of {len(gold)} cells are right"
        return to_score(cells == gold, {"cells": right / len(gold)}, told[1], note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f'{{"reasoning": "", "solution": {problem.answer}}}'

    def _drawn(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        n, m = rng.choice(_SIZES[fifth(level)])
        labels = ["Name", *sorted(rng.sample(sorted(VALUES.keys() - {"Name"}), m - 1))]
        values = named_values(labels, n, rng)
        solution = shuffled(n, m, rng)
        houses = _houses(values, solution)
        home = split_of(self.name, houses)
        clues = (
            clues_for(solution, _HARD_KINDS if fifth(level) > 2 else _KINDS, rng)
            if split in (None, home)
            else None
        )
        if clues is None:
            return None
        made: dict[str, Json] = {
            "clues": [[c.kind, *c.items, c.number] for c in clues],
            "size": [n, m],
        }
        asked = _asked(values, clues, n)
        answer = json.dumps(houses)
        return question(self.name, asked, answer=answer, payload=made, level=level, split=home)


def cells_of(text: str) -> Cells | None:
    """Read houses as cells by house and attribute; a value that is a list or a table is none."""
    tree = parse(text)
    if not isinstance(tree, dict):
        return None
    houses = tree.get("solution", tree)
    if isinstance(houses, dict) and houses.keys() == {"header", "rows"}:
        houses = _from_table(houses["header"], houses["rows"])
    if not isinstance(houses, dict) or not houses:
        return None
    cells: Cells = {}
    for house, content in houses.items():
        if not isinstance(content, dict):
            return None
        for attribute, value in content.items():
            cell = (plain(house), plain(attribute))
            if cell[1] == "house" and value in (house, house.split()[-1]):
                continue  # the house told again, in itself
            if cell in cells or not isinstance(value, str):
                return None
            cells[cell] = plain(value)
    return cells or None


def _from_table(header: Tree, rows: Tree) -> Tree:
    """Turn a table with a House column first into houses; empty where it is not one."""
    houses: dict[str, Tree] = {}
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(header, list) or not isinstance(row, list) or len(row) != len(header):
            return {}
        house = f"House {row[0]}"
        if house in houses:
            return {}
        houses[house] = {str(name): value for name, value in zip(header[1:], row[1:], strict=True)}
    return houses


def _houses(values: dict[str, list[str]], solution: Solution) -> dict[str, Json]:
    names = [value for listed in values.values() for value in listed]
    return {
        f"House {place + 1}": {
            label: names[items[place]] for label, items in zip(values, solution.items, strict=True)
        }
        for place in range(solution.num_positions)
    }


def _asked(values: dict[str, list[str]], clues: Sequence[Clue], n: int) -> str:
    items = [PHRASES[label].format(value) for label, listed in values.items() for value in listed]
    lines = [f"{number}. {_said(clue, items)}" for number, clue in enumerate(clues, 1)]
    return _ASK.format(
        n=n,
        values="\n".join(
            f" - {label}: {', '.join(f'`{value}`' for value in listed)}"
            for label, listed in values.items()
        ),
        clues="\n".join(lines),
        form=json.dumps(dict.fromkeys(values, "...")),
    )


def _said(clue: Clue, items: Sequence[str]) -> str:
    number = clue.number
    told = str(number + 1)
    if clue.kind == "apart":
        told = (
            "is no house"
            if number == 0
            else "is one house"
            if number == 1
            else f"are {number} houses"
        )
    said = _WORDS[clue.kind].format(*(items[item] for item in clue.items), number=told)
    return said[0].upper() + said[1:]
