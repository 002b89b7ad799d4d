"""Position puzzles: clues on where items stand, and a complete solver.

Several attributes, each a permutation of its items over the positions 0 to n - 1; item `a * n + v`
is value v of attribute a. A domain is a bit mask of the positions an item may still have. A rule
narrows the domains of its items in place and returns False where nothing is left.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

Domains = list[int]
Rule = Callable[[Domains], bool]
Positions = tuple[int, ...]
"""Where each item stands."""


class Clue(NamedTuple):
    """A kind, its items, and a number: items between for `apart`, position for `at`, `not_at`."""

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
"""Two pairs of items: what must hold, given whether each pair shares a position."""


def holds(clue: Clue, positions: Sequence[int], num_positions: int) -> bool:
    """Tell whether a clue is true of the items' positions."""
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


class PositionPuzzle:
    """A puzzle as clues are added to it. `effort` counts the rounds of propagation so far."""

    def __init__(self, num_positions: int, num_attributes: int, clues: Iterable[Clue] = ()) -> None:
        self._n = num_positions
        self._starts = range(0, num_positions * num_attributes, num_positions)
        self._domains: Domains = [(1 << num_positions) - 1] * (num_positions * num_attributes)
        self._rules: list[Rule] = [rule(clue, num_positions) for clue in clues]
        self.effort = 0
        self._is_open = self._propagate(self._domains)

    def add(self, clue: Clue) -> None:
        self._rules.append(rule(clue, self._n))
        self._is_open = self._is_open and self._propagate(self._domains)

    def other(self, truth: Positions) -> Positions | None:
        """Find a solution other than the one given; None proves that it is the only one."""
        domains = self._domains.copy()
        while (item := _narrowest(domains)) is not None:
            right = 1 << truth[item]
            for bit in _bits(domains[item] & ~right):
                solution = next(self._search_from(domains, item, bit), None)
                if solution is not None:
                    return solution
            domains[item] = right
            is_consistent = self._propagate(domains)
            assert is_consistent, "the solution given contradicts the clues"
        return None

    def solutions(self) -> Iterator[Positions]:
        """Yield every solution."""
        if self._is_open:
            yield from self._search(self._domains.copy())

    def _search_from(self, domains: Domains, item: int, bit: int) -> Iterator[Positions]:
        trial = domains.copy()
        trial[item] = bit
        if self._propagate(trial):
            yield from self._search(trial)

    def _search(self, domains: Domains) -> Iterator[Positions]:
        item = _narrowest(domains)
        if item is None:
            yield tuple(domain.bit_length() - 1 for domain in domains)
            return
        for bit in _bits(domains[item]):
            yield from self._search_from(domains, item, bit)

    def _propagate(self, domains: Domains) -> bool:
        before: Domains = []
        while domains != before:
            self.effort += 1
            before = domains.copy()
            for start in self._starts:
                if not _keep_apart(domains, start, start + self._n):
                    return False
            for narrow in self._rules:
                if not narrow(domains):
                    return False
        return True


def _unary_rule(clue: Clue, n: int) -> Rule:
    (item,) = clue.items
    mask = sum(1 << p for p in range(n) if UNARY[clue.kind](p, n, clue.number))

    def narrow(domains: Domains) -> bool:
        domains[item] &= mask
        return domains[item] != 0

    return narrow


def _binary_rule(clue: Clue, n: int) -> Rule:
    a, b = clue.items
    forward, backward = _images(clue.kind, clue.number, n)

    def narrow(domains: Domains) -> bool:
        domains[b] = second = domains[b] & forward[domains[a]]
        domains[a] &= backward[second]
        return second != 0 and domains[a] != 0

    return narrow


@lru_cache(1 << 10)
def _images(kind: str, number: int, n: int) -> tuple[list[int], list[int]]:
    """List, for every domain of the first item, where the second may be; and the other way."""
    is_true = BINARY[kind]
    ahead = [sum(1 << q for q in range(n) if is_true(p, q, number)) for p in range(n)]
    back = [sum(1 << q for q in range(n) if is_true(q, p, number)) for p in range(n)]
    return _unions(ahead), _unions(back)


def _unions(masks: list[int]) -> list[int]:
    unions = [0]
    for mask in masks:
        unions += [union | mask for union in unions]
    return unions


def _ternary_rule(clue: Clue, n: int) -> Rule:
    a, b, c = clue.items
    kind = clue.kind

    def narrow(domains: Domains) -> bool:
        domains[a], domains[b], domains[c] = _filter_triple(
            kind, n, domains[a], domains[b], domains[c]
        )
        return domains[a] != 0

    return narrow


@lru_cache(1 << 16)
def _filter_triple(kind: str, n: int, first: int, second: int, third: int) -> tuple[int, int, int]:
    """Keep the positions of each item that go with some positions of the other two."""
    one = two = three = 0
    for p, q, r in _triples(kind, n):
        if first & p and second & q and third & r:
            one |= p
            two |= q
            three |= r
    return one, two, three


@lru_cache(1 << 6)
def _triples(kind: str, n: int) -> list[tuple[int, int, int]]:
    triples = product(range(n), repeat=3)
    return [(1 << p, 1 << q, 1 << r) for p, q, r in triples if TERNARY[kind](p, q, r)]


def _either_rule(clue: Clue) -> Rule:
    """Decide a pair once the other is decided; both stay open until then."""
    a, b, c, d = clue.items
    is_true = EITHER[clue.kind]

    def narrow(domains: Domains) -> bool:
        left = _truths(domains[a], domains[b])
        right = _truths(domains[c], domains[d])
        if len(left) == 2 == len(right):
            return True
        allowed = [(x, y) for x in left for y in right if is_true(x, y)]
        if not allowed:
            return False
        firsts = {x for x, _ in allowed}
        seconds = {y for _, y in allowed}
        return _enforce(domains, a, b, firsts) and _enforce(domains, c, d, seconds)

    return narrow


def _truths(one: int, other: int) -> tuple[bool, ...]:
    """List whether two items may still share a position, and whether they may still differ."""
    if not one & other:
        return (False,)
    return (True,) if one == other and one & (one - 1) == 0 else (True, False)


def _enforce(domains: Domains, a: int, b: int, truths: set[bool]) -> bool:
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


def _keep_apart(domains: Domains, start: int, end: int) -> bool:
    """Give each position to one item of an attribute; what only one item can have is its own."""
    taken = seen = twice = 0
    for item in range(start, end):
        domain = domains[item]
        if domain & (domain - 1) == 0:
            if domain & taken:
                return False
            taken |= domain
        twice |= seen & domain
        seen |= domain
    if seen != (1 << (end - start)) - 1:
        return False
    lonely = seen & ~twice
    if taken or lonely:
        for item in range(start, end):
            domain = domains[item]
            if domain & (domain - 1):
                domain = domain & lonely or domain & ~taken
                if domain == 0 or (domain & lonely and domain & (domain - 1)):
                    return False
                domains[item] = domain
    return True


def _narrowest(domains: Sequence[int]) -> int | None:
    best = None
    fewest = 99
    for item, domain in enumerate(domains):
        if domain & (domain - 1):
            size = domain.bit_count()
            if size == 2:
                return item
            if size < fewest:
                best = item
                fewest = size
    return best


def _bits(domain: int) -> Iterator[int]:
    while domain:
        bit = domain & -domain
        yield bit
        domain ^= bit
