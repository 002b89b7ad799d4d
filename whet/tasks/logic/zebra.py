"""Zebra puzzles: who has what at which position, from clues with a single solution, in two forms.

`zebra` answer JSON text of `{"header": ["Position", "Pet", ...], "rows": [["1", "cat", ...],
...]}`,
         one row per position
payload the parts of a generated puzzle, only for reading; the grader needs only the answer

The twenty clue levels are those of Reasoning360: levels 1 to 12 introduce kinds of clues, 13 to 20
remove easy ones.

`zebralogic`: houses in a row, in the JSON form of ZebraLogic answer JSON text of `{"House 1":
{attribute: value, ...}, ...}`, one entry per house, or of a
         `header` and `rows`; none if the solution is not published, which gives UNSCORED
payload as above

Sizes run from 2 x 2 to 6 x 6 as there. The last complete JSON object of a response is its answer,
`{"solution": {"House 1": {"Name": "Ada", ...}, ...}}`; a `reasoning` beside it is not read.

Both forms, and a Markdown table with a row or a column for each place, are read for both tasks.
"""

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Literal

from whet.answers.doubt import FALSE, SUPPOSED, any_of, is_denied
from whet.answers.withdrawal import is_disowned
from whet.level_bands import level_band
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.generated import GeneratedConfig, GeneratedTask, read_gold, split_of
from whet.tasks.literals import (
    Tree,
    last_object,
    last_table,
    parse_literal,
    parse_markdown,
    plain,
)
from whet.tasks.logic.clue_choice import Arrangement, clues_for, draw_arrangement
from whet.tasks.logic.positions import Clue
from whet.tasks.logic.vocabulary import PHRASES, VALUES
from whet.types import Json, Problem, Score, Split, Verdict

Cells = dict[tuple[str, str], str]
"""Values by position or house, and attribute."""

NUM_CLUE_LEVELS = 20

_PLACES = ("position", "house")
_RULED_OUT = re.compile(any_of(FALSE, SUPPOSED), re.IGNORECASE)
_PLACE = re.compile(r"(?:(?:house|position|place) ?)?#?([0-9]{1,2})", re.IGNORECASE)

_ENTERS = (
    *("same left right first last middle", "between", "beside end", "odd even", "before after"),
    *("differ", "amid", "not_before not_after", "same_parity other_parity", "one_same"),
    *("any_same", "any_differ"),
)
"""The kinds of clues that each clue level introduces, starting with the first."""
_LEAVES = (
    *("same", "left right", "first last middle", "between", "beside end", "odd even"),
    *("before after", "differ"),
)
"""The kinds that each later clue level removes."""
_SIZES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((2, 2), (2, 3), (3, 2)),
    ((3, 3), (4, 2)),
    ((4, 3), (3, 4), (4, 4)),
    ((5, 3), (4, 5), (5, 4)),
    ((5, 5), (6, 4)),
)
"""Objects and attributes in each fifth of difficulty."""
_WORDS: dict[str, str] = {
    "same": "{} and {} belong to the same object",
    "left": "{} is directly to the left of {}",
    "right": "{} is directly to the right of {}",
    "first": "{} is at the far left",
    "last": "{} is at the far right",
    "middle": "{} is in the middle",
    "between": "{} is between {} and {}, directly next to both",
    "beside": "{} is directly next to {}",
    "end": "{} is at one of the two ends",
    "odd": "{} is at an odd position",
    "even": "{} is at an even position",
    "before": "{} is somewhere to the left of {}",
    "after": "{} is somewhere to the right of {}",
    "differ": "{} and {} belong to different objects",
    "amid": "{} is somewhere between {} and {}",
    "not_before": "{} is not to the left of {}",
    "not_after": "{} is not to the right of {}",
    "same_parity": "the positions of {} and {} are both odd or both even",
    "other_parity": "of the positions of {} and {}, one is odd and one is even",
    "one_same": "either {} and {} belong to the same object, or {} and {} do, but not both",
    "any_same": "{} and {} belong to the same object, or {} and {} do, or both",
    "any_differ": "{} and {} belong to different objects, or {} and {} do, or both",
}
_ASK = (
    "{n} objects stand in a row, at positions 1 to {n} from left to right. Each has one value of "
    "every attribute, and no two objects share a value. The attributes and their values are:\n"
    "{values}\nClues:\n{clues}\n"
    "Find the values of each object. End with the whole table as JSON between answer tags, in this "
    'form: <answer>{{"header": {header}, "rows": [["1", ...], ["2", ...], ...]}}</answer>'
)


class ZebraConfig(GeneratedConfig):
    name: Literal["zebra"] = "zebra"
    minimal: bool = False
    """Drop every clue that the others make redundant."""


