"""Zebra puzzles: the grader on real rows and on exploits, the solver against brute force, the
levels."""

import json
from itertools import pairwise, permutations, product

import pytest
from upstream import problem, rows, zebra_clue

from whet.errors import DataError
from whet.tasks.logic.positions import Clue, PositionPuzzle, holds
from whet.tasks.logic.zebra import Zebra, ZebraConfig, clue_level, kinds_at
from whet.types import Problem, Verdict

GOLD = {"header": ["Position", "Pet", "Drink"], "rows": [["1", "cat", "tea"], ["2", "dog", "milk"]]}
TASK = Zebra()


def graded(response: str, gold: object = GOLD) -> tuple[Verdict, float]:
    score = TASK.score(problem("zebra", json.dumps(gold)), response)
    assert score.parts["correct"] == float(score.verdict is Verdict.CORRECT)
    return score.verdict, score.parts["cells"]


def clues_of(made: Problem) -> tuple[int, int, list[Clue]]:
    table, clues = json.loads(made.answer or ""), made.payload["clues"]
    assert isinstance(clues, list)
    told = [Clue(str(clue[0]), tuple(int(item) for item in clue[1:])) for clue in clues]  # type: ignore[index,union-attr]
    return len(table["rows"]), len(table["header"]) - 1, told


def test_every_real_gold_is_right_and_the_next_rows_is_not() -> None:
    table = rows("zebra_puzzle.jsonl")
    for row, following in zip(table, table[1:] + table[:1], strict=True):
        gold, other = json.dumps(row["ground_truth"]), json.dumps(following["ground_truth"])
        asked = problem("zebra", gold)
        assert TASK.score(asked, f"<answer>{gold}</answer>").verdict is Verdict.CORRECT, row["id"]
        assert TASK.score(asked, f"<answer>{other}</answer>").verdict is not Verdict.CORRECT, row[
            "id"
        ]


def test_the_solver_finds_the_one_solution_of_every_real_puzzle() -> None:
    for row in rows("zebra_puzzle.jsonl"):
        header, table = row["ground_truth"]["header"], row["ground_truth"]["rows"]
        n, m = len(table), len(header) - 1
        columns = [[line[1 + attribute] for line in table] for attribute in range(m)]
        items = [f"{header[1 + a]}:{value}" for a, values in enumerate(columns) for value in values]
        clues = [zebra_clue(clue, items) for clue in row["clues"]]
        truth = tuple(place for _ in range(m) for place in range(n))
        assert list(PositionPuzzle(n, m, clues).solutions()) == [truth], row["id"]
        assert PositionPuzzle(n, m, clues).other(truth) is None


def test_a_pretty_printed_table_counts_as_one_on_a_single_line() -> None:
    assert graded(f"So:\n<answer>\n{json.dumps(GOLD, indent=2)}\n</answer>") == (
        Verdict.CORRECT,
        1.0,
    )
    assert (
        graded(f"<answer>```json\n{json.dumps(GOLD, indent=2)}\n```</answer>")[0] is Verdict.CORRECT
    )
    assert graded(f"<answer>{GOLD!r}</answer>")[0] is Verdict.CORRECT
    assert (
        graded(f"I find {{so far}}\n{json.dumps(GOLD, indent=2)}\nThat is it.")[0]
        is Verdict.CORRECT
    )


def test_the_position_column_earns_nothing() -> None:
    swapped = {"header": GOLD["header"], "rows": [["1", "dog", "milk"], ["2", "cat", "tea"]]}
    pairs = [
        pair
        for lines in zip(swapped["rows"], GOLD["rows"], strict=True)
        for pair in zip(*lines, strict=True)
    ]
    original = sum(a == b for a, b in pairs) / len(pairs)
    assert original == pytest.approx(1 / 3)

    assert graded(f"<answer>{json.dumps(swapped)}</answer>") == (Verdict.WRONG, 0.0)


def test_partial_tables_are_wrong_with_the_share_of_right_cells() -> None:
    half = {"header": GOLD["header"], "rows": [["1", "cat", "milk"], ["2", "dog", "tea"]]}
    short = {"header": GOLD["header"], "rows": [["1", "cat", "tea"]]}
    extra = {"header": GOLD["header"], "rows": [*GOLD["rows"], ["3", "cat", "tea"]]}
    assert graded(f"<answer>{json.dumps(half)}</answer>") == (Verdict.WRONG, 0.5)
    assert graded(f"<answer>{json.dumps(short)}</answer>") == (Verdict.WRONG, 0.5)
    assert graded(f"<answer>{json.dumps(extra)}</answer>") == (Verdict.WRONG, 1.0)


