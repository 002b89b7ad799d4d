"""Puzzles and algorithms: knights and knaves, zebra tables, orderings, the 24 game, CLRS-Text."""

import json

from whet.data.importers.base import (
    Answer,
    Draft,
    Fields,
    Format,
    fifth,
    items,
    layout,
    number,
    row_id,
    shown,
    table,
    text,
    texts,
    user,
)
from whet.errors import DataError
from whet.tasks.game24 import Game24
from whet.tasks.literals import Tree, parse
from whet.types import Json

PEOPLE = "End with everyone between answer tags, one a line: <answer>(1) NAME is a knight or knave\n(2) ...</answer>"
ORDER = "End with the names in order, from left to right, as a list between answer tags: <answer>[...]</answer>"
PRINTOUT = "Carry out the algorithm and print what belongs behind the last colon, in the same notation, nothing else."
TABLE = "End with the whole table as JSON between answer tags: "


def knights(row: Fields) -> Draft:
    """The statements in machine form, nested tuples written as text, become lists."""
    names = texts(row, "names")
    roles = items(row, "solution")
    if len(roles) != len(names) or not all(isinstance(role, bool) for role in roles):
        raise DataError(
            f"field 'solution' should be true or false for each of {len(names)} names, not {shown(roles)}"
        )
    said = parse(text(row, "statements"))
    if not isinstance(said, list):
        raise DataError(
            f"field 'statements' should be a list of statements, not {shown(row['statements'])}"
        )
    return Draft(
        task="knights",
        prompt=user(text(row, "quiz"), PEOPLE),
        answer=text(row, "solution_text_format"),
        payload={"names": list[Json](names), "statements": _statement(said)},
        level=_level(len(names), (2, 3, 5, 7)),
        source_id=row_id(row, "id"),
    )


def zebra(row: Fields) -> Draft:
    """Reasoning360 numbers its clue levels from 1 to 20."""
    gold = table(row, "ground_truth")
    clues = texts(row, "clues")
    header = texts(gold, "header")
    form = f'<answer>{{"header": {json.dumps(header)}, "rows": [["1", ...], ["2", ...], ...]}}</answer>'
    listed = "\n".join(f"{index}. {clue}" for index, clue in enumerate(clues, start=1))
    return Draft(
        task="zebra",
        prompt=user(text(row, "instruction"), f"The clues are:\n{listed}", TABLE + form),
        answer=json.dumps(
            {"header": list[Json](header), "rows": items(gold, "rows")}, ensure_ascii=False
        ),
        level=fifth(number(table(row, "config"), "level"), 20),
        source_id=row_id(row, "id") or row_id(row, "puzzle_id"),
    )


def ordering(row: Fields) -> Draft:
    names = texts(row, "ground_truth")
    return Draft(
        task="ordering",
        prompt=user(text(row, "instruction"), text(row, "input"), ORDER),
        answer=json.dumps(names, ensure_ascii=False),
        level=_level(len(names), (3, 5, 6, 8)),
        source_id=row_id(row, "id"),
    )


def zebralogic(row: Fields) -> Draft:
    """ZebraLogic keeps its solutions to itself, so these rows have no answer."""
    names = ", ".join(f'"{name}": "..."' for name in texts(row, "header")[1:])
    form = f'{{"reasoning": "...", "solution": {{"House 1": {{{names}}}, ...}}}}'
    return Draft(
        task="zebralogic",
        prompt=user(
            text(row, "puzzle"), f"End with a JSON object of this form, with every house:\n{form}"
        ),
        answer=None,
        source_id=row_id(row, "id"),
    )


def clrs(row: Fields) -> Draft:
    size = int(number(row, "length"))
    return Draft(
        task="clrs",
        prompt=user(text(row, "question"), PRINTOUT),
        answer=text(row, "answer").strip(),
        payload={"algorithm": text(row, "algo_name"), "size": size},
        level=_level(size, (4, 7, 10, 13)),
        source_id=row_id(row, "id"),
    )


def game24(row: Fields) -> Draft:
    """Read a list of four numbers, a trace with its hand, or a line of the table with human solving
    rates."""
    output = row.get("output")
    hand = " ".join(str(card) for card in items(row, "values")) if "values" in row else ""
    hand = hand or text(row, "Puzzles" if "Puzzles" in row else "input")
    problem = Game24().parse_question(hand)
    if problem is None:
        raise DataError(
            f"a hand of the 24 game is four whole numbers from 1 to 13, not {shown(hand)}"
        )
    return Draft(
        task="game24",
        prompt=problem.prompt,
        answer=problem.answer,
        payload=problem.payload,
        level=problem.level,
        split=problem.split,
        source_id=row_id(row, "Rank"),
        id=problem.id,
        answers=(Answer(text=text(row, "output")),) if output is not None else (),
    )


def _statement(tree: Tree) -> Json:
    """Turn a statement of words into the machine form: the people are numbers."""
    if isinstance(tree, list):
        return [_statement(part) for part in tree]
    if not isinstance(tree, str):
        raise DataError(f"field 'statements' should hold lists and words, not {str(tree)[:80]}")
    return int(tree) if tree.isdecimal() and len(tree) < 5 else tree


def _level(size: int, tops: tuple[int, ...]) -> float:
    """Grade a size by the largest of each fifth but the last, the same as for the task's own
    problems."""
    return fifth(1 + sum(size > top for top in tops))


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