class Zebra(GeneratedTask):
    """Generated puzzles of twenty clue levels, an exact grader, and the fraction of right cells.

    The fifth of the level determines a puzzle's size, and the twentieth its clue level.
    """

    name = "zebra"
    config: ZebraConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare the table of the answer with the gold one, text by text, ignoring case.

        Parts: `correct` 0 or 1; `cells`, the fraction of right cells without the positions.
        """
        gold = read_gold(problem, cells_of, "a table")
        final = read_cells(text)
        return no_answer("cells") if final is None else compare_cells(*final, gold)

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        n, m = rng.choice(_SIZES[level_band(level)])
        values = draw_values(sorted(rng.sample(sorted(VALUES), m)), n, rng)
        solution = draw_arrangement(n, m, rng)
        header = ["Position", *values]
        rows = [[str(n), *column] for n, column in enumerate(arrange(values, solution), 1)]
        answer = json.dumps({"header": header, "rows": rows})
        if split not in (None, split_of(self.name, answer)):
            return None
        clues = clues_for(solution, kinds_at(clue_level(level)), rng, minimal=self.config.minimal)
        if clues is None:
            return None
        items = [f"{label}:{value}" for label, listed in values.items() for value in listed]
        lines = [
            f"{number}. {_WORDS[clue.kind].format(*(items[item] for item in clue.items))}"
            for number, clue in enumerate(clues, 1)
        ]
        lists = "\n".join(f"{label}: {', '.join(listed)}" for label, listed in values.items())
        head = json.dumps(header)
        prompt = _ASK.format(n=n, values=lists, clues="\n".join(lines), header=head)
        payload: dict[str, Json] = {
            "clue_level": clue_level(level),
            "clues": [[clue.kind, *clue.items] for clue in clues],
        }
        return self.make_problem(prompt, answer, payload, level, core=answer)


def kinds_at(level: int) -> list[str]:
    """List the kinds of clues of a clue level, 1 to 20."""
    gone = " ".join(_LEAVES[: max(level - len(_ENTERS), 0)]).split()
    return [kind for kind in " ".join(_ENTERS[:level]).split() if kind not in gone]


def clue_level(level: float) -> int:
    """Return the clue level, 1 to 20, of a difficulty from 0 to 1."""
    return min(1 + int(level * NUM_CLUE_LEVELS), NUM_CLUE_LEVELS)


def draw_values(labels: Sequence[str], n: int, rng: Random) -> dict[str, list[str]]:
    """Draw n values for each attribute, in the order they are listed to the reader."""
    return {label: sorted(rng.sample(VALUES[label], n)) for label in labels}


def arrange(values: dict[str, list[str]], solution: Arrangement) -> list[list[str]]:
    """List the values at each position, one per attribute."""
    names = [value for attribute in values.values() for value in attribute]
    return [[names[item] for item in column] for column in zip(*solution.items, strict=True)]


def read_cells(text: str) -> tuple[str, Cells] | None:
    """Read the cells of the table or JSON object in the final answer; None if there are none.

    Two different ones in succession are not an answer.
    """
    final = read_final(text, _last_block)
    if final is None:
        return None
    span, answer = final
    start = span.rfind(answer)
    before = span[:start].rstrip(" \n,;*`")
    lead = before[before.rfind("\n") + 1 :]
    is_led_away = is_disowned(lead) or _RULED_OUT.search(lead) is not None
    if (lead.endswith(":") and is_led_away) or is_denied(span, start, start + len(answer)):
        return None
    cells = cells_of(answer)
    other = _last_block(before)
    if other is not None and before.endswith(other) and cells_of(other) != cells:
        return None
    return None if cells is None else (answer, cells)


def _last_block(text: str) -> str | None:
    return last_table(text) or last_object(text)


def compare_cells(answer: str, cells: Cells, gold: Cells) -> Score:
    """Score the fraction of right cells."""
    right = sum(cells.get(cell) == value for cell, value in gold.items())
    note = f"{right} of {len(gold)} cells are right"
    return to_score(cells == gold, {"cells": right / len(gold)}, answer, note)


def cells_of(text: str) -> Cells | None:
    """Read a table, or places with their attributes, in any order; None if a value is a list."""
    lines = parse_markdown(text)
    tree = parse_literal(text) if lines is None else _table_of(lines)
    tree = tree.get("solution", tree) if isinstance(tree, dict) else None
    if isinstance(tree, dict) and {"header", "rows"} <= tree.keys():
        tree = _from_table(tree["header"], tree["rows"])
    if not isinstance(tree, dict):
        return None
    cells: Cells = {}
    for name, content in tree.items():
        if not isinstance(content, dict):
            return None
        place = _place_of(name)
        for attribute, value in content.items():
            cell = (place, plain(attribute))
            if not isinstance(value, str) or cell in cells:
                return None
            if cell[1] in _PLACES and _place_of(value) == place:
                continue  # the house repeats its own number
            cells[cell] = plain(value)
    return cells or None


def _table_of(lines: list[list[str]]) -> Tree:
    """Turn the lines of a table into a header and rows, one row per place."""
    lines = [[cell.strip("*` ") for cell in line] for line in lines]
    if all(map(_PLACE.fullmatch, lines[0][1:])) and len({*map(len, lines)}) == 1:
        lines = [list(column) for column in zip(*lines, strict=True)]
        lines[0][0] = "position"
    return {"header": [*lines[0]], "rows": [[*line] for line in lines[1:]]}


def _from_table(header: Tree, rows: Tree) -> Tree | None:
    """Map each place to the values of its row by name."""
    names = _read_words(header)
    if names is None or not isinstance(rows, list) or len(set(names)) != len(names):
        return None
    column = next((n for n, name in enumerate(names) if name in _PLACES), None)
    if column is None:
        return None
    places: dict[str, Tree] = {}
    for row in rows:
        values = _read_words(row)
        if values is None or len(values) != len(names):
            return None
        place = _PLACE.fullmatch(values[column])
        if place is None or place[1] in places:
            return None
        by_name: dict[str, Tree] = dict(zip(names, values, strict=True))
        del by_name[names[column]]
        places[place[1]] = by_name
    return places


def _place_of(name: str) -> str:
    place = _PLACE.fullmatch(plain(name))
    return place[1] if place else plain(name)


def _read_words(leaves: Tree | None) -> list[str] | None:
    if not isinstance(leaves, list):
        return None
    words = [plain(leaf) for leaf in leaves if isinstance(leaf, str)]
    return words if len(words) == len(leaves) else None


_HOUSE_SIZES = (
    ((2, 2), (2, 3), (3, 2)),
    ((2, 5), (3, 3), (4, 2)),
    ((3, 5), (4, 3), (4, 4)),
    ((4, 5), (5, 4), (6, 3)),
    ((5, 6), (6, 5), (6, 6)),
)
"""Houses and attributes in each fifth of difficulty."""
_HOUSE_KINDS = str.split(
    "same same same left right before after beside apart at not_at not_at"  # repeated for frequency
)
_HARD_KINDS = str.split("same left before after beside apart not_at")
_HOUSE_WORDS = {
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
_HOUSE_ASK = (
    "There are {n} houses, numbered 1 to {n} from left to right. A different person lives in each, "
    "and no two have the same value of anything below:\n{values}\n\nClues:\n{clues}\n\n"
    "Who lives where? End with a JSON object of this form, with every house and every attribute:\n"
    '{{"reasoning": "...", "solution": {{"House 1": {form}, ...}}}}'
)


class ZebraLogicConfig(GeneratedConfig):
    name: Literal["zebralogic"] = "zebralogic"


class ZebraLogic(GeneratedTask):
    """Generated puzzles of two to six houses, and a grader with the fraction of right cells."""

    name = "zebralogic"
    config: ZebraLogicConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare every cell with the gold one, ignoring case and outer spaces.

        Parts: `correct` 0 or 1; `cells`, the fraction of right cells.
        """
        final = read_cells(text)
        if final is None:
            return no_answer("cells")
        if problem.answer is None:
            note = "this problem has no gold answer"
            return Score(verdict=Verdict.UNSCORED, parts={}, answer=final[0], note=note)
        return compare_cells(*final, read_gold(problem, cells_of, "houses"))

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f'{{"reasoning": "", "solution": {problem.answer}}}'

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        n, m = rng.choice(_HOUSE_SIZES[level_band(level)])
        labels = ["Name", *sorted(rng.sample(sorted(VALUES.keys() - {"Name"}), m - 1))]
        values = draw_values(labels, n, rng)
        solution = draw_arrangement(n, m, rng)
        houses: dict[str, Json] = {
            f"House {number}": dict(zip(values, column, strict=True))
            for number, column in enumerate(arrange(values, solution), 1)
        }
        if split not in (None, split_of(self.name, houses)):
            return None
        clues = clues_for(solution, _HARD_KINDS if level_band(level) > 2 else _HOUSE_KINDS, rng)
        if clues is None:
            return None
        prompt = _write_question(values, clues, n)
        rows: list[Json] = [[clue.kind, *clue.items, clue.number] for clue in clues]
        payload: dict[str, Json] = {"clues": rows, "size": [n, m]}
        return self.make_problem(prompt, json.dumps(houses), payload, level, core=houses)


def _write_question(values: dict[str, list[str]], clues: Sequence[Clue], n: int) -> str:
    items = [PHRASES[label].format(value) for label, names in values.items() for value in names]
    lines = [f"{number}. {_write_clue(clue, items)}" for number, clue in enumerate(clues, 1)]
    lists = [f" - {label}: `{'`, `'.join(names)}`" for label, names in values.items()]
    form = json.dumps(dict.fromkeys(values, "..."))
    return _HOUSE_ASK.format(n=n, values="\n".join(lists), clues="\n".join(lines), form=form)


def _write_clue(clue: Clue, items: Sequence[str]) -> str:
    gaps = {0: "is no house", 1: "is one house"}
    sentence = _HOUSE_WORDS[clue.kind].format(
        *(items[item] for item in clue.items),
        number=clue.number + 1,
        between=gaps.get(clue.number, f"are {clue.number} houses"),
    )
    return sentence[0].upper() + sentence[1:]