def test_case_and_the_order_of_rows_and_columns_do_not_matter() -> None:
    moved = {
        "header": ["drink", "POSITION", "pet"],
        "rows": [["Milk", 2, "Dog"], ["Tea", 1, "Cat"]],
    }
    assert graded(f"<answer>{json.dumps(moved)}</answer>") == (Verdict.CORRECT, 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        "[]",
        "{}",
        '{"header": [], "rows": []}',
        '{"header": ["Position", "Pet", "Drink"], "rows": [["1", "cat", "tea"], ["1", "dog", "milk"]]}',
        '{"header": ["Position", "Pet", "Pet"], "rows": [["1", "cat", "tea"], ["2", "dog", "milk"]]}',
        '{"header": ["Pet", "Drink"], "rows": [["cat", "tea"], ["dog", "milk"]]}',
        '{"header": ["Position", "Pet", "Drink"], "rows": [["1", ["cat", "dog"], "tea"], ["2", "dog", "milk"]]}',
        '{"header": ["Position", "Pet", "Drink"], "rows": [["1", "cat"], ["2", "dog"]]}',
        '{"header": ["Position", "Pet", "Drink"], "rows": ["1 cat tea"]}',
        json.dumps(GOLD)[:-2],
    ],
)
def test_what_is_no_table_is_no_answer(answer: str) -> None:
    assert graded(f"<answer>{answer}</answer>") == (Verdict.NO_ANSWER, 0.0)


def test_a_problem_without_a_table_is_the_fault_of_the_data() -> None:
    with pytest.raises(DataError, match="needs a table"):
        TASK.score(problem("zebra", "cat"), "x")


def test_clue_levels_bring_in_twelve_families_and_withdraw_eight() -> None:
    assert kinds_at(1) == ["same", "left", "right", "first", "last", "middle"]
    assert "any_differ" in kinds_at(12) and "any_differ" not in kinds_at(11)
    assert "same" in kinds_at(12) and "same" not in kinds_at(13)
    assert kinds_at(20) == [
        "amid", "not_before", "not_after", "same_parity", "other_parity", "one_same", "any_same", "any_differ",
    ]  # fmt: skip
    assert [clue_level(level) for level in (0.0, 0.049, 0.05, 0.5, 0.999, 1.0)] == [
        1,
        1,
        2,
        11,
        20,
        20,
    ]


@pytest.mark.parametrize("number", range(20))
def test_puzzles_of_every_clue_level_have_one_solution_by_brute_force(number: int) -> None:
    made = TASK.generate(number, number / 20)
    n, m, clues = clues_of(made)
    assert {clue.kind for clue in clues} <= set(kinds_at(number + 1))
    if n**m <= 100:
        orders = product(permutations(range(n)), repeat=m)
        places = [[place for order in worlds for place in order] for worlds in orders]
        assert sum(all(holds(clue, world, n) for clue in clues) for world in places) == 1
    assert len(list(PositionPuzzle(n, m, clues).solutions())) == 1


def test_minimal_puzzles_need_every_clue() -> None:
    task = Zebra(ZebraConfig(minimal=True))
    for seed in range(5):
        n, m, clues = clues_of(task.generate(seed, 0.5))
        for left_out in clues:
            assert (
                len(
                    list(
                        PositionPuzzle(
                            n, m, [clue for clue in clues if clue is not left_out]
                        ).solutions()
                    )
                )
                > 1
            )


def test_a_grid_without_clues_has_every_order() -> None:
    assert len(list(PositionPuzzle(3, 2).solutions())) == 36
    assert list(PositionPuzzle(2, 1, [Clue("first", (0,)), Clue("first", (1,))]).solutions()) == []


def test_the_five_levels_take_a_solver_ever_more_work() -> None:
    work = []
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        total = 0
        for seed in range(6):
            n, m, clues = clues_of(TASK.generate(seed, level))
            grid = PositionPuzzle(n, m, clues)
            assert len(list(grid.solutions())) == 1
            total += grid.effort * len(clues)
        work.append(total)
    assert all(harder > 1.5 * easier for easier, harder in pairwise(work)), work
