import csv
from collections import Counter
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from whet.tasks.game24.hands import HANDS, rated_hands, winning_plays

PEOPLE = Path(__file__).parents[3] / ".." / "shared" / "data" / "game24.csv"


def level(hand):
    return rated_hands()[hand].level


def split_of(hand):
    return rated_hands()[hand].split


def is_solvable(hand):
    return level(hand) is not None


def test_there_are_1820_hands_and_1362_can_make_24():
    assert len(HANDS) == len(set(HANDS)) == 1820
    assert sum(map(is_solvable, HANDS)) == 1362


def test_splits_have_the_stated_sizes():
    counts = Counter((split_of(hand), is_solvable(hand)) for hand in HANDS)
    assert {split: n for (split, solvable), n in counts.items() if solvable} == {
        "test": 409,
        "dev": 102,
        "sft": 425,
        "rl": 426,
    }
    assert {split: n for (split, solvable), n in counts.items() if not solvable} == {
        "test": 138,
        "dev": 34,
        "sft": 143,
        "rl": 143,
    }


def test_splits_never_move():
    hands = [(1, 2, 3, 4), (3, 3, 8, 8), (1, 1, 1, 1), (4, 6, 6, 8), (13, 13, 13, 13)]
    assert [split_of(hand) for hand in hands] == ["test", "sft", "rl", "rl", "test"]


@pytest.mark.parametrize("split", ["test", "dev", "sft", "rl"])
def test_every_split_has_the_same_mix_of_levels(split):
    levels = sorted(level(hand) for hand in HANDS if is_solvable(hand) and split_of(hand) == split)
    for fifth in range(5):
        share = sum(fifth / 5 <= rating < (fifth + 1) / 5 for rating in levels) / len(levels)
        assert 0.17 < share < 0.23


def test_levels_run_from_0_to_1_and_unsolvable_hands_have_none():
    levels = [level(hand) for hand in HANDS if is_solvable(hand)]
    assert (min(levels), max(levels)) == (0.0, 1.0)
    assert len(set(levels)) == 1362
    assert level((1, 1, 1, 1)) is None


def test_well_known_hands_are_rated_as_people_do():
    assert level((1, 2, 3, 4)) < 0.1 < 0.95 < level((3, 3, 8, 8))
    assert len(winning_plays()[1, 2, 3, 4]) > 1


@pytest.mark.skipif(
    not PEOPLE.exists(), reason="the table of human solving rates is not beside the repository"
)
def test_levels_agree_with_people():
    with PEOPLE.open() as file:
        rows = [
            (tuple(sorted(int(card) for card in row["Puzzles"].split())), row)
            for row in csv.DictReader(file)
        ]
    rates = [float(row["Solved rate"].rstrip("%")) for _, row in rows]
    seconds = [float(row["AMT (s)"]) for _, row in rows]
    levels = [level(hand) for hand, _ in rows]
    assert spearmanr(levels, rates).statistic == pytest.approx(-0.78, abs=0.01)
    assert spearmanr(levels, seconds).statistic > 0.55


def test_higher_cards_add_training_hands_and_move_no_other():
    ratings = rated_hands(15)
    assert {hand: ratings[hand] for hand in HANDS} == rated_hands()
    added = {hand: rating for hand, rating in ratings.items() if hand not in rated_hands()}
    assert len(added) == 3060 - 1820
    assert all(max(hand) > 13 for hand in added)
    assert {rating.split for rating in added.values()} == {"sft", "rl"}


def test_a_training_hand_has_the_level_of_its_peers():
    ratings = rated_hands(15)
    assert ratings[1, 1, 10, 14].level < 0.3  # 1 * 1 * (10 + 14), in many ways
    assert ratings[15, 15, 15, 15].level is None
    assert winning_plays(15)[15, 15, 15, 15] == ()
