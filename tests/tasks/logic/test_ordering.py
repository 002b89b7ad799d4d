"""Ordering puzzles: the grader on real rows and on exploits, the solver against brute force."""

import json
import re
from itertools import pairwise, permutations

import pytest
from upstream import ordering_clue, problem, rows

from whet.errors import DataError
from whet.tasks.logic.ordering import Ordering
from whet.tasks.logic.positions import Clue, PositionPuzzle, holds
from whet.types import Verdict

TASK = Ordering()
GOLD = ["Ada", "Boris", "Carla", "Dora"]


def graded(response: str) -> tuple[Verdict, float]:
    score = TASK.score(problem("ordering", json.dumps(GOLD)), response)
    return score.verdict, score.parts["placed"]


def test_every_real_gold_is_right_and_the_next_rows_is_not() -> None:
    table = rows("ordering_puzzle.jsonl")
    for row, following in zip(table, table[1:] + table[:1], strict=True):
        asked = problem("ordering", json.dumps(row["ground_truth"]))
        assert (
            TASK.score(asked, f"<answer>{row['ground_truth']!r}</answer>").verdict
            is Verdict.CORRECT
        ), row["id"]
        if following["ground_truth"] != row["ground_truth"]:
            other = json.dumps(following["ground_truth"])
            assert TASK.score(asked, f"<answer>{other}</answer>").verdict is Verdict.WRONG, row[
                "id"
            ]


def test_the_solver_finds_the_one_order_of_every_real_puzzle() -> None:
    for row in rows("ordering_puzzle.jsonl"):
        names = row["ground_truth"]
        clues = [
            ordering_clue(re.sub(r"^\d+\. ", "", line), names)
            for line in row["input"].strip().split("\n")
        ]
        assert list(PositionPuzzle(len(names), 1, clues).solutions()) == [
            tuple(range(len(names)))
        ], row["id"]


def test_capitalised_names_can_be_right() -> None:
    original = [name.lower() for name in GOLD] == GOLD
    assert not original

    assert graded(f"<answer>{GOLD!r}</answer>") == (Verdict.CORRECT, 1.0)
    assert graded("<answer>[ada, boris, CARLA, dora]</answer>") == (Verdict.CORRECT, 1.0)


def test_lists_over_several_lines_and_without_brackets_are_read() -> None:
    assert (
        graded('<answer>[\n  "Ada",\n  "Boris",\n  "Carla",\n  "Dora"\n]</answer>')[0]
        is Verdict.CORRECT
    )
    assert graded("The order is\nAnswer: Ada, Boris, Carla, Dora")[0] is Verdict.CORRECT
    assert graded("\\boxed{Ada, Boris, Carla, Dora}")[0] is Verdict.CORRECT


@pytest.mark.parametrize(
    ("answer", "placed"),
    [
        ("[Ada, Boris, Dora, Carla]", 0.5),
        ("[Ada, Boris, Carla]", 0.0),
        ("[Ada, Boris, Carla, Dora, Dora]", 0.0),
        ("[Dora, Carla, Boris, Ada]", 0.0),
    ],
)
def test_other_orders_are_wrong(answer: str, placed: float) -> None:
    assert graded(f"<answer>{answer}</answer>") == (Verdict.WRONG, placed)


@pytest.mark.parametrize(
    "answer", ["", "Ada", "[[Ada, Boris], [Carla, Dora]]", "[Ada, Boris", "__import__('os')"]
)
def test_what_is_no_list_is_no_answer(answer: str) -> None:
    assert graded(f"<answer>{answer}</answer>") == (Verdict.NO_ANSWER, 0.0)


def test_generated_puzzles_have_one_order_by_brute_force() -> None:
    for seed in range(25):
        made = TASK.generate(seed, (seed % 4) / 5)
        names, clues = made.payload["names"], made.payload["clues"]
        assert isinstance(names, list) and isinstance(clues, list)
        told = [Clue(str(c[0]), tuple(int(item) for item in c[1:-1]), int(c[-1])) for c in clues]  # type: ignore
        worlds = [
            world
            for world in permutations(range(len(names)))
            if all(holds(c, world, len(names)) for c in told)
        ]
        assert len(worlds) == 1
        order = [names[worlds[0].index(place)] for place in range(len(names))]
        assert json.loads(made.answer or "") == order


def test_clues_speak_of_their_own_category() -> None:
    texts = [TASK.generate(seed, 0.7).prompt[0].content for seed in range(60)]
    others = [text for text in texts if "the birds" not in text]
    assert any("between" in text for text in others)
    assert not any("bird" in text for text in others)


def test_a_problem_without_a_list_is_the_fault_of_the_data() -> None:
    with pytest.raises(DataError, match="list of names"):
        TASK.score(problem("ordering", "x"), "y")


def test_the_five_levels_take_a_solver_ever_more_work() -> None:
    work = []
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        total = 0
        for seed in range(8):
            made = TASK.generate(seed, level)
            names, clues = made.payload["names"], made.payload["clues"]
            assert isinstance(names, list) and isinstance(clues, list)
            told = [
                Clue(str(c[0]), tuple(int(item) for item in c[1:-1]), int(c[-1])) for c in clues
            ]  # type: ignore
            grid = PositionPuzzle(len(names), 1, told)
            assert len(list(grid.solutions())) == 1
            total += grid.effort * len(told)
        work.append(total)
    assert all(harder > 1.3 * easier for easier, harder in pairwise(work)), work


def test_a_list_of_one_needs_its_brackets() -> None:
    asked = problem("ordering", '["]"]')
    assert TASK.score(asked, '<answer>["]"]</answer>').verdict is Verdict.CORRECT
    assert TASK.score(asked, '<answer>[")"]</answer>').verdict is Verdict.WRONG
    assert TASK.score(problem("ordering", '["Ada"]'), "Ada").verdict is Verdict.NO_ANSWER
    assert graded("<answer>[Ada]</answer>") == (Verdict.WRONG, 0.0)
