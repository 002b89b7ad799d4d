import re
from functools import partial
from multiprocessing import get_context
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.tasks.game24 import traces
from whet.tasks.game24.hands import HANDS, winning_plays
from whet.tasks.game24.task import grade_hand
from whet.tasks.game24.traces import BUDGETS, Move, write_moves
from whet.types import Verdict

FORMATS = ("v0", "v0l", "v1", "v2", "v3", "v4")
SEARCHES = ("v1", "v2", "v3", "v4")
MOVES = [
    Move((13, 1), "+", (8, 1)),
    None,
    Move((13, 1), "-", (1, 1)),
    Move((8, 1), "/", (6, 1)),
    None,
    Move((12, 1), "-", (8, 1)),
    Move((6, 1), "*", (4, 1)),
]


def trace(numbers, rng, **options):
    return traces.trace(numbers, winning_plays()[tuple(sorted(numbers))], rng, **options)


@settings(max_examples=400, deadline=None)
@given(
    hand=st.sampled_from(HANDS),
    format=st.sampled_from(FORMATS),
    budget=st.integers(1, 40),
    depth=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_every_trace_is_right_in_every_line(hand, format, budget, depth, seed):
    rng = Random(seed)
    numbers = rng.sample(hand, 4)
    text = trace(numbers, rng, format=format, budget=budget, depth=depth)
    found = grade_hand(hand, text, is_solvable=bool(winning_plays()[hand]))
    assert found.verdict is Verdict.CORRECT, text
    assert found.process == 1.0, [step for step in found.steps if not step.is_right]


def test_formats_write_the_same_moves_in_their_own_words():
    write = partial(write_moves, (13, 8, 6, 1), MOVES, is_solved=True)
    assert write("v1").split("\n") == [
        "(13) + (8) = 21, left: 21, 6, 1",
        "(13) - (1) = 12, left: 12, 8, 6",
        "(8) / (6) = 4/3, left: 4/3, 12",
        "(12) - (8) = 4, left: 4, 6",
        "(6) * (4) = 24, left: 24",
        "reach 24! expression: (6 * ((13 - 1) - 8))",
    ]
    assert write("v2").split("\n")[1:4] == [
        "roll back, left: 13 8 6 1",
        "(13) - (1) = 12, left: 12, 8, 6",
        "(8) / (6) = 4/3, left: 4/3, 12",
    ]
    assert write("v3").split("\n")[2:] == [
        "(13) - (1) = 12, left: (13 - 1) = 12, 8, 6",
        "(8) / (6) = 4/3, left: (8 / 6) = 4/3, (13 - 1) = 12",
        "roll back, left: (13 - 1) = 12, 8, 6",
        "(12) - (8) = 4, left: ((13 - 1) - 8) = 4, 6",
        "(6) * (4) = 24, left: (6 * ((13 - 1) - 8)) = 24",
        "reach 24! expression: (6 * ((13 - 1) - 8))",
    ]
    assert write("v4").split("\n") == [
        "13 + 8 = 21, left: 1 6 21",
        "back, left: 1 6 8 13",
        "13 - 1 = 12, left: 6 8 12",
        "8 / 6 = 4/3, left: 4/3 12",
        "back, left: 6 8 12",
        "12 - 8 = 4, left: 4 6",
        "6 * 4 = 24, left: 24",
    ]


def test_v0_is_three_steps_and_nothing_else():
    assert write_moves((13, 8, 6, 1), [MOVES[2], *MOVES[5:]], "v0", is_solved=True) == (
        "13 - 1 = 12\n12 - 8 = 4\n6 * 4 = 24"
    )


@pytest.mark.parametrize("format", SEARCHES)
def test_a_search_shows_at_most_its_budget_of_steps(format):
    for seed in range(50):
        text = trace((3, 8, 3, 8), Random(seed), format=format, budget=12)
        assert (
            3
            <= sum(
                " = " in line and "back" not in line
                for line in text.split("\n")
                if "reach" not in line
            )
            <= 12
        )


def test_hard_hands_use_the_whole_budget():
    texts = [trace((3, 8, 3, 8), Random(seed), format="v4", budget=17) for seed in range(50)]
    assert sum(sum("back" not in line for line in text.split("\n")) == 17 for text in texts) >= 45


def test_shallow_searches_leave_two_dead_numbers_at_once():
    for seed in range(50):
        lines = trace((3, 8, 3, 8), Random(seed), format="v4", budget=17, depth=2).split("\n")
        assert all(len(line.split("left: ")[1].split()) > 1 for line in lines[:-1])


@pytest.mark.parametrize("format", FORMATS)
def test_hands_without_a_solution_end_in_saying_so(format):
    lines = trace((1, 1, 1, 1), Random(0), format=format, budget=8).split("\n")
    assert lines[-1] == "no solution"
    assert (len(lines) > 1) == (format in SEARCHES)


def test_solutions_are_drawn_evenly():
    # 1 6 8 13 has two: 6 * (13 - 8 - 1), which never has a 2 in it, and (8 - 6) * (13 - 1)
    texts = [trace((1, 6, 8, 13), Random(seed), format="v0") for seed in range(400)]
    assert 150 < sum(bool(re.search(r"\b2\b", text)) for text in texts) < 250


def test_no_numbers_are_tried_twice():
    for seed in range(50):
        steps = [
            line
            for line in trace((2, 2, 6, 6), Random(seed), format="v4", budget=40).split("\n")
            if "back" not in line
        ]
        states = [tuple(sorted(line.split("left: ")[1].split())) for line in steps]
        open_states = [state for state in states if len(state) > 1]
        assert len(open_states) == len(set(open_states))


def test_moves_to_the_same_numbers_are_all_shown():
    texts = [trace((2, 2, 6, 6), Random(seed), format="v2", budget=17) for seed in range(100)]
    assert any("(2) + (2) = 4" in text for text in texts) and any(
        "(2) * (2) = 4" in text for text in texts
    )


def test_a_tidy_search_writes_numbers_rising_and_each_move_in_one_way():
    texts = [
        trace((13, 8, 6, 1), Random(seed), format="v4", budget=17, depth=2) for seed in range(60)
    ]
    left = [
        [int(word) for word in line.split("left: ")[1].split()]
        for text in texts
        for line in text.split("\n")
    ]
    assert all(numbers == sorted(numbers) for numbers in left)
    steps = {line.split(" =")[0] for text in texts for line in text.split("\n") if " = " in line}
    assert "6 + 8" in steps and "8 + 6" not in steps
    assert len(set(texts)) > 50


def test_a_tidy_search_tries_whole_results_of_zero_or_more_where_they_do():
    lines = [
        line
        for seed in range(60)
        for line in trace((13, 8, 6, 1), Random(seed), format="v4", budget=17, depth=2).split("\n")
    ]
    assert all(
        re.fullmatch(r"[0-9]+", line.split(" = ")[1].split(",")[0])
        for line in lines
        if " = " in line
    )


def test_a_hand_that_needs_a_fraction_is_searched_beyond_whole_results():
    assert "8 / 3 = 8/3" in trace((3, 3, 8, 8), Random(0), format="v4", budget=6, depth=2)


def test_lengths_are_bands_of_budgets():
    assert [budget for span in BUDGETS.values() for budget in span] == list(range(6, 18))


def test_a_trace_is_the_same_in_another_process():
    make = partial(trace, format="v4", budget=17)
    with get_context("spawn").Pool(1) as pool:
        assert pool.starmap(make, [((3, 3, 8, 8), Random(1))]) == [make((3, 3, 8, 8), Random(1))]
