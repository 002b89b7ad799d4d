"""Puzzles and algorithms: knights and knaves, zebra tables, orderings, the 24 game, CLRS-Text."""

import json

from whet.data.importers.base import (
    Answer,
    Draft,
    Fields,
    Format,
    layout,
    show,
    to_level,
    user,
)
from whet.errors import DataError
from whet.tasks.game24 import Game24
from whet.tasks.literals import Tree, parse
from whet.types import Json

PEOPLE = (
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
TABLE = "End with the whole table as JSON between answer tags: "


def knights(row: Fields) -> Draft:
    """Read statements in machine form: nested tuples written as text, which become lists."""
    names = row.texts("names")
    roles = row.entries("solution")
    if len(roles) != len(names) or not all(isinstance(role, bool) for role in roles):
        raise DataError(
            f"field 'solution' should be true or false for each of {len(names)} names, "
            f"not {show(roles)}"
        )
    statements = parse(row.text("statements"))
    if not isinstance(statements, list):
        raise DataError(
            f"field 'statements' should be a list of statements, not {show(row['statements'])}"
        )
    return Draft(
        task="knights",
        prompt=user(row.text("quiz"), PEOPLE),
        answer=row.text("solution_text_format"),
        payload={"names": list[Json](names), "statements": _statement(statements)},
        level=_level(len(names), (2, 3, 5, 7)),
        source_id=row.row_id("id"),
    )


def zebra(row: Fields) -> Draft:
    """Read Reasoning360's tables, whose levels are numbered from 1 to 20."""
    gold = row.table("ground_truth")
    clues = row.texts("clues")
    header = gold.texts("header")
    rows = '[["1", ...], ["2", ...], ...]'
    form = f'<answer>{{"header": {json.dumps(header)}, "rows": {rows}}}</answer>'
    listed = "\n".join(f"{index}. {clue}" for index, clue in enumerate(clues, start=1))
    return Draft(
        task="zebra",
        prompt=user(row.text("instruction"), f"The clues are:\n{listed}", TABLE + form),
        answer=json.dumps(
            {"header": list[Json](header), "rows": gold.entries("rows")}, ensure_ascii=False
        ),
        level=to_level(row.table("config").number("level"), 20),
        source_id=row.row_id("id") or row.row_id("puzzle_id"),
    )


def ordering(row: Fields) -> Draft:
    names = row.texts("ground_truth")
    return Draft(
        task="ordering",
        prompt=user(row.text("instruction"), row.text("input"), ORDER),
        answer=json.dumps(names, ensure_ascii=False),
        level=_level(len(names), (3, 5, 6, 8)),
        source_id=row.row_id("id"),
    )


def zebralogic(row: Fields) -> Draft:
    """Read ZebraLogic's puzzles, whose solutions are not published."""
    names = ", ".join(f'"{name}": "..."' for name in row.texts("header")[1:])
    form = f'{{"reasoning": "...", "solution": {{"House 1": {{{names}}}, ...}}}}'
    return Draft(
        task="zebralogic",
        prompt=user(
            row.text("puzzle"), f"End with a JSON object of this form, with every house:\n{form}"
        ),
        answer=None,
        source_id=row.row_id("id"),
    )


def clrs(row: Fields) -> Draft:
    size = int(row.number("length"))
    return Draft(
        task="clrs",
        prompt=user(row.text("question"), PRINTOUT),
        answer=row.text("answer").strip(),
        payload={"algorithm": row.text("algo_name"), "size": size},
        level=_level(size, (4, 7, 10, 13)),
        source_id=row.row_id("id"),
    )


def game24(row: Fields) -> Draft:
    """Read four numbers, a trace with its hand, or a line of the table of human solving rates."""
    output = row.get("output")
    hand = " ".join(str(card) for card in row.entries("values")) if "values" in row else ""
    hand = hand or row.text("Puzzles" if "Puzzles" in row else "input")
    problem = Game24().parse_question(hand)
    if problem is None:
        raise DataError(
            f"a hand of the 24 game is four whole numbers from 1 to 13, not {show(hand)}"
        )
    return Draft(
        task="game24",
        prompt=problem.prompt,
        answer=problem.answer,
        payload=problem.payload,
        level=problem.level,
        split=problem.split,
        source_id=row.row_id("Rank"),
        id=problem.id,
        answers=(Answer(text=row.text("output")),) if output is not None else (),
    )


def _statement(tree: Tree) -> Json:
    """Turn a statement of words into lists, in which people are numbers."""
    if isinstance(tree, list):
        return [_statement(part) for part in tree]
    if not isinstance(tree, str):
        raise DataError(f"field 'statements' should hold lists and words, not {str(tree)[:80]}")
    return int(tree) if tree.isdecimal() and len(tree) < 5 else tree


def _level(size: int, tops: tuple[int, ...]) -> float:
    """Grade a size by the largest one of each fifth but the last, as the task grades its own."""
    return to_level(1 + sum(size > top for top in tops))


_HUMAN = ("Rank", "AMT (s)", "Solved rate", "1-sigma Mean (s)", "1-sigma STD (s)")

FORMATS: dict[str, Format] = {
    "knights_knaves": layout(
        "Logic-RL islands",
        knights,
        "quiz names solution solution_text_format statements",
        "id n_people solution_text cot_repeat_steps prompt",
    ),
    "zebra_puzzle": layout(
        "Reasoning360 zebra tables",
        zebra,
        "instruction clues ground_truth config",
        "id puzzle_id worker_id unique",
    ),
    "ordering_puzzle": layout(
        "Reasoning360 orderings",
        ordering,
        "instruction input ground_truth",
        "id num_objects n_solutions",
    ),
    "zebralogic_prompts": layout(
        "ZebraLogic, without solutions", zebralogic, "puzzle header", "id size n_rows"
    ),
    "clrs_text": layout("CLRS-Text", clrs, "question answer algo_name length", "id use_hints seed"),
    "game24": Format(
        about="hands of the 24 game: lists, traces, or the table of human solving rates",
        needs=(),
        may=("values", "input", "output", "Puzzles", *_HUMAN),
        read=game24,
    ),
}
