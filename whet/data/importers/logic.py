"""Puzzles and algorithms: knights and knaves, zebra tables, orderings, the 24 game, CLRS-Text."""

import json
from dataclasses import replace

from whet.data.importers.base import (
    Fields,
    ImportedResponse,
    ParsedRow,
    Reader,
    parse_json,
    show,
    to_level,
    user,
)
from whet.errors import DataError
from whet.tasks.game24 import Game24
from whet.tasks.literals import Tree, parse_literal
from whet.types import Json

_PEOPLE = (
    "End with everyone between answer tags, one a line: "
    "<answer>(1) NAME is a knight or knave\n(2) ...</answer>"
)
ORDER = (
    "End with the names in order, from left to right, as a list between answer tags: "
    "<answer>[...]</answer>"
)
PRINTOUT = (
    "Carry out the algorithm and print what belongs behind the last colon, in the same notation, "
    "nothing else."
)
GRIDS = (
    "Each pair of grids below follows one rule, which turns the input into the output. Find the "
    "rule and apply it to the last input."
)
GRID = (
    "End with the output grid as a list of rows between answer tags: <answer>[[...], ...]</answer>"
)
MAX_PAIRS = 6
"""Examples that are shown of an ARC task, as in Reasoning360."""
HIDDEN = "___"
"""What ZebraLogic's public file has in place of a solution."""
TABLE = "End with the whole table as JSON between answer tags: "


def knights(row: Fields) -> ParsedRow:
    """Read statements in machine form: nested tuples written as text, which become lists."""
    names = row.texts("names")
    roles = row.entries("solution")
    if len(roles) != len(names) or not all(isinstance(role, bool) for role in roles):
        raise DataError(
            f"field 'solution' should be true or false for each of {len(names)} names, "
            f"not {show(roles)}"
        )
    statements = parse_literal(row.text("statements"))
    if not isinstance(statements, list):
        raise DataError(
            f"field 'statements' should be a list of statements, not {show(row['statements'])}"
        )
    return ParsedRow(
        task="knights",
        prompt=user(row.text("quiz"), _PEOPLE),
        answer=row.text("solution_text_format"),
        payload={"names": list[Json](names), "statements": _statement(statements)},
        level=_level_of_size(len(names), (2, 3, 5, 7)),
    )


def zebra(row: Fields) -> ParsedRow:
    """Read Reasoning360's tables, whose levels are numbered from 1 to 20."""
    gold = row.table("ground_truth")
    clues = row.texts("clues")
    header = gold.texts("header")
    rows = '[["1", ...], ["2", ...], ...]'
    form = f'<answer>{{"header": {json.dumps(header)}, "rows": {rows}}}</answer>'
    listed = "\n".join(f"{index}. {clue}" for index, clue in enumerate(clues, start=1))
    return ParsedRow(
        task="zebra",
        prompt=user(row.text("instruction"), f"The clues are:\n{listed}", TABLE + form),
        answer=json.dumps(
            {"header": list[Json](header), "rows": gold.entries("rows")}, ensure_ascii=False
        ),
        level=to_level(row.table("config").number("level"), 20),
    )


def ordering(row: Fields) -> ParsedRow:
    names = row.texts("ground_truth")
    return ParsedRow(
        task="ordering",
        prompt=user(row.text("instruction"), row.text("input"), ORDER),
        answer=json.dumps(names, ensure_ascii=False),
        level=_level_of_size(len(names), (3, 5, 6, 8)),
    )


def zebralogic(row: Fields) -> ParsedRow:
    """Read ZebraLogic's puzzles; their solutions are not published."""
    names = ", ".join(f'"{name}": "..."' for name in row.texts("header")[1:])
    form = f'{{"reasoning": "...", "solution": {{"House 1": {{{names}}}, ...}}}}'
    return ParsedRow(
        task="zebralogic",
        prompt=user(
            row.text("puzzle"), f"End with a JSON object of this form, with every house:\n{form}"
        ),
        answer=None,
    )


def zebralogic_table(row: Fields) -> ParsedRow:
    """Read ZebraLogic's own rows; the public file leaves their solutions blank."""
    solution = row.table("solution")
    header = solution.texts("header")
    parsed = zebralogic(Fields(puzzle=row.text("puzzle"), header=list[Json](header)))
    houses: dict[str, Json] = {}
    for cells in solution.entries("rows"):
        if not isinstance(cells, list) or len(cells) != len(header):
            raise DataError(
                f"a row of 'solution' should have {len(header)} cells, not {show(cells)}"
            )
        house, *values = (str(cell) for cell in cells)
        houses[f"House {house}"] = dict(zip(header[1:], values, strict=True))
    is_hidden = any(HIDDEN in str(values) for values in houses.values()) or not houses
    answer = None if is_hidden else json.dumps(houses, ensure_ascii=False)
    return replace(parsed, answer=answer)


