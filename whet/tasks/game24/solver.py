"""Every way to play every hand, in numpy: which plays reach 24, which write the same solution, how
long a search takes.

A play is three moves. A move joins two of the k numbers on the table: it is a pair and one of six
operations, so there are 36, 18 and 6 moves with 4, 3 and 2 numbers. The result is put first, the
others keep their order.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from whet.rng import stream

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Play = tuple[int, int, int]
Plays = tuple[tuple[tuple[Play, ...], ...], ...]

OPERATIONS = (("+", False), ("-", False), ("-", True), ("*", False), ("/", False), ("/", True))
"""Symbol, and whether the operands are swapped: the six candidates of a pair."""

_TARGET = 24
_PRIME = 2**31 - 1
_CHUNK = 130
_PAIRS = {k: tuple(combinations(range(k), 2)) for k in (4, 3, 2)}
_OTHERS = {
    k: tuple(tuple(place for place in range(k) if place not in pair) for pair in _PAIRS[k])
    for k in _PAIRS
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """What the solver found, one row a hand, in the order the hands were given.

    `plays[hand]` groups the winning plays, each three move numbers, by the solution they write.
    Plain plays pass through whole numbers of 0 or more only. `nodes` is what a depth-first search
    visits on average.
    """

    num_solutions: Ints
    num_plain_plays: Ints
    nodes: NDArray[np.float64]
    plays: Plays


def solve_all(hands: Ints) -> Table:
    """Search every hand of the (n, 4) array exhaustively.

    Two plays are the same solution when they are the same rational function of the cards, a card of
    the same value being the same variable: order, grouping and the place of a minus sign do not
    count ((a - b) * (c - d) is (b - a) * (d - c)), while a * 1 and a / 1 do.
    """
    wins = []
    num_plain = []
    nodes = []
    for start in range(0, len(hands), _CHUNK):
        win, plain, cost = _search(hands[start : start + _CHUNK])
        wins.append(np.argwhere(win) + np.array([start, 0, 0, 0]))
        num_plain.append((win & plain).sum(axis=(1, 2, 3)))
        nodes.append(cost)
    plays = _grouped(hands, np.concatenate(wins))
    return Table(
        num_solutions=np.array([len(groups) for groups in plays]),
        num_plain_plays=np.concatenate(num_plain),
        nodes=np.concatenate(nodes),
        plays=plays,
    )


def decode(move: int, num_left: int) -> tuple[int, int, str]:
    """Read a move number as the places of its left and right operand and its symbol.

    >>> decode(8, 4)
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
        top, bottom, valid = _joined(top, bottom, valid)
        result = top[..., 0]
        divisor = np.where(valid, bottom[..., 0], 1)
        plain = plain[..., None] & (result % divisor == 0) & (result // divisor >= 0)
        valids.append(valid)
    win = valid & (result == _TARGET * divisor)
    return win, plain, _expected_nodes(win, valids)


def _joined(top: Ints, bottom: Ints, valid: Bools) -> tuple[Ints, Ints, Bools]:
    """Add an axis of moves: numerators and denominators after each, and whether nothing was divided
    by zero."""
    tops = []
    bottoms = []
    valids = []
    k = top.shape[-1]
    for (first, second), others in zip(_PAIRS[k], _OTHERS[k], strict=True):
        a = top[..., first]
        b = bottom[..., first]
        c = top[..., second]
        d = bottom[..., second]
        ad = a * d
        bc = b * c
        bd = b * d
        rest = list(others)
        for n, m in ((ad + bc, bd), (ad - bc, bd), (bc - ad, bd), (a * c, bd), (ad, bc), (bc, ad)):
            tops.append(np.concatenate([n[..., None], top[..., rest]], axis=-1))
            bottoms.append(np.concatenate([m[..., None], bottom[..., rest]], axis=-1))
            valids.append(valid & (m != 0))
    return np.stack(tops, axis=-2), np.stack(bottoms, axis=-2), np.stack(valids, axis=-1)


def _expected_nodes(win: Bools, valids: list[Bools]) -> NDArray[np.float64]:
    """Average the nodes a depth-first search visits over all orders of children, in closed form.

    A dead child is searched in vain when it comes before all L live ones, which happens with
    probability 1 / (L + 1); then one live child, any of them equally likely, is searched until it
    yields.
    """
    live = win
    cost = np.ones(win.shape)
    size = valids[2].astype(float)
    for depth in (2, 1, 0):
        num_live = live.sum(axis=-1)
        wasted = np.where(live, 0.0, size).sum(axis=-1) / (num_live + 1)
        found = np.where(live, cost, 0.0).sum(axis=-1) / np.maximum(num_live, 1)
        own = valids[depth - 1].astype(float) if depth else np.zeros(len(win))
        cost = own + wasted + found
        size = own + size.sum(axis=-1)
        live = num_live > 0
    return cost


def _grouped(hands: Ints, wins: Ints) -> Plays:
    keys = _fingerprints(hands[wins[:, 0]], wins[:, 1:])
    groups: list[dict[int, list[Play]]] = [{} for _ in hands]
    for key, (hand, first, second, third) in zip(keys.tolist(), wins.tolist(), strict=True):
        groups[hand].setdefault(key, []).append((first, second, third))
    return tuple(tuple(tuple(plays) for plays in group.values()) for group in groups)


def _fingerprints(cards: Ints, moves: Ints) -> Ints:
    """Evaluate each play modulo a prime at a random point: the same number for the same rational
    function."""
    random = stream(24, "game24", "fingerprints")
    point = np.array([random.randrange(1, _PRIME) for _ in range(14)])
    top = point[cards]
    bottom = np.ones_like(cards)
    rows = np.arange(len(cards))
    for k, column in zip((4, 3, 2), moves.T, strict=True):
        pair, operation = np.divmod(column, len(OPERATIONS))
        places = np.array(_PAIRS[k])[pair]
        first = places[:, 0]
        second = places[:, 1]
        a = top[rows, first]
        b = bottom[rows, first]
        c = top[rows, second]
        d = bottom[rows, second]
        ad = a * d % _PRIME
        bc = b * c % _PRIME
        bd = b * d % _PRIME
        ac = a * c % _PRIME
        n = np.choose(operation, [ad + bc, ad - bc, bc - ad, ac, ad, bc]) % _PRIME
        m = np.choose(operation, [bd, bd, bd, bd, bc, ad])
        kept = np.array(_OTHERS[k], dtype=np.int64)[pair]
        top = np.concatenate([n[:, None], np.take_along_axis(top, kept, axis=1)], axis=1)
        bottom = np.concatenate([m[:, None], np.take_along_axis(bottom, kept, axis=1)], axis=1)
    return top[:, 0] * _inverse(bottom[:, 0]) % _PRIME


def _inverse(values: Ints) -> Ints:
    result = np.ones_like(values)
    power = values
    exponent = _PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * power % _PRIME
        power = power * power % _PRIME
        exponent = exponent >> 1
    return result
