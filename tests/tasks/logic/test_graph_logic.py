"""Graph implication: one right next step, proved by trying every walk, and a grader of one word."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from upstream import problem

from whet.errors import DataError
from whet.tasks.logic.graph_logic import GraphLogic, next_steps
from whet.types import Problem, Verdict

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

from graph_shortcuts import measure_level

TASK = GraphLogic()


def edges_of(made: Problem) -> list[tuple[str, str]]:
    edges = made.payload["edges"]
    assert isinstance(edges, list)
    return [(str(edge[0]), str(edge[1])) for edge in edges if isinstance(edge, list)]


def walked(edges: list[tuple[str, str]], start: str) -> tuple[set[str], int]:
    """Follow every implication from a word; count the implications looked at."""
    reached, todo, looks = {start}, [start], 0
    while todo:
        word = todo.pop()
        for a, b in edges:
            looks += 1
            if a == word and b not in reached:
                reached.add(b)
                todo.append(b)
    return reached, looks


def test_exactly_one_next_step_leads_to_the_goal() -> None:
    for seed in range(40):
        made = TASK.generate(seed, (seed % 5) / 5)
        edges, start, goal = edges_of(made), str(made.payload["start"]), str(made.payload["goal"])
        leading = [b for a, b in edges if a == start and goal in walked(edges, b)[0]]
        assert leading == [made.answer]
        assert len([b for a, b in edges if a == start]) > 1, "there is a choice to make"


def test_next_steps_are_those_that_reach_the_goal() -> None:
    edges = [("a", "b"), ("a", "c"), ("c", "d"), ("b", "e"), ("f", "d")]
    assert next_steps(edges, "a", "d") == ["c"]
    assert next_steps([*edges, ("e", "d")], "a", "d") == ["b", "c"]


@pytest.mark.parametrize(
    "response",
    [
        "<answer>Blomish</answer>",
        "<answer>\n blomish.\n</answer>",
        "<answer>Ada is blomish.</answer>",
        "blomish",
    ],
)
def test_the_word_is_right_in_its_usual_forms(response: str) -> None:
    assert TASK.score(problem("graph_logic", "blomish"), response).verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("<answer>drakous</answer>", Verdict.WRONG),
        ("<answer>not blomish</answer>", Verdict.NO_ANSWER),
        ("<answer>blomish drakous</answer>", Verdict.NO_ANSWER),
        ("<answer>blomish", Verdict.NO_ANSWER),
        ("<answer>blomish</answer> no, <answer>drakous</answer>", Verdict.WRONG),
        ("", Verdict.NO_ANSWER),
    ],
)
def test_other_words_and_hedges_are_not_right(response: str, verdict: Verdict) -> None:
    assert TASK.score(problem("graph_logic", "blomish"), response).verdict is verdict


def test_a_problem_without_a_word_is_the_fault_of_the_data() -> None:
    with pytest.raises(DataError, match="one word"):
        TASK.score(problem("graph_logic", "two words"), "x")


def test_harder_graphs_take_more_looking() -> None:
    work = []
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        made = [TASK.generate(seed, level) for seed in range(10)]
        work.append(sum(walked(edges_of(one), str(one.payload["start"]))[1] for one in made))
    assert all(harder > 2 * easier for easier, harder in pairwise(work)), work


@pytest.mark.parametrize("level", range(5))
def test_no_player_that_follows_no_chain_is_much_better_than_chance(level: int) -> None:
    shares, chance = measure_level(level, 600, seed=9)
    # Five standard errors of 600 picks are at most ten points.
    assert max(shares.values()) < chance + 0.1
    assert len(shares) >= 30
