"""The 1,820 hands of four cards from 1 to 13: all ways to play each, its difficulty, its split.
Hands with higher cards are for training only.

A play is three moves. A move combines two of the k remaining numbers. It is a pair and one of six
operations, so there are 36, 18 and 6 moves with 4, 3 and 2 numbers. The result comes first, and the
others keep their order. All hands are searched at once, in numpy.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.rng import derive, make_rng
from whet.types import Split

Hand = tuple[int, ...]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Play = tuple[int, int, int]
Plays = tuple[tuple[Play, ...], ...]
"""The winning plays of a hand, each three move numbers, grouped by solution."""

HIGHEST_CARD = 13
HANDS: tuple[Hand, ...] = tuple(combinations_with_replacement(range(1, HIGHEST_CARD + 1), 4))
"""Every hand of the game, with cards in ascending order."""
SOLVABLE_COUNTS: dict[Split, int] = {"test": 409, "dev": 102, "sft": 425, "rl": 426}
"""The 1,362 solvable hands; the 458 others are split in the same proportions."""
OPERATIONS = (("+", False), ("-", False), ("-", True), ("*", False), ("/", False), ("/", True))
"""The six operations on a pair: the symbol, and whether the operands are swapped."""

_BLOCK = 20
_SEED = 24
_TARGET = 24
_PRIME = 2**31 - 1
_CHUNK = 130
_PAIRS = {k: tuple(combinations(range(k), 2)) for k in (4, 3, 2)}
_OTHERS = {k: [[i for i in range(k) if i not in p] for p in ps] for k, ps in _PAIRS.items()}


class Rating(NamedTuple):
    """The level and the split of a hand."""

    level: float | None
    """From 0 (easiest) to 1 (hardest); None if there is no solution."""
    split: Split


@cache
def rated_hands(highest_card: int = HIGHEST_CARD) -> dict[Hand, Rating]:
    """Return the level and split of every hand; splits are fixed and have the same mix of levels.

    Hands are ranked by the number of winning plays through whole numbers of 0 or more, then by the
    nodes a search visits on average. Against the fraction of people who solve a hand, Spearman's
    rho is -0.78; by nodes alone it is -0.70, by all winning plays -0.72, by solutions -0.49.

    A hand with a card above 13 gets the level that it would have among the others, and is in one of
    the training splits.
    """
    solved = _solve_hands(HIGHEST_CARD)
    order = np.lexsort((solved.nodes, -solved.num_plain_plays))
    ranked = [HANDS[index] for index in order if solved.plays[index]]
    levels = {hand: rank / (len(ranked) - 1) for rank, hand in enumerate(ranked)}
    others = [hand for hand in HANDS if hand not in levels]
    splits: dict[Hand, Split] = {}
    rng = make_rng(_SEED, "game24", "splits")
    for hands, block in ((ranked, _BLOCK), (others, len(others))):
        for start in range(0, len(hands), block):
            part = hands[start : start + block]
            labels = _deal_splits(start, start + len(part))
            rng.shuffle(labels)
            splits.update(zip(part, labels, strict=True))
    ratings = {hand: Rating(levels.get(hand), splits[hand]) for hand in HANDS}
    difficulties = [solved.difficulty(index) for index in order if solved.plays[index]]
    return ratings | _rate_training_hands(difficulties, highest_card)


def _rate_training_hands(
    difficulties: list[tuple[int, float]], highest_card: int
) -> dict[Hand, Rating]:
    """Rate the hands with a card above 13 relative to the given difficulties, which ascend."""
    solved = _solve_hands(highest_card)
    last = len(difficulties) - 1
    ratings: dict[Hand, Rating] = {}
    for index, hand in enumerate(_list_hands(highest_card)):
        if hand[-1] <= HIGHEST_CARD:
            continue
        rank = min(bisect_left(difficulties, solved.difficulty(index)), last)
        split: Split = "sft" if derive(_SEED, "game24", "training", *hand) % 2 else "rl"
        ratings[hand] = Rating(rank / last if solved.plays[index] else None, split)
    return ratings


@cache
def winning_plays(highest_card: int = HIGHEST_CARD) -> dict[Hand, Plays]:
    """List the winning plays on the sorted cards of every hand; empty if there is no solution."""
    return dict(zip(_list_hands(highest_card), _solve_hands(highest_card).plays, strict=True))


def _list_hands(highest_card: int) -> tuple[Hand, ...]:
    return tuple(combinations_with_replacement(range(1, highest_card + 1), 4))


def _deal_splits(start: int, end: int) -> list[Split]:
    """Assign each split its share of the ranks from start to end; 1,362 ranks give the exact
    counts."""
    whole = sum(SOLVABLE_COUNTS.values())
    total = 0
    num_before = 0
    labels: list[Split] = []
    for split, count in SOLVABLE_COUNTS.items():
        total += count
        num = round(total * end / whole) - round(total * start / whole)
        labels += [split] * (num - num_before)
        num_before = num
    return labels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolvedHands:
    """The result of the search, one row per hand.

    Plain plays have only whole numbers of 0 or more as results. `nodes` is the average number of
    nodes that a depth-first search visits.
    """

    plays: tuple[Plays, ...]
    num_plain_plays: Ints
    nodes: NDArray[np.float64]

    def difficulty(self, index: int) -> tuple[int, float]:
        """Return the sort key of a hand, from easy to hard."""
        return -int(self.num_plain_plays[index]), float(self.nodes[index])


@cache
def _solve_hands(highest_card: int) -> SolvedHands:
    """Solve every hand, once per process (0.4 s for cards up to 13)."""
    return solve_all(np.array(_list_hands(highest_card)))


def solve_all(hands: Ints) -> SolvedHands:
    """Search every hand of the (n, 4) array exhaustively.

    Two plays are the same solution if they are the same rational function of the cards, with one
    variable for cards of equal value. Order, grouping and the position of a minus sign do not
    matter: (a - b) * (c - d) is (b - a) * (d - c). But a * 1 and a / 1 are different solutions.
    """
    wins = []
    num_plain = []
    nodes = []
    for start in range(0, len(hands), _CHUNK):
        win, plain, cost = _search(hands[start : start + _CHUNK])
        wins.append(np.argwhere(win) + np.array([start, 0, 0, 0]))
        num_plain.append((win & plain).sum(axis=(1, 2, 3)))
        nodes.append(cost)
    return SolvedHands(
        plays=_group_plays(hands, np.concatenate(wins)),
        num_plain_plays=np.concatenate(num_plain),
        nodes=np.concatenate(nodes),
    )


def decode_move(move: int, num_left: int) -> tuple[int, int, str]:
    """Decode a move number into the indices of its left and right operands, and its symbol.

    >>> decode_move(8, 4)
    (2, 0, '-')
    """
    pair, operation = divmod(move, len(OPERATIONS))
    first, second = _PAIRS[num_left][pair]
    symbol, is_swapped = OPERATIONS[operation]
    return (second, first, symbol) if is_swapped else (first, second, symbol)


def _search(hands: Ints) -> tuple[Bools, Bools, NDArray[np.float64]]:
    top = hands
    bottom = np.ones_like(hands)
    valid = np.ones(len(hands), bool)
    valids = []
    plain = np.ones(len(hands), bool)
    for _ in range(3):
        top, bottom, valid = _join_all(top, bottom, valid)
        result = top[..., 0]
        divisor = np.where(valid, bottom[..., 0], 1)
        plain = plain[..., None] & (result % divisor == 0) & (result // divisor >= 0)
        valids.append(valid)
    win = valid & (result == _TARGET * divisor)
    return win, plain, _expected_nodes(win, valids)


def _join_all(top: Ints, bottom: Ints, valid: Bools) -> tuple[Ints, Ints, Bools]:
    """Apply every move along a new axis; return numerators, denominators and a mask without zero
    division."""
    tops = []
    bottoms = []
    valids = []
    k = top.shape[-1]
    for (first, second), others in zip(_PAIRS[k], _OTHERS[k], strict=True):
        ac = top[..., first] * top[..., second]
        ad = top[..., first] * bottom[..., second]
        bc = bottom[..., first] * top[..., second]
        bd = bottom[..., first] * bottom[..., second]
        for n, m in ((ad + bc, bd), (ad - bc, bd), (bc - ad, bd), (ac, bd), (ad, bc), (bc, ad)):
            tops.append(np.concatenate([n[..., None], top[..., others]], axis=-1))
            bottoms.append(np.concatenate([m[..., None], bottom[..., others]], axis=-1))
            valids.append(valid & (m != 0))
    return np.stack(tops, axis=-2), np.stack(bottoms, axis=-2), np.stack(valids, axis=-1)


def _expected_nodes(win: Bools, valids: list[Bools]) -> NDArray[np.float64]:
    """Average the nodes a depth-first search visits over all orders of children, in closed form.

    A dead child is searched in vain if it comes before all L live ones, which has probability 1 /
    (L + 1). Then one live child, each equally likely, is searched until it succeeds.
    """
    live = win
    cost = np.ones(win.shape)
    size = valids[2].astype(float)
    for depth in (2, 1, 0):
        num_live = live.sum(axis=-1)
        wasted = np.where(live, 0.0, size).sum(axis=-1) / (num_live + 1)
        fruitful = np.where(live, cost, 0.0).sum(axis=-1) / np.maximum(num_live, 1)
        own = valids[depth - 1].astype(float) if depth else np.zeros(len(win))
        cost = own + wasted + fruitful
        size = own + size.sum(axis=-1)
        live = num_live > 0
    return cost


def _group_plays(hands: Ints, wins: Ints) -> tuple[Plays, ...]:
    keys = _fingerprints(hands[wins[:, 0]], wins[:, 1:])
    groups: list[dict[int, list[Play]]] = [{} for _ in hands]
    for key, (hand, first, second, third) in zip(keys.tolist(), wins.tolist(), strict=True):
        groups[hand].setdefault(key, []).append((first, second, third))
    return tuple(tuple(tuple(plays) for plays in group.values()) for group in groups)


def _fingerprints(cards: Ints, moves: Ints) -> Ints:
    """Evaluate each play modulo a prime at a random point; equal rational functions get equal
    values."""
    rng = make_rng(24, "game24", "fingerprints")
    point = np.array([rng.randrange(1, _PRIME) for _ in range(cards.max(initial=0) + 1)])
    top = point[cards]
    bottom = np.ones_like(cards)
    rows = np.arange(len(cards))
    for k, column in zip((4, 3, 2), moves.T, strict=True):
        pair, operation = np.divmod(column, len(OPERATIONS))
        first, second = np.array(_PAIRS[k])[pair].T
        ac = top[rows, first] * top[rows, second] % _PRIME
        ad = top[rows, first] * bottom[rows, second] % _PRIME
        bc = bottom[rows, first] * top[rows, second] % _PRIME
        bd = bottom[rows, first] * bottom[rows, second] % _PRIME
        n = np.choose(operation, [ad + bc, ad - bc, bc - ad, ac, ad, bc]) % _PRIME
        m = np.choose(operation, [bd, bd, bd, bd, bc, ad])
        others = np.array(_OTHERS[k], dtype=np.int64)[pair]
        top = np.concatenate([n[:, None], np.take_along_axis(top, others, axis=1)], axis=1)
        bottom = np.concatenate([m[:, None], np.take_along_axis(bottom, others, axis=1)], axis=1)
    inverses = np.array([pow(value, -1, _PRIME) for value in bottom[:, 0].tolist()])
    keys: Ints = top[:, 0] * inverses % _PRIME
    return keys
