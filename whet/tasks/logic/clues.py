"""Clues of position puzzles: what each kind says, and how it narrows where its items may be.

Items stand at positions 0 to n - 1; a domain is a bit mask of the positions an item may still have.
A rule narrows the domains of its items in place and returns False where nothing is left.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

Domains = list[int]
Rule = Callable[[Domains], bool]


class Clue(NamedTuple):
    """A kind, the items it speaks of, and for `apart` how many stand between, for `at` and `not_at`
    which position."""

    kind: str
    items: tuple[int, ...]
    number: int = 0


UNARY: dict[str, Callable[[int, int, int], bool]] = {
    "first": lambda p, n, k: p == 0,
    "last": lambda p, n, k: p == n - 1,
    "middle": lambda p, n, k: 2 * p == n - 1,
    "end": lambda p, n, k: p in (0, n - 1),
    "odd": lambda p, n, k: p % 2 == 0,
    "even": lambda p, n, k: p % 2 == 1,
    "at": lambda p, n, k: p == k,
    "not_at": lambda p, n, k: p != k,
}
BINARY: dict[str, Callable[[int, int, int], bool]] = {
    "same": lambda p, q, k: p == q,
    "left": lambda p, q, k: p + 1 == q,
    "right": lambda p, q, k: p == q + 1,
    "beside": lambda p, q, k: abs(p - q) == 1,
    "before": lambda p, q, k: p < q,
    "after": lambda p, q, k: p > q,
    "differ": lambda p, q, k: p != q,
    "not_before": lambda p, q, k: p >= q,
    "not_after": lambda p, q, k: p <= q,
    "same_parity": lambda p, q, k: (p - q) % 2 == 0,
    "other_parity": lambda p, q, k: (p - q) % 2 == 1,
    "apart": lambda p, q, k: abs(p - q) == k + 1,
}
TERNARY: dict[str, Callable[[int, int, int], bool]] = {
    "between": lambda p, q, r: (q == p - 1 and r == p + 1) or (r == p - 1 and q == p + 1),
    "amid": lambda p, q, r: q < p < r or r < p < q,
}
EITHER: dict[str, Callable[[bool, bool], bool]] = {
    "one_same": lambda a, b: a != b,
    "any_same": lambda a, b: a or b,
    "any_differ": lambda a, b: not (a and b),
}
"""Two pairs of items; what must hold of the first pair and the second being at the same place."""


def holds(clue: Clue, positions: Sequence[int], num_positions: int) -> bool:
    """Say whether a clue is true where the items stand."""
    places = [positions[item] for item in clue.items]
    if clue.kind in BINARY:
        return BINARY[clue.kind](places[0], places[1], clue.number)
    if clue.kind in UNARY:
        return UNARY[clue.kind](places[0], num_positions, clue.number)
    if clue.kind in TERNARY:
        return TERNARY[clue.kind](places[0], places[1], places[2])
    return EITHER[clue.kind](places[0] == places[1], places[2] == places[3])


def rule(clue: Clue, num_positions: int) -> Rule:
    """Make the rule of a clue."""
    if clue.kind in BINARY:
        return _binary_rule(clue, num_positions)
    if clue.kind in UNARY:
        return _unary_rule(clue, num_positions)
    if clue.kind in TERNARY:
        return _ternary_rule(clue, num_positions)
    return _either_rule(clue)


def _unary_rule(clue: Clue, n: int) -> Rule:
    (item,) = clue.items
    mask = sum(1 << p for p in range(n) if UNARY[clue.kind](p, n, clue.number))

    def narrow(domains: Domains) -> bool:
        domains[item] &= mask
        return domains[item] != 0

    return narrow


def _binary_rule(clue: Clue, n: int) -> Rule:
    (a, b) = clue.items
    (forward, backward) = _images(clue.kind, clue.number, n)

    def narrow(domains: Domains) -> bool:
        domains[b] = second = domains[b] & forward[domains[a]]
        domains[a] &= backward[second]
        return second != 0 and domains[a] != 0

    return narrow


@lru_cache(1 << 10)
def _images(kind: str, number: int, n: int) -> tuple[list[int], list[int]]:
    """List, for every domain of one item, where the other may be: of the first item, then of the
    second."""
    says = BINARY[kind]
    ahead = [sum(1 << q for q in range(n) if says(p, q, number)) for p in range(n)]
    back = [sum(1 << q for q in range(n) if says(q, p, number)) for p in range(n)]
    return _unions(ahead), _unions(back)


def _unions(masks: list[int]) -> list[int]:
    found = [0]
    for mask in masks:
        found += [union | mask for union in found]
    return found


def _ternary_rule(clue: Clue, n: int) -> Rule:
    (a, b, c) = clue.items
    kind = clue.kind

    def narrow(domains: Domains) -> bool:
        domains[a], domains[b], domains[c] = _supported(kind, n, domains[a], domains[b], domains[c])
        return domains[a] != 0

    return narrow


@lru_cache(1 << 16)
def _supported(kind: str, n: int, first: int, second: int, third: int) -> tuple[int, int, int]:
    """Keep the places of each of three items that some places of the other two go with."""
    one = two = three = 0
    for p, q, r in _triples(kind, n):
        if first & p and second & q and third & r:
            one |= p
            two |= q
            three |= r
    return one, two, three


@lru_cache(1 << 6)
def _triples(kind: str, n: int) -> list[tuple[int, int, int]]:
    says = TERNARY[kind]
    places = range(n)
    return [
        (1 << p, 1 << q, 1 << r) for p in places for q in places for r in places if says(p, q, r)
    ]


def _either_rule(clue: Clue) -> Rule:
    """Decide a pair once the other is decided; both stay open until then."""
    a, b, c, d = clue.items
    says = EITHER[clue.kind]

    def narrow(domains: Domains) -> bool:
        left = _truths(domains[a], domains[b])
        right = _truths(domains[c], domains[d])
        if len(left) == 2 == len(right):
            return True
        allowed = [(x, y) for x in left for y in right if says(x, y)]
        if not allowed:
            return False
        firsts = {x for x, _ in allowed}
        seconds = {y for _, y in allowed}
        return _hold(domains, a, b, firsts) and _hold(domains, c, d, seconds)

    return narrow


def _truths(one: int, other: int) -> tuple[bool, ...]:
    """List what may yet be true of two items being at the same place."""
    if not one & other:
        return (False,)
    return (True,) if one == other and one & (one - 1) == 0 else (True, False)


def _hold(domains: Domains, a: int, b: int, truths: set[bool]) -> bool:
    if len(truths) == 2:
        return True
    if True in truths:
        domains[a] = domains[b] = domains[a] & domains[b]
        return domains[a] != 0
    if domains[a] & (domains[a] - 1) == 0:
        domains[b] &= ~domains[a]
    elif domains[b] & (domains[b] - 1) == 0:
        domains[a] &= ~domains[b]
    return domains[a] != 0 and domains[b] != 0