def arc(row: Fields) -> ParsedRow:
    """Read an ARC task: pairs to learn from, and the first of its tests."""
    pairs = [_read_pair(pair, "train") for pair in row.entries("train")]
    tests = [_read_pair(pair, "test") for pair in row.entries("test")]
    if not pairs or not tests:
        raise DataError("fields 'train' and 'test' should each hold a pair of grids")
    return _grid_problem(pairs[:MAX_PAIRS], *tests[0])


def barc(row: Fields) -> ParsedRow:
    """Read BARC's pairs; the question is the first pair that is not shown."""
    pairs = [_read_pair(pair, "examples") for pair in row.entries("examples")]
    if len(pairs) < 2:
        raise DataError("field 'examples' should hold at least two pairs of grids")
    shown = min(len(pairs) - 1, MAX_PAIRS)
    return _grid_problem(pairs[:shown], *pairs[shown])


def _grid_problem(pairs: list[tuple[Json, Json]], asked: Json, gold: Json) -> ParsedRow:
    examples = [
        f"Example {number}\nInput: {json.dumps(given)}\nOutput: {json.dumps(wanted)}"
        for number, (given, wanted) in enumerate(pairs, start=1)
    ]
    prompt = user(GRIDS, *examples, f"Input: {json.dumps(asked)}", GRID)
    return ParsedRow(task="arc", prompt=prompt, answer=json.dumps(gold))


def _read_pair(pair: Json, name: str) -> tuple[Json, Json]:
    """Read two grids, `{"input", "output"}` or a list of both; cells may be written as floats."""
    parts = [pair.get("input"), pair.get("output")] if isinstance(pair, dict) else pair
    if not isinstance(parts, list) or len(parts) != 2:
        raise DataError(f"field {name!r} should hold pairs of an input and an output grid")
    given, wanted = (_read_grid(part, name) for part in parts)
    return given, wanted


def _read_grid(value: Json, name: str) -> Json:
    rows = parse_json(value)
    grid: list[Json] = []
    for cells in rows if isinstance(rows, list) else [None]:
        numbers = [_read_cell(cell) for cell in cells] if isinstance(cells, list) else [None]
        if None in numbers or not numbers:
            raise DataError(f"field {name!r} should hold grids of numbers, not {show(rows)}")
        grid.append(list[Json](numbers))
    if not grid:
        raise DataError(f"field {name!r} has a grid without rows")
    return grid


def _read_cell(cell: Json) -> int | None:
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    return int(cell) if float(cell).is_integer() else None


def clrs(row: Fields) -> ParsedRow:
    size = int(row.number("length"))
    return ParsedRow(
        task="clrs",
        prompt=user(row.text("question"), PRINTOUT),
        answer=row.text("answer").strip(),
        payload={"algorithm": row.text("algo_name"), "size": size},
        level=_level_of_size(size, (4, 7, 10, 13)),
    )


def game24(row: Fields) -> ParsedRow:
    """Read four numbers, a trace with its hand, or a line of the table of human solving rates."""
    output = row.get("output")
    hand = " ".join(str(card) for card in row.entries("values")) if "values" in row else ""
    hand = hand or row.text("Puzzles" if "Puzzles" in row else "input")
    problem = Game24().parse_question(hand)
    if problem is None:
        raise DataError(
            f"a hand of the 24 game is four whole numbers from 1 to 13, not {show(hand)}"
        )
    return ParsedRow(
        task="game24",
        prompt=problem.prompt,
        answer=problem.answer,
        payload=problem.payload,
        level=problem.level,
        split=problem.split,
        source_id=row.row_id("Rank"),
        id=problem.id,
        responses=(ImportedResponse(text=row.text("output")),) if output is not None else (),
    )


def _statement(tree: Tree) -> Json:
    """Turn a statement in words into lists, with people as numbers."""
    if isinstance(tree, list):
        return [_statement(part) for part in tree]
    if not isinstance(tree, str):
        raise DataError(f"field 'statements' should hold lists and words, not {str(tree)[:80]}")
    return int(tree) if tree.isdecimal() and len(tree) < 5 else tree


def _level_of_size(size: int, tops: tuple[int, ...]) -> float:
    """Return the level of a size, given the largest size of each fifth, as the task does."""
    return to_level(1 + sum(size > top for top in tops))


READERS: dict[str, Reader] = {
    "knights_knaves": knights,
    "zebra_puzzle": zebra,
    "ordering_puzzle": ordering,
    "zebralogic_prompts": zebralogic,
    "zebralogic": zebralogic_table,
    "arc": arc,
    "barc": barc,
    "clrs_text": clrs,
    "game24": game24,
}
