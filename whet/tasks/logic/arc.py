"""Grid puzzles in the manner of ARC: infer the rule from a few pairs of grids and apply it.

answer JSON text of the output grid, rows of whole numbers payload {"pairs": [[input, output], ...],
"input": grid}, for reading only

A generated rule is a sequence of one to three of a dozen moves. All rules of that length that fit
the pairs give the same output, which is proved by trying them all.
"""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from whet.level_bands import level_band
from whet.tasks.generated import GeneratedConfig, GeneratedTask, grade_final_answer, split_of
from whet.tasks.literals import Tree, parse_literal
from whet.types import Json, Problem, Score, Split

Grid = tuple[tuple[int, ...], ...]
_Move = Callable[[Grid], Grid]

MAX_SIDE = 30

_NUM_PAIRS = 3
_HEADING = re.compile(
    r"\**(?:the )?(?:final |test )?output(?: grid)?(?: is)?\**:?\**[ \t]*\n?", re.IGNORECASE
)
_ROW = re.compile(
    r"\s*(?:\*{0,2}row [0-9]{1,2}\*{0,2}:?\*{0,2})?\s*[\[|]?((?:[0-9]|[ \t,|])+)[\]|]?,?\s*",
    re.IGNORECASE,
)
"""A row of numbers on its own line, perhaps with a label: `Row 1: [0, 7]`."""
_MATRIX = re.compile(r"\$*\\begin\{[bpv]?matrix\}([0-9&\\\s]+)\\end\{[bpv]?matrix\}\$*")
_ROW_GAP = re.compile(r"\][,;]?\s+(?:and\s+)?\[")
"""The gap between rows that have no outer brackets: `[0, 1], [2, 3]`."""
_TUPLES = re.compile(r"\((?:\s*+\([0-9,\s]++\),?)++\s*\)")
_TO_LISTS = str.maketrans("()", "[]")
_OF_INPUT = re.compile(r"\binput\b(?![^\n]*\boutput\b)[^\n\[]{0,40}\[\[[^\n]*\Z", re.IGNORECASE)
"""A last line that calls its grid an input."""
_INPUT = re.compile(r"\binput\b(?!.*\boutput\b)[^.]*\Z", re.IGNORECASE)
_MAX_END = 1 << 12
_ASK = (
    "Each input grid below is changed into its output by the same rule. Grids are lists of rows; 0 "
    "is empty and the other numbers are colours.\n{pairs}\nTest input: {input}\n"
    "Find the rule and apply it to the test input. End with the output grid as a list of rows "
    "between answer tags: <answer>[[...], ...]</answer>"
)


class ArcConfig(GeneratedConfig):
    name: Literal["arc"] = "arc"


