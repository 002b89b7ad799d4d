from fractions import Fraction
from itertools import combinations
from random import Random

import numpy as np
import pytest

from whet.tasks.game24.hands import decode_move, solve_all


def one(*hand):
    return solve_all(np.array([hand]))


def test_move_numbers_name_a_pair_and_an_operation():
    assert decode_move(0, 4) == (0, 1, "+")
    assert decode_move(8, 4) == (2, 0, "-")
    assert decode_move(35, 4) == (3, 2, "/")
    assert decode_move(5, 2) == (1, 0, "/")


def test_the_only_solution_of_3_3_8_8_is_counted_once():
    # 8 / (3 - 8 / 3): two 3s and two 8s make four plays of it
    found = one(3, 3, 8, 8)
    assert len(found.plays[0]) == 1
    assert len(found.plays[0][0]) == 4
    assert found.num_plain_plays[0] == 0


def test_order_grouping_and_sign_do_not_make_another_solution():
    # 8 - 6 and 13 - 1 multiply to 24, as do 6 - 8 and 1 - 13; 6 * (13 - 8 - 1) is the other way
    assert len(one(1, 6, 8, 13).plays[0]) == 2


def test_times_one_and_over_one_are_two_solutions():
    # 1 + 10 + 13 is 24, and the other 1 multiplies or divides any of 1, 10, 13, their three pairs
    # and the whole
    assert len(one(1, 1, 10, 13).plays[0]) == 7 * 2


@pytest.mark.parametrize(
    "hand", [(4, 4, 10, 10), (1, 3, 4, 6), (5, 5, 5, 1), (2, 3, 5, 12), (1, 1, 1, 1), (6, 6, 6, 6)]
)
def test_solutions_agree_with_brute_force_over_rational_functions(hand):
    assert len(one(*hand).plays[0]) == len(brute_force(hand))


def test_a_search_among_six_moves_visits_what_the_formula_says():
    # no move from 1 1 1 1 reaches 24, so the search visits every node of its tree
    assert one(1, 1, 1, 1).nodes[0] == brute_size([1, 1, 1, 1])


def test_the_average_search_is_what_random_searches_come_to():
    random = Random(0)
    counts = [searched([Fraction(card) for card in (1, 2, 3, 4)], random)[1] for _ in range(400)]
    assert np.mean(counts) == pytest.approx(one(1, 2, 3, 4).nodes[0], rel=0.15)


def test_easy_hands_are_found_sooner():
    assert one(1, 2, 3, 4).nodes[0] < one(3, 3, 8, 8).nodes[0]


def brute_force(hand):
    """Collect solutions as functions: exact values at two other points where equal cards stay
    equal."""
    first = {card: Fraction(10_007 * card * card + 31, 7) for card in hand}
    second = {card: Fraction(101 * card**3 + 5 * card + 3, 11) for card in hand}
    found = set()

    def play(items):
        if len(items) == 1:
            value, *functions = items[0]
            if value == 24:
                found.add(tuple(functions))
            return
        for i in range(len(items)):
            for j in range(len(items)):
                if i == j:
                    continue
                rest = [item for place, item in enumerate(items) if place not in (i, j)]
                a, b = items[i], items[j]
                play([*rest, [x + y for x, y in zip(a, b, strict=True)]])
                play([*rest, [x - y for x, y in zip(a, b, strict=True)]])
                play([*rest, [x * y for x, y in zip(a, b, strict=True)]])
                if b[0] != 0:
                    play([*rest, [x / y for x, y in zip(a, b, strict=True)]])

    play([[Fraction(card), first[card], second[card]] for card in hand])
    return found


def children(items):
    for i, j in combinations(range(len(items)), 2):
        a, b = items[i], items[j]
        rest = [item for place, item in enumerate(items) if place not in (i, j)]
        results = [a + b, a - b, b - a, a * b] + ([a / b] if b else []) + ([b / a] if a else [])
        yield from ([*rest, result] for result in results)


def brute_size(items):
    return sum(1 + brute_size(child) for child in children([Fraction(item) for item in items]))


def searched(items, random):
    """Search depth first in random order: whether 24 was found, and the nodes visited below this
    one."""
    if len(items) == 1:
        return items[0] == 24, 0
    order, visited = list(children(items)), 0
    random.shuffle(order)
    for child in order:
        found, below = searched(child, random)
        visited += 1 + below
        if found:
            return True, visited
    return False, visited
