"""The JSON form of ZebraLogic: cells and whole puzzles, the last object counts, one solution
each."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from upstream import problem, rows

from whet.errors import DataError
from whet.tasks.literals import last_object
from whet.tasks.logic.positions import Clue, PositionPuzzle
from whet.tasks.logic.zebra import ZebraLogic
from whet.types import Problem, Verdict

TASK = ZebraLogic()
GOLD = {"House 1": {"Name": "Ada", "Pet": "guinea pig"}, "House 2": {"Name": "Boris", "Pet": "cat"}}


def graded(response: str) -> tuple[Verdict, float]:
    score = TASK.score(problem("zebralogic", json.dumps(GOLD)), response)
    return score.verdict, score.parts["cells"]


def answered(**houses: object) -> str:
    return json.dumps(
        {
            "reasoning": "I {think}",
            "solution": {**GOLD, **{f"House {k[1:]}": v for k, v in houses.items()}},
        }
    )


@pytest.mark.parametrize(
    "response",
    [
        answered(),
        "Let me see.\n```json\n" + answered() + "\n```\nThat is all.",
        "{a first try} then\n" + json.dumps(GOLD, indent=1),
        f"<answer>{answered()}</answer>",
        json.dumps(
            {"solution": {"house 2": {"pet": "Cat", "name": " boris"}, "House 1": GOLD["House 1"]}}
        ),
    ],
)
def test_the_last_whole_object_is_the_answer(response: str) -> None:
    assert graded(response) == (Verdict.CORRECT, 1.0)


def test_a_list_is_not_read_as_its_first_value() -> None:
    hedged = {"Name": ["Boris", "Ada"], "Pet": "cat"}
    original = hedged["Name"][0] == GOLD["House 2"]["Name"]
    assert original

    assert graded(answered(h2=hedged)) == (Verdict.NO_ANSWER, 0.0)


def test_part_of_the_cells_is_wrong_with_their_share() -> None:
    assert graded(answered(h2={"Name": "Boris", "Pet": "dog"})) == (Verdict.WRONG, 0.75)
    assert graded(answered(h2={"Name": "Boris"})) == (Verdict.WRONG, 0.75)
    assert graded(answered(h3={"Name": "Carla", "Pet": "cat"})) == (Verdict.WRONG, 1.0)


@pytest.mark.parametrize(
    "response",
    [
        "",
        "House 1: Ada",
        answered()[:-3],
        '{"solution": {"House 1": {"Name": "Ada", "Name": "Boris", "Pet": "guinea pig"}}}',
        '{"solution": {"House 1": "Ada"}}',
        '{"solution": {}}',
        '{"solution": []}',
        answered() + ' but wait {"solution": {',
    ],
)
def test_cut_doubled_and_shapeless_objects_are_no_answer(response: str) -> None:
    assert graded(response) == (Verdict.NO_ANSWER, 0.0)


def test_braces_inside_quotes_do_not_count() -> None:
    assert last_object('x {"a": "}{\\""} {"b": {}} y') == '{"b": {}}'
    assert last_object('a { of prose {"a": 1} }') == '{"a": 1}'
    assert last_object("}{") is None


def test_the_published_table_form_says_the_same() -> None:
    table = {
        "header": ["House", "Name", "Pet"],
        "rows": [["1", "Ada", "guinea pig"], ["2", "Boris", "cat"]],
    }
    asked = problem("zebralogic", json.dumps(table))
    assert TASK.score(asked, answered()).verdict is Verdict.CORRECT
    assert graded(json.dumps({"solution": table}))[0] is Verdict.CORRECT
    for broken in (
        {"header": "House", "rows": table["rows"]},
        {"header": ["House"], "rows": table["rows"]},
    ):
        assert graded(json.dumps(broken))[0] is Verdict.NO_ANSWER


def test_a_puzzle_without_a_published_solution_is_not_scored() -> None:
    asked = replace(problem("zebralogic", ""), answer=None)
    assert TASK.solve(asked, 0) is None
    assert TASK.score(asked, answered()).verdict is Verdict.UNSCORED
    assert TASK.score(asked, "I give up").verdict is Verdict.NO_ANSWER


def test_generated_puzzles_have_one_solution() -> None:
    for seed in range(15):
        grid, _ = solved(TASK.generate(seed, (seed % 5) / 5))
        assert grid.effort > 0


def solved(made: Problem) -> tuple[PositionPuzzle, int]:
    size, clues = made.payload["size"], made.payload["clues"]
    assert isinstance(size, list) and isinstance(clues, list)
    told = [Clue(str(c[0]), tuple(int(item) for item in c[1:-1]), int(c[-1])) for c in clues]  # type: ignore
    grid = PositionPuzzle(int(str(size[0])), int(str(size[1])), told)
    assert len(list(grid.solutions())) == 1
    return grid, len(told)


def test_harder_puzzles_take_a_solver_more_work() -> None:
    work = []
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        tried = [solved(TASK.generate(seed, level)) for seed in range(8)]
        work.append(sum(grid.effort * clues for grid, clues in tried))
    assert all(harder > 1.4 * easier for easier, harder in pairwise(work)), work


def test_real_and_made_puzzles_have_two_to_six_houses_and_attributes() -> None:
    real = [
        [int(side) for side in row["size"].split("*")] for row in rows("zebralogic_prompts.jsonl")
    ]
    made = [TASK.generate(seed, (seed % 20) / 25).payload["size"] for seed in range(40)]
    assert all(2 <= side <= 6 for size in real for side in size)
    assert all(2 <= int(str(side)) <= 6 for size in made if isinstance(size, list) for side in size)


def test_a_problem_without_houses_is_the_fault_of_the_data() -> None:
    with pytest.raises(DataError, match="houses"):
        TASK.score(problem("zebralogic", "[]"), answered())