class Arc(GeneratedTask):
    """Generated grid puzzles, and a grader that wants the exact grid."""

    name = "arc"
    config: ArcConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare the grid of the answer with the gold one, cell by cell; whole numbers only.

        Parts: `correct` 0 or 1; `cells`, the fraction of right cells, 0 if the size is wrong.
        """
        text = _TUPLES.sub(lambda grid: grid[0].translate(_TO_LISTS), text)
        text = _keep_last_rows(text)
        return grade_final_answer(
            problem, text, grid_of, _compare, needs="a grid", may_be_stated=True
        )

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        depth, low, high, moves = _SHAPES[level_band(level)]
        inputs = [_draw_grid(rng, low, high) for _ in range(_NUM_PAIRS + 1)]
        core = _json(inputs[-1])
        if split not in (None, split_of(self.name, core)):
            return None
        outputs = inputs
        for move in [rng.choice(list(moves.values())) for _ in range(depth)]:
            outputs = [move(grid) for grid in outputs]
        if not all(map(is_small, outputs)) or not is_settled(inputs, outputs, depth):
            return None
        *pairs, (last, answer) = (
            (_json(a), _json(b)) for a, b in zip(inputs, outputs, strict=True)
        )
        lines = [f"Input: {json.dumps(a)} Output: {json.dumps(b)}" for a, b in pairs]
        prompt = _ASK.format(pairs="\n".join(lines), input=json.dumps(last))
        payload: dict[str, Json] = {"pairs": [[a, b] for a, b in pairs], "input": last}
        return self.make_problem(prompt, json.dumps(answer), payload, level, core=core)


def grid_of(text: str) -> Grid | None:
    """Read a list of rows, or rows of numbers on separate lines; None if it is not a grid."""
    text = _HEADING.sub("", text, count=1) if _HEADING.match(text) else text
    if text.startswith("[") and _ROW_GAP.search(text) and text[1:].lstrip()[:1] != "[":
        text = f"[{_ROW_GAP.sub('], [', text)}]"
    if text.startswith("["):
        tree = _parse_rows(text)
        if not isinstance(tree, list):
            return None
        rows = []
        for row in tree:
            cells = [leaf for leaf in row if isinstance(leaf, str)] if isinstance(row, list) else []
            if len(cells) != len(row):
                return None
            rows.append(cells)
    else:
        rows = [line.split() for line in text.splitlines()]
    if not rows or not rows[0] or any(len(row) != len(rows[0]) for row in rows):
        return None
    if not all(re.fullmatch("[0-9]{1,3}", cell) for row in rows for cell in row):
        return None
    return tuple(tuple(int(cell) for cell in row) for row in rows)


def _keep_last_rows(text: str) -> str:
    """Rewrite the rows of numbers that end a text, or a matrix, as an answer; keep other texts."""
    if "<answer>" in text or "boxed" in text or "```" in text:
        return text
    end = text[-_MAX_END:].rstrip()
    end = _MATRIX.sub(lambda matrix: matrix[1].replace("&", " ").replace("\\\\", "\n"), end)
    if _OF_INPUT.search(end):
        return ""
    lines = end.splitlines()
    rows: list[str] = []
    while lines and len(rows) < MAX_SIDE and (row := _ROW.fullmatch(lines[-1])):
        cells = re.findall("[0-9]+", row[1])
        if not cells:
            break
        rows.insert(0, " ".join(cells))
        lines.pop()
    above = lines[-1].rstrip(" *") if lines else ""
    if len(rows) > 1 and _INPUT.search(above):
        return ""
    is_apart = bool(lines) and (not above or above[-1].isalpha() or above.endswith(":"))
    if len(rows) < 2 or (lines and not is_apart):
        return f"{text[:-_MAX_END]}{end}"
    return "\n".join([f"{text[:-_MAX_END]}", *lines, "Answer:", *rows])


def is_settled(inputs: Sequence[Grid], outputs: Sequence[Grid], depth: int) -> bool:
    """Prove that the pairs determine the last output, and that fewer moves do not fit. False also
    if the last input is empty or unchanged."""
    if inputs[-1] == outputs[-1] or not any(map(any, inputs[-1])):
        return False
    shown = tuple(outputs[:-1])
    shorter = results(inputs, depth - 1)
    if any(state[:-1] == shown for state in shorter):
        return False
    last = {tuple(map(move, state)) for state in shorter for move in MOVES.values()}
    return {state[-1] for state in last if state[:-1] == shown} == {outputs[-1]}


def results(grids: Sequence[Grid], depth: int) -> set[tuple[Grid, ...]]:
    """List the results of applying up to `depth` moves, the same ones to all grids."""
    layer = seen = {tuple(grids)}
    for _ in range(depth):
        moved = {tuple(map(move, state)) for state in layer for move in MOVES.values()}
        layer = {state for state in moved - seen if all(map(is_small, state))}
        seen = seen | layer
    return seen


def is_small(grid: Grid) -> bool:
    """Whether no side of a grid exceeds the limit."""
    return len(grid) <= MAX_SIDE and len(grid[0]) <= MAX_SIDE


def crop(grid: Grid) -> Grid:
    """Cut away the empty rows and columns around the colours."""
    rows = [number for number, row in enumerate(grid) if any(row)]
    columns = [number for number, column in enumerate(zip(*grid, strict=True)) if any(column)]
    if not rows:
        return grid
    return tuple(row[columns[0] : columns[-1] + 1] for row in grid[rows[0] : rows[-1] + 1])


def push(grid: Grid) -> Grid:
    """Push every colour to the right end of its row."""
    return tuple(tuple(sorted(row, key=bool)) for row in grid)


def paint(grid: Grid) -> Grid:
    """Paint everything in the most common colour, the lowest if several tie."""
    cells = [cell for row in grid for cell in row if cell]
    if not cells:
        return grid
    colour = min(set(cells), key=lambda cell: (-cells.count(cell), cell))
    return tuple(tuple(colour if cell else 0 for cell in row) for row in grid)


TURNS: dict[str, _Move] = {
    "flip": lambda grid: tuple(row[::-1] for row in grid),
    "upend": lambda grid: grid[::-1],
    "transpose": lambda grid: tuple(zip(*grid, strict=True)),
    "rotate clockwise": lambda grid: tuple(zip(*grid[::-1], strict=True)),
    "rotate half": lambda grid: tuple(row[::-1] for row in grid[::-1]),
}
MOVES: dict[str, _Move] = TURNS | {
    "crop": crop,
    "drop": lambda grid: TURNS["transpose"](push(TURNS["transpose"](grid))),
    "push": push,
    "double": lambda grid: tuple(
        row for thin in grid for row in [tuple(cell for cell in thin for _ in range(2))] * 2
    ),
    "mirror to the right": lambda grid: tuple(row + row[::-1] for row in grid),
    "mirror below": lambda grid: grid + grid[::-1],
    "paint": paint,
}

_SHAPES = (
    (1, 2, 3, TURNS),
    (1, 3, 5, MOVES),
    (2, 3, 4, MOVES),
    (2, 4, 7, MOVES),
    (3, 3, 5, MOVES),
)
"""For each fifth of difficulty: how many moves, the shortest and longest side, and which moves."""


def _compare(grid: Grid, gold: Grid) -> tuple[dict[str, float], str]:
    size = f"{len(gold)} x {len(gold[0])}"
    if (len(grid), len(grid[0])) != (len(gold), len(gold[0])):
        return {"cells": 0.0}, f"{len(grid)} x {len(grid[0])} cells where {size} are right"
    pairs = [pair for rows in zip(grid, gold, strict=True) for pair in zip(*rows, strict=True)]
    right = sum(a == b for a, b in pairs)
    return {"cells": right / len(pairs)}, f"{right} of {len(pairs)} cells are right"


def _parse_rows(text: str) -> Tree | None:
    """Parse a list of rows: whole, or one row per line."""
    tree = parse_literal(text)
    lines = [line.strip() for line in text.splitlines()]
    if tree is None and len(lines) > 1 and all(line.startswith("[") for line in lines):
        return parse_literal(f"[{','.join(line.rstrip(',') for line in lines)}]")
    return tree


def _json(grid: Grid) -> Json:
    return [list(row) for row in grid]


def _draw_grid(rng: Random, low: int, high: int) -> Grid:
    colours = rng.sample(range(1, 10), 3)
    height = rng.randint(low, high)
    width = rng.randint(low, high)
    return tuple(
        tuple(rng.choice(colours) if rng.random() < 0.45 else 0 for _ in range(width))
        for _ in range(height)
    )
