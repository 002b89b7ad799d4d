"""Grid puzzles in the manner of ARC: find the rule in a few pairs of grids and apply it to one
more.

answer   JSON text of the output grid, rows of whole numbers payload  {"pairs": [[input, output],
...], "input": grid}, for reading only

Made puzzles use one to three moves of `moves`; every rule of as many moves that fits the pairs
gives the same output, which is proved by trying them all.
"""

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import Task
from whet.tasks.generated import GeneratedConfig, fifth, first, level_of, question, split_of, spread
from whet.tasks.literals import Tree, parse
from whet.tasks.logic.moves import MOVES, TURNS, Grid, Move, is_small, results
from whet.types import Json, Problem, Score, Split

_SHAPES: tuple[tuple[int, int, int, tuple[Move, ...]], ...] = (
    (1, 2, 3, TURNS),
    (1, 3, 5, MOVES),
    (2, 3, 4, MOVES),
    (2, 4, 7, MOVES),
    (3, 3, 5, MOVES),
)
"""Moves in a row, shortest and longest side, and which moves, in each fifth of difficulty."""
_NUM_PAIRS = 3
_ASK = (
    "Each input grid below is changed into its output by the same rule. Grids are lists of rows; 0 is empty and the "
    "other numbers are colours.\n{pairs}\nTest input: {input}\n"
    "Find the rule and apply it to the test input. End with the output grid as a list of rows between answer tags: "
    "<answer>[[...], ...]</answer>"
)


class ArcConfig(GeneratedConfig):
    name: Literal["arc"] = "arc"


class Arc(Task):
    """Generated grid puzzles, and a grader that wants the exact grid and states the share of right
    cells."""

    name = "arc"
    is_bounded = True

    def __init__(self, config: ArcConfig | None = None) -> None:
        self.config = config or ArcConfig()

    def problems(self, split: Split) -> Iterator[Problem]:
        return spread(self, self.config, split)

    def generate(
        self, seed: int, level: float | None = None, split: Split | None = None
    ) -> Problem:
        place = level_of(seed, level)
        return first(self.name, seed, lambda rng: self._drawn(rng, place, split))

    def score(self, problem: Problem, text: str) -> Score:
        """Compare the grid of the answer with the gold one, cell by cell; whole numbers only.

        Parts: `correct` 0 or 1; `cells`, the share of right cells, 0 where the size is wrong.
        """
        gold = grid_of(problem.answer or "")
        if gold is None:
            raise DataError(
                f"problem {problem.id} needs a grid as its answer, not {problem.answer!r}"
            )
        found = read_final(text, grid_of)
        if found is None:
            return no_answer("cells")
        span, grid = found
        if (len(grid), len(grid[0])) != (len(gold), len(gold[0])):
            note = (
                f"{len(grid)} x {len(grid[0])} cells where {len(gold)} x {len(gold[0])} are right"
            )
            return to_score(False, {"cells": 0.0}, span, note)
        pairs = [pair for rows in zip(grid, gold, strict=True) for pair in zip(*rows, strict=True)]
        right = sum(a == b for a, b in pairs)
        return to_score(
            grid == gold,
            {"cells": right / len(pairs)},
            span,
            f"{right} of {len(pairs)} cells are right",
        )

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f"<answer>{problem.answer}</answer>"

    def _drawn(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        depth, low, high, moves = _SHAPES[fifth(level)]
        inputs = [_drawn(rng, low, high) for _ in range(_NUM_PAIRS + 1)]
        home = split_of(self.name, _json(inputs[-1]))
        outputs = (
            _moved(inputs, [rng.choice(moves) for _ in range(depth)])
            if split in (None, home)
            else None
        )
        if outputs is None or not is_settled(inputs, outputs, depth):
            return None
        pairs: Json = [[_json(a), _json(b)] for a, b in zip(inputs[:-1], outputs[:-1], strict=True)]
        shown = [
            f"Input: {json.dumps(_json(a))} Output: {json.dumps(_json(b))}"
            for a, b in zip(inputs, outputs, strict=True)
        ]
        asked = _ASK.format(pairs="\n".join(shown[:-1]), input=json.dumps(_json(inputs[-1])))
        payload: dict[str, Json] = {"pairs": pairs, "input": _json(inputs[-1])}
        answer = json.dumps(_json(outputs[-1]))
        return question(self.name, asked, answer=answer, payload=payload, level=level, split=home)


def grid_of(text: str) -> Grid | None:
    """Read a grid: a list of rows, or rows of numbers on lines of their own; None where it is no
    rectangle of them."""
    if text.startswith(("[", "{")):
        tree = _rows(text)
        if not isinstance(tree, list):
            return None
        rows = [
            [leaf for leaf in row if isinstance(leaf, str)] for row in tree if isinstance(row, list)
        ]
        if len(rows) != len(tree) or [len(row) for row in rows] != [len(row) for row in tree]:
            return None
    else:
        rows = [line.split() for line in text.splitlines()]
    if not rows or not rows[0] or any(len(row) != len(rows[0]) for row in rows):
        return None
    if not all(
        cell.isascii() and cell.isdigit() and len(cell) <= 3 for row in rows for cell in row
    ):
        return None
    return tuple(tuple(int(cell) for cell in row) for row in rows)


def _rows(text: str) -> Tree | None:
    """Read a list of rows: whole, as the one value of an object, or a row a line."""
    tree = parse(text)
    if isinstance(tree, dict):
        return next(iter(tree.values())) if len(tree) == 1 else None
    lines = text.splitlines()
    is_by_line = (
        tree is None and len(lines) > 1 and all(line.strip().startswith("[") for line in lines)
    )
    return (
        parse(f"[{','.join(line.strip().rstrip(',') for line in lines)}]") if is_by_line else tree
    )


def is_settled(inputs: Sequence[Grid], outputs: Sequence[Grid], depth: int) -> bool:
    """Prove that the pairs leave one output for the last input, which is not what it was, and take
    as many moves."""
    if inputs[-1] == outputs[-1] or not any(map(any, inputs[-1])):
        return False
    shown = tuple(outputs[:-1])
    fitting = results(inputs, depth - 1)
    if any(state[:-1] == shown for state in fitting):
        return False
    last = {tuple(map(move, state)) for state in fitting for move in MOVES}
    return {state[-1] for state in last if state[:-1] == shown} == {outputs[-1]}


def _json(grid: Grid) -> Json:
    return [list(row) for row in grid]


def _drawn(rng: Random, low: int, high: int) -> Grid:
    colours = rng.sample(range(1, 10), 3)
    height = rng.randint(low, high)
    width = rng.randint(low, high)
    return tuple(
        tuple(rng.choice(colours) if rng.random() < 0.45 else 0 for _ in range(width))
        for _ in range(height)
    )


def _moved(grids: Sequence[Grid], moves: Sequence[Move]) -> list[Grid] | None:
    for move in moves:
        grids = [move(grid) for grid in grids]
    return list(grids) if all(is_small(grid) for grid in grids) else None
