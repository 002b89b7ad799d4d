"""Houses in a row, in the JSON form of ZebraLogic.

answer   JSON text of `{"House 1": {attribute: value, ...}, ...}`, one entry per house, or of a
         `header` and `rows`; none where the solution is not published, which gives UNSCORED
payload  what a generated puzzle was made of, for reading only; the grader needs only the answer

Sizes run from 2 x 2 to 6 x 6 as there. The last complete JSON object of a response is its answer,
`{"solution": {"House 1": {"Name": "Ada", ...}, ...}}`; a `reasoning` beside it is not read.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Literal

from whet.tasks.answers import no_answer
from whet.tasks.generated import GeneratedConfig, GeneratedTask, fifth, read_gold, split_of
from whet.tasks.literals import Tree, parse, plain
from whet.tasks.logic.clue_choice import clues_for, draw_arrangement
from whet.tasks.logic.positions import Clue
from whet.tasks.logic.vocabulary import PHRASES, VALUES
from whet.tasks.logic.zebra import Cells, arrange, compare_cells, draw_values, read_cells
from whet.types import Json, Problem, Score, Split, Verdict

_SIZES = (
    ((2, 2), (2, 3), (3, 2)),
    ((2, 5), (3, 3), (4, 2)),
    ((3, 5), (4, 3), (4, 4)),
    ((4, 5), (5, 4), (6, 3)),
    ((5, 6), (6, 5), (6, 6)),
)
"""Houses and attributes in each fifth of difficulty."""
_KINDS = str.split(
    "same same same left right before after beside apart at not_at not_at"  # as often as drawn
)
_HARD_KINDS = str.split("same left before after beside apart not_at")
_WORDS = {
    "same": "{} is {}.",
    "left": "{} is directly left of {}.",
    "right": "{} is directly right of {}.",
    "before": "{} is somewhere to the left of {}.",
    "after": "{} is somewhere to the right of {}.",
    "beside": "{} and {} are next to each other.",
    "apart": "There {between} between {} and {}.",
    "at": "{} is in house {number}.",
    "not_at": "{} is not in house {number}.",
}
_ASK = (
    "There are {n} houses, numbered 1 to {n} from left to right. A different person lives in each, "
    "and no two have the same value of anything below:\n{values}\n\nClues:\n{clues}\n\n"
    "Who lives where? End with a JSON object of this form, with every house and every attribute:\n"
    '{{"reasoning": "...", "solution": {{"House 1": {form}, ...}}}}'
)


class ZebraLogicConfig(GeneratedConfig):
    name: Literal["zebralogic"] = "zebralogic"


class ZebraLogic(GeneratedTask):
    """Generated puzzles of two to six houses, and a grader with the share of right cells."""

    name = "zebralogic"

    def __init__(self, config: ZebraLogicConfig | None = None) -> None:
        self.config = config or ZebraLogicConfig()

    def score(self, problem: Problem, text: str) -> Score:
        """Compare every cell with the gold one, case and outer spaces aside.

        Parts: `correct` 0 or 1; `cells`, the share of right cells.
        """
        final = read_cells(text, cells_of)
        if final is None:
            return no_answer("cells")
        if problem.answer is None:
            note = "this problem has no gold answer"
            return Score(verdict=Verdict.UNSCORED, parts={}, answer=final[0], note=note)
        return compare_cells(*final, read_gold(problem, cells_of, "houses"))

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f'{{"reasoning": "", "solution": {problem.answer}}}'

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        n, m = rng.choice(_SIZES[fifth(level)])
        labels = ["Name", *sorted(rng.sample(sorted(VALUES.keys() - {"Name"}), m - 1))]
        values = draw_values(labels, n, rng)
        solution = draw_arrangement(n, m, rng)
        houses: dict[str, Json] = {
            f"House {number}": dict(zip(values, column, strict=True))
            for number, column in enumerate(arrange(values, solution), 1)
        }
        home = split_of(self.name, houses)
        if split not in (None, home):
            return None
        clues = clues_for(solution, _HARD_KINDS if fifth(level) > 2 else _KINDS, rng)
        if clues is None:
            return None
        prompt = _write_question(values, clues, n)
        rows: list[Json] = [[clue.kind, *clue.items, clue.number] for clue in clues]
        payload: dict[str, Json] = {"clues": rows, "size": [n, m]}
        return self.make_problem(prompt, json.dumps(houses), payload, level, home)


def cells_of(text: str) -> Cells | None:
    """Read houses as cells by house and attribute; a value that is a list or a table is none."""
    tree = parse(text)
    if not isinstance(tree, dict):
        return None
    houses = tree.get("solution", tree)
    if isinstance(houses, dict) and houses.keys() == {"header", "rows"}:
        houses = _from_table(houses["header"], houses["rows"])
    if not isinstance(houses, dict):
        return None
    cells: Cells = {}
    for house, content in houses.items():
        if not isinstance(content, dict):
            return None
        for attribute, value in content.items():
            cell = (plain(house), plain(attribute))
            if cell[1] == "house" and value in (house, house.split()[-1]):
                continue  # the house repeats its own number
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


def _write_question(values: dict[str, list[str]], clues: Sequence[Clue], n: int) -> str:
    items = [PHRASES[label].format(value) for label, names in values.items() for value in names]
    lines = [f"{number}. {_write_clue(clue, items)}" for number, clue in enumerate(clues, 1)]
    lists = [
        f" - {label}: {', '.join(f'`{value}`' for value in names)}"
        for label, names in values.items()
    ]
    return _ASK.format(
        n=n,
        values="\n".join(lists),
        clues="\n".join(lines),
        form=json.dumps(dict.fromkeys(values, "...")),
    )


def _write_clue(clue: Clue, items: Sequence[str]) -> str:
    gaps = {0: "is no house", 1: "is one house"}
    sentence = _WORDS[clue.kind].format(
        *(items[item] for item in clue.items),
        number=clue.number + 1,
        between=gaps.get(clue.number, f"are {clue.number} houses"),
    )
    return sentence[0].upper() + sentence[1:]
