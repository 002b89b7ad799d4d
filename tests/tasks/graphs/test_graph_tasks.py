"""Every graph task: problems, levels, splits, grading, and the contract."""

import random
import string
from dataclasses import replace
from itertools import pairwise
from statistics import mean

import pytest
from graph_cases import ALL, KITE, NP_HARD, NUMBERED, PATH, POLYNOMIAL, SQUARE, asked, task

from whet.errors import ConfigError, DataError
from whet.tasks.generated import split_of_id
from whet.tasks.graphs.task import quality
from whet.testing.contracts import check_task
from whet.types import SPLITS, Verdict


@pytest.mark.parametrize("name", ALL)
def test_the_task_keeps_the_contract(name):
    check_task(task(name, count=12), problems_per_split=6)


@pytest.mark.parametrize("name", ALL)
def test_gold_is_right_in_every_wording_and_the_next_gold_and_the_question_are_not(name):
    grader = task(name, count=40)
    problems = list(grader.problems("rl"))
    for problem, other in zip(problems, problems[1:] + problems[:1], strict=True):
        assert all(
            grader.score(problem, grader.solve(problem, seed)).verdict == Verdict.CORRECT
            for seed in range(3)
        )
        assert grader.score(
            problem, f"<think>\nso [A, B] or yes\n</think>\n{grader.solve(problem, 0)}"
        ).parts["correct"]
        assert grader.score(problem, problem.prompt[-1].content).verdict != Verdict.CORRECT
        assert (
            grader.score(problem, f"<think>\n{grader.solve(problem, 0)}").verdict
            == Verdict.NO_ANSWER
        )
        if name not in NUMBERED:
            assert grader.score(problem, grader.solve(other, 0)).verdict != Verdict.CORRECT


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_draws_the_same_problem_and_the_split_is_that_of_its_content(name):
    maker = task(name)

    first, again, other = maker.generate(7, 0.3), maker.generate(7, 0.3), maker.generate(8, 0.3)

    assert first == again != other
    assert first.split == split_of_id(first.id)
    assert first.level == 0.3


@pytest.mark.parametrize("name", ["tsp", "mcp", "mis", "mvc", *POLYNOMIAL])
def test_a_varied_problem_has_another_wording_and_the_same_answer(name):
    maker = task(name)
    problem = maker.generate(3, 0.3)

    varied = maker.vary(problem, 1)

    assert varied.prompt != problem.prompt
    assert maker.score(varied, problem.answer).verdict == Verdict.CORRECT
    assert maker.best(varied.payload).value == problem.payload["optimum"]
    assert maker.vary(replace(problem, source="file"), 1).prompt == problem.prompt


@pytest.mark.parametrize("name", ALL)
def test_no_problem_is_in_two_splits_whatever_the_seeds(name):
    where = {}
    for seed in (0, 1):
        maker = task(name, count=15, seed=seed, level=(0.0, 0.3))
        for split in SPLITS:
            for problem in maker.problems(split):
                assert where.setdefault(problem.id, split) == split


@pytest.mark.parametrize("name", ALL)
def test_each_level_takes_a_solver_more_effort_than_the_one_before(name):
    maker = task(name)
    effort = [
        mean(
            maker.generate(seed, (fifth + (seed % 10) / 10) / 5).payload["nodes_searched"]
            for seed in range(20)
        )
        for fifth in range(5)
    ]

    assert all(after > 1.1 * before for before, after in pairwise(effort)), effort
    assert effort[-1] > 2.5 * effort[0]


@pytest.mark.parametrize("name", NP_HARD + POLYNOMIAL)
@pytest.mark.parametrize("sizes", ["easy", "hard"])
def test_graph_arena_sizes_are_kept(name, sizes):
    maker = task(name, sizes=sizes)
    low, high = getattr(maker.problem.sizes, sizes)
    slack = 1 if name == "mcs" else 0
    for seed in range(4):
        payload = maker.problem.draw(random.Random(seed), low + seed)
        nodes = payload.get("nodes") or payload["A"].get("labels") or range(payload["A"]["n"])
        assert low - slack <= len(nodes) <= high + slack


