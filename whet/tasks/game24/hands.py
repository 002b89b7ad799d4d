"""The 1,820 hands of four cards from 1 to 13: which can make 24, how hard each is, and the split it
belongs to."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from whet.errors import DataError
from whet.rng import stream
from whet.tasks.game24.solver import Play, Table, solve_all
from whet.types import Split

Hand = tuple[int, int, int, int]

SOLVABLE_COUNTS: dict[Split, int] = {"test": 409, "dev": 102, "sft": 425, "rl": 426}
"""The 1,362 solvable hands; the 458 others are split in the same proportions."""

_BLOCK = 20
_SEED = 24


@cache
def all_hands() -> tuple[Hand, ...]:
    """List every hand, cards in rising order."""
    return tuple(combinations_with_replacement(range(1, 14), 4))


def hand_of(numbers: Sequence[int]) -> Hand:
    """Sort four numbers into a hand; anything else is a DataError."""
    hand = tuple(sorted(numbers))
    if hand not in _places():
        raise DataError(
            f"a hand of the 24 game is four whole numbers from 1 to 13, not {list(numbers)}"
        )
    return all_hands()[_places()[hand]]


def num_solutions(hand: Hand) -> int:
    """Count the different solutions (see `solve_all` for what counts as different).

    >>> num_solutions((3, 3, 8, 8)), num_solutions((1, 1, 1, 1))
    (1, 0)
    """
    return int(table().num_solutions[_places()[hand]])


def is_solvable(hand: Hand) -> bool:
    return num_solutions(hand) > 0


def plays(hand: Hand) -> tuple[tuple[Play, ...], ...]:
    """List the winning plays on the sorted cards, those that write the same solution together."""
    return table().plays[_places()[hand]]


def level(hand: Hand) -> float | None:
    """Rate a hand from 0 (easiest) to 1 (hardest); None where there is no solution.

    Hands are ranked by the number of winning plays through whole numbers of 0 or more, then by the
    nodes a search visits on average. Against the share of people who solve a hand, Spearman's rho
    is -0.78; by nodes alone it is
    -0.70, by the number of all winning plays -0.72, by the number of solutions -0.49.
    """
    return _levels().get(hand)


def split_of(hand: Hand) -> Split:
    """Say which split a hand belongs to: fixed for all time, and the same mix of levels in each."""
    return _splits()[hand]


@cache
def table() -> Table:
    """Solve every hand, once a process (0.4 s)."""
    return solve_all(np.array(all_hands()))


@cache
def _places() -> dict[tuple[int, ...], int]:
    return {hand: place for place, hand in enumerate(all_hands())}


@cache
def _levels() -> dict[Hand, float]:
    found = table()
    order = np.lexsort((found.nodes, -found.num_plain_plays))
    ranked = [all_hands()[place] for place in order if found.num_solutions[place]]
    return {hand: rank / (len(ranked) - 1) for rank, hand in enumerate(ranked)}


@cache
def _splits() -> dict[Hand, Split]:
    random = stream(_SEED, "game24", "splits")
    by_level = list(_levels())
    splits: dict[Hand, Split] = {}
    for start in range(0, len(by_level), _BLOCK):
        block = by_level[start : start + _BLOCK]
        labels = _labels(start, start + len(block))
        random.shuffle(labels)
        splits.update(zip(block, labels, strict=True))
    others = [hand for hand in all_hands() if hand not in splits]
    labels = _labels(0, len(others))
    random.shuffle(labels)
    return splits | dict(zip(others, labels, strict=True))


def _labels(start: int, end: int) -> list[Split]:
    """Deal the places from start to end, each split its share of the stretch; 1,362 places get
    exactly the counts."""
    whole = sum(SOLVABLE_COUNTS.values())
    share = 0
    labels: list[Split] = []
    before = (0, 0)
    for split, count in SOLVABLE_COUNTS.items():
        share += count
        until = (round(share * start / whole), round(share * end / whole))
        labels += [split] * (until[1] - before[1] - (until[0] - before[0]))
        before = until
    return labels
