"""Grid puzzles: the exact grid or nothing, one output each, and the moves worked by hand."""

import json

import pytest
from upstream import problem

from whet.errors import DataError
from whet.tasks.logic.arc import MOVES, Arc, grid_of, is_settled, results
from whet.types import Verdict

TASK = Arc()
GRID = ((1, 2), (0, 3))


def graded(response: str, gold: str = "[[1, 2], [0, 3]]") -> tuple[Verdict, float]:
    score = TASK.score(problem("arc", gold), response)
    return score.verdict, score.parts["cells"]


@pytest.mark.parametrize(
    "answer",
    [
        "[[1, 2], [0, 3]]",
        "[\n [1,2],\n [0,3]\n]",
        "1 2\n0 3",
        "[[1, 2],[0, 3]]",
        "```\n[[1, 2], [0, 3]]\n```",
    ],
)
def test_the_grid_is_right_however_it_is_spaced(answer: str) -> None:
    assert graded(f"<answer>{answer}</answer>") == (Verdict.CORRECT, 1.0)


@pytest.mark.parametrize(
    ("answer", "cells"),
    [
        ("[[1, 2], [0, 4]]", 0.75),
        ("[[1, 2]]", 0.0),
        ("[[1, 2, 0], [0, 3, 0]]", 0.0),
        ("[[1, 2], [0, 3], [0, 3]]", 0.0),
        ("[[1, 2], [0, 30]]", 0.75),
    ],
)
def test_any_other_grid_is_wrong(answer: str, cells: float) -> None:
    assert graded(f"<answer>{answer}</answer>") == (Verdict.WRONG, cells)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[]",
        "[[]]",
        "[[1, 2], [0]]",
        "[[1, 2.0], [0, 3]]",
        "[[1, 2.9], [0, 3]]",
        "[[-1]]",
        "[1, 2]",
        "[[[1]]]",
        "no",
    ],
)
def test_what_is_no_grid_of_whole_numbers_is_no_answer(answer: str) -> None:
    assert graded(f"<answer>{answer}</answer>") == (Verdict.NO_ANSWER, 0.0)


def test_an_unreadable_answer_is_not_taken_for_a_grid_of_one_zero() -> None:
    def original(text: str) -> object:
        try:
            return json.loads(text)
        except ValueError:
            return [[0]]

    assert original("I cannot tell") == [[0]]

    assert graded("I cannot tell", gold="[[0]]")[0] is Verdict.NO_ANSWER
    assert graded("<answer>[[0.7]]</answer>", gold="[[0]]")[0] is Verdict.NO_ANSWER
    assert [[int(0.7)]] == [[0]], "the original cuts fractions off"


def test_a_grid_of_another_size_is_not_padded_to_fit() -> None:
    assert graded("<answer>[[1]]</answer>", gold="[[1, 0]]") == (Verdict.WRONG, 0.0)


def test_every_move_does_what_it_says() -> None:
    assert MOVES["flip"](GRID) == ((2, 1), (3, 0))
    assert MOVES["upend"](GRID) == ((0, 3), (1, 2))
    assert MOVES["transpose"](GRID) == ((1, 0), (2, 3))
    assert MOVES["rotate clockwise"](GRID) == ((0, 1), (3, 2))
    assert MOVES["rotate half"](GRID) == ((3, 0), (2, 1))
    assert MOVES["drop"](((1, 2), (0, 3))) == ((0, 2), (1, 3))
    assert MOVES["push"](((1, 0), (0, 3))) == ((0, 1), (0, 3))
    assert MOVES["double"](((1, 2),)) == ((1, 1, 2, 2), (1, 1, 2, 2))
    assert MOVES["mirror to the right"](GRID) == ((1, 2, 2, 1), (0, 3, 3, 0))
    assert MOVES["mirror below"](GRID) == ((1, 2), (0, 3), (0, 3), (1, 2))
    assert MOVES["crop"](((0, 0, 0), (0, 5, 0), (0, 0, 6), (0, 0, 0))) == ((5, 0), (0, 6))
    assert MOVES["paint"](((1, 2, 2), (0, 3, 0))) == ((2, 2, 2), (0, 2, 0))
    assert MOVES["crop"](((0, 0),)) == ((0, 0),) == MOVES["paint"](((0, 0),))


def test_one_move_in_all_ways_gives_each_result_once() -> None:
    assert results([GRID], 1) == {(GRID,), *((move(GRID),) for move in MOVES.values())}


@pytest.mark.parametrize("level", [0.1, 0.3, 0.5, 0.7])
def test_no_rule_of_as_many_moves_fits_the_pairs_and_gives_another_output(level: float) -> None:
    depth = 1 if level < 0.4 else 2
    for seed in range(60 if depth == 1 else 3):
        made = TASK.generate(seed, level)
        pairs, last = made.payload["pairs"], grid_of(json.dumps(made.payload["input"]))
        assert isinstance(pairs, list) and last is not None
        grids = [
            (grid_of(json.dumps(pair[0])), grid_of(json.dumps(pair[1])))
            for pair in pairs
            if isinstance(pair, list)
        ]
        inputs = [grid for grid, _ in grids if grid is not None]
        fitting = {
            state[-1]
            for state in results([*inputs, last], depth)
            if all(made == shown for made, (_, shown) in zip(state, grids, strict=False))
        }
        assert fitting == {grid_of(made.answer or "")}
        assert fitting != {last}, "the output is not the input again"


def test_pairs_that_two_rules_fit_do_not_settle_the_output() -> None:
    row, square = ((1, 0),), ((4, 0), (5, 6))
    assert not is_settled([row, GRID], [MOVES["flip"](row), MOVES["flip"](GRID)], 1), (
        "a half turn fits the row as well"
    )
    assert is_settled(
        [row, square, GRID], [MOVES["flip"](row), MOVES["flip"](square), MOVES["flip"](GRID)], 1
    )
    assert not is_settled([square, square], [square, square], 1), "nothing is to be done"
    assert not is_settled([square, GRID], [MOVES["flip"](square), MOVES["flip"](GRID)], 2), (
        "one move does it"
    )


def test_harder_puzzles_have_more_rules_to_try() -> None:
    work = []
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        total = 0
        for seed in range(3):
            made = TASK.generate(seed, level)
            grid = grid_of(json.dumps(made.payload["input"]))
            assert grid is not None
            total += (
                len(results([grid], 1 if level < 0.4 else 2 if level < 0.8 else 3))
                * len(grid)
                * len(grid[0])
            )
        work.append(total)
    assert work == sorted(work) and work[4] > 5 * work[0], work


def test_a_problem_without_a_grid_is_the_fault_of_the_data() -> None:
    with pytest.raises(DataError, match="grid"):
        TASK.score(problem("arc", "x"), "y")