@pytest.mark.parametrize("name", NP_HARD)
def test_optima_of_every_level_are_proven(name):
    maker = task(name)

    assert all(maker.generate(seed, seed / 10).payload["proven"] for seed in range(11))


@pytest.mark.parametrize("name", ALL)
def test_ten_thousand_garbled_texts_over_all_tasks_are_never_right(name):
    source = random.Random(name)
    grader = task(name)
    problems = [grader.generate(seed, 0.1) for seed in range(6)]
    golds = [grader.solve(problem, 0) for problem in problems]
    for number in range(850):
        problem = problems[number % 6]
        gold = golds[number % 6]
        middle = "".join(source.choices(string.printable + "[]{},<>", k=source.randrange(120)))
        text = source.choice(
            [middle, f"[{middle}]", f"\\boxed{{{middle}}}", f"Answer: [{middle}]", f"### {middle}"]
        )
        assert grader.score(problem, text).verdict != Verdict.CORRECT, text
        garbled = gold[: source.randrange(len(gold))] + middle
        assert set(grader.score(problem, garbled).parts) >= {"correct", "feasible"}


def test_an_optimal_answer_is_correct_a_worse_one_feasible_and_an_impossible_one_neither():
    square = {
        "nodes": ["A", "B", "C", "D"],
        "edges": [["A", "B"], ["B", "C"], ["C", "D"], ["D", "A"]],
    }
    grader, problem = task("mis"), asked("mis", square)

    best, worse, broken, empty, nothing = (
        grader.score(problem, text) for text in ("[A, C]", "[A]", "[A, B]", "[]", "Two of them.")
    )

    assert best.verdict == Verdict.CORRECT
    assert best.parts == {
        "correct": 1.0,
        "feasible": 1.0,
        "value": 2.0,
        "optimum": 2.0,
        "quality": 1.0,
    }
    assert worse.verdict == Verdict.WRONG
    assert worse.parts == {
        "correct": 0.0,
        "feasible": 1.0,
        "value": 1.0,
        "optimum": 2.0,
        "quality": 0.5,
    }
    assert broken.verdict == empty.verdict == Verdict.WRONG
    assert (
        broken.parts
        == empty.parts
        == {"correct": 0.0, "feasible": 0.0, "value": -1.0, "optimum": 2.0, "quality": 0.0}
    )
    assert nothing.verdict == Verdict.NO_ANSWER
    assert nothing.parts == broken.parts
    assert (best.answer, best.note, broken.note) == (
        "[A, C]",
        "2 is the optimum",
        "A is a friend of someone else listed",
    )


@pytest.mark.parametrize(
    ("name", "payload", "text", "value"),
    [
        ("tsp", {"nodes": ["A", "B", "C", "D"], "edges": SQUARE}, "[A, B, C, D, A]", 4),
        ("tsp", {"nodes": ["A", "B", "C", "D"], "edges": SQUARE}, "[C, B, A, D, C]", 4),
        ("tsp", {"nodes": ["A", "B", "C", "D"], "edges": SQUARE}, "[A, C, B, D, A]", 8),
        ("tsp", {"nodes": ["A", "B", "C", "D"], "edges": SQUARE}, "[A, B, C, D]", None),
        ("tsp", {"nodes": ["A", "B", "C", "D"], "edges": SQUARE}, "[A, B, C, A]", None),
        ("tsp", {"nodes": ["A", "B", "C", "D"], "edges": SQUARE}, "[A, B, C, D, B, A]", None),
        ("mcp", KITE, "[C, A, B]", 3),
        ("mcp", KITE, "[C, D]", 2),
        ("mcp", KITE, "[C, A, D]", None),
        ("mvc", KITE, "[A, C]", 2),
        ("mvc", KITE, "[A, B, C]", 3),
        ("mvc", KITE, "[C]", None),
        ("neighbor", {**KITE, "pair": ["A", "B"]}, "[C]", 1),
        ("neighbor", {**KITE, "pair": ["A", "B"]}, "[C, D]", None),
        ("distance", {**PATH, "pair": ["A", "C"]}, "[A, B, C]", 2),
        ("distance", {**KITE, "pair": ["A", "D"]}, "[A, B, C, D]", 3),
        ("distance", {**PATH, "pair": ["A", "C"]}, "[C, B, A]", None),
        ("distance", {**PATH, "pair": ["A", "C"]}, "[A, C]", None),
        ("connected", {"nodes": ["A", "B", "C"], "edges": [["A", "B"]]}, "[B, C]", 2),
        ("connected", {"nodes": ["A", "B", "C"], "edges": [["A", "B"]]}, "[C]", 1),
        ("connected", {"nodes": ["A", "B", "C"], "edges": [["A", "B"]]}, "[A, B]", None),
        ("diameter", KITE, "[A, C, D]", 2),
        ("diameter", KITE, "[C, D]", 1),
        ("diameter", KITE, "[A, B, C, D]", None),
        ("diameter", KITE, "[A, D]", None),
    ],
)
def test_values_are_what_one_counts_by_hand(name, payload, text, value):
    score = task(name).score(asked(name, payload), text)

    assert score.parts["feasible"] == float(value is not None)
    assert score.parts["value"] == (-1.0 if value is None else value)
    best = {
        "tsp": 4,
        "mcp": 3,
        "mvc": 2,
        "neighbor": 1,
        "distance": 2,
        "connected": 2,
        "diameter": 2,
    }[name]
    assert (score.verdict == Verdict.CORRECT) == (value == best)


def test_common_neighbours_may_be_nobody():
    problem = asked("neighbor", {**PATH, "pair": ["A", "D"]})

    assert task("neighbor").score(problem, "[]").verdict == Verdict.CORRECT
    assert task("neighbor").score(problem, "[B]").verdict == Verdict.WRONG


def test_quality_of_a_cost_above_zero_where_zero_is_possible_still_tells_better_from_worse():
    assert [quality(cost, 0, "min") for cost in (0, 1, 3)] == [1.0, 0.5, 0.25]
    assert quality(0, 0, "max") == 1.0


def test_an_unproven_optimum_is_called_the_best_known_and_can_be_beaten():
    problem = asked("mis", {**PATH, "optimum": 1, "proven": False})

    assert task("mis").score(problem, "[A]").note == "1 is the best known"
    beaten = task("mis").score(problem, "[A, C]")
    assert (beaten.verdict, beaten.parts["quality"]) == (Verdict.CORRECT, 1.0)


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("mis", {}),
        ("mis", {"nodes": ["A", "A"], "edges": []}),
        ("mis", {"nodes": ["A"], "edges": [["A", "B"]]}),
        ("tsp", {"nodes": ["A", "B", "C"], "edges": [["A", "B", 1]]}),
        ("distance", {**PATH, "pair": ["A"]}),
        ("distance", {"nodes": ["A", "B"], "edges": [], "pair": ["A", "B"]}),
        ("ged", {"A": {"labels": ["C"], "bonds": []}, "B": {"labels": ["C", "C"], "bonds": []}}),
        ("ged", {"A": {"labels": ["C"], "bonds": [[0, 1]]}}),
        ("mcs", {"A": {"n": 2}, "B": {"n": 2, "bonds": []}}),
        ("graphwiz", {"kind": "sudoku", "nodes": 2, "edges": []}),
        ("graphwiz", {"kind": "cycle", "nodes": 2, "edges": [[0, 5]]}),
        ("graphwiz", {"kind": "cycle", "nodes": -2, "edges": []}),
        ("graphwiz", {"kind": "cycle", "nodes": 2, "edges": ["0-1"]}),
        ("graphwiz", {"kind": "connectivity", "nodes": 2, "edges": [], "pair": [0, 1, 1]}),
    ],
)
def test_a_payload_that_cannot_be_asked_is_refused_in_one_sentence(name, payload):
    with pytest.raises(DataError, match=r"^[^\n]+$"):
        task(name).score(asked(name, payload), "[A]")


def test_a_kind_that_is_not_there_is_refused_with_the_list_of_kinds():
    with pytest.raises(ConfigError, match=r"connectivity, cycle.*no 'sudoku'"):
        task("graphwiz", kinds=("sudoku",))


def test_only_polynomial_problems_are_said_to_have_one_answer():
    assert [name for name in ALL if task(name).has_one_answer] == list(POLYNOMIAL)
