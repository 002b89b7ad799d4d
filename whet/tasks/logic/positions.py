"""Position puzzles: clues about the positions of items, and a complete solver. There are several
attributes, each a permutation of its items over the positions 0 to n - 1. Item `a * n + v` is value
v of attribute a. A domain is a bit mask of an item's possible positions. A rule narrows the domains
of its items in place and returns False if nothing is left."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import product
from operator import or_
from typing import NamedTuple

Domains = list[int]
Rule = Callable[[Domains], bool]
Positions = tuple[int, ...]
"""The position of each item."""


class Clue(NamedTuple):
    """A kind, its items, and a number: items between for `apart`, a position for `at` and
    `not_at`."""

    kind: str
    items: tuple[int, ...]
    number: int = 0


UNARY: dict[str, Callable[..., bool]] = {
    "first": lambda n, k, p: p == 0,
    "last": lambda n, k, p: p == n - 1,
    "middle": lambda n, k, p: 2 * p == n - 1,
    "end": lambda n, k, p: p in (0, n - 1),
    "odd": lambda n, k, p: p % 2 == 0,
    "even": lambda n, k, p: p % 2 == 1,
    "at": lambda n, k, p: p == k,
    "not_at": lambda n, k, p: p != k,
}
"""Whether a clue holds, given the number of positions, the clue's number and the items'
positions."""
BINARY: dict[str, Callable[..., bool]] = {
    "same": lambda n, k, p, q: p == q,
    "left": lambda n, k, p, q: p + 1 == q,
    "right": lambda n, k, p, q: p == q + 1,
    "beside": lambda n, k, p, q: abs(p - q) == 1,
    "before": lambda n, k, p, q: p < q,
    "after": lambda n, k, p, q: p > q,
    "differ": lambda n, k, p, q: p != q,
    "not_before": lambda n, k, p, q: p >= q,
    "not_after": lambda n, k, p, q: p <= q,
    "same_parity": lambda n, k, p, q: (p - q) % 2 == 0,
    "other_parity": lambda n, k, p, q: (p - q) % 2 == 1,
    "apart": lambda n, k, p, q: abs(p - q) == k + 1,
}
TERNARY: dict[str, Callable[..., bool]] = {
    "between": lambda n, k, p, q, r: sorted((q, r)) == [p - 1, p + 1],
    "amid": lambda n, k, p, q, r: q < p < r or r < p < q,
}
EITHER: dict[str, Callable[[bool, bool], bool]] = {
    "one_same": lambda a, b: a != b,
    "any_same": lambda a, b: a or b,
    "any_differ": lambda a, b: not (a and b),
}
"""Clues about two pairs of items: whether they hold, given whether each pair shares a position."""
_RELATIONS = UNARY | BINARY | TERNARY


def holds(clue: Clue, positions: Sequence[int], num_positions: int) -> bool:
    """Whether a clue is true for the items' positions."""
    places = [positions[item] for item in clue.items]
    if clue.kind in EITHER:
        return EITHER[clue.kind](places[0] == places[1], places[2] == places[3])
    return _RELATIONS[clue.kind](num_positions, clue.number, *places)


class PositionPuzzle:
    """A puzzle to which clues are added; `effort` counts the rounds of propagation so far."""

    def __init__(self, num_positions: int, num_attributes: int, clues: Iterable[Clue] = ()) -> None:
        self._n = num_positions
        self._starts = range(0, num_positions * num_attributes, num_positions)
        self._domains: Domains = [(1 << num_positions) - 1] * (num_positions * num_attributes)
        self._rules: list[Rule] = []
        self._is_open = True
        self.effort = 0
        self.add(*clues)

    def add(self, *clues: Clue) -> None:
        """Add clues and propagate them."""
        for clue in clues:
            narrow = _make_rule(clue, self._n)
            if clue.kind in UNARY:  # domains only shrink, so that once is enough
                self._is_open = narrow(self._domains) and self._is_open
            else:
                self._rules.append(narrow)
        self._is_open = self._is_open and self._propagate(self._domains)

    def other(self, truth: Positions) -> Positions | None:
        """Find a solution other than the given one; None proves that it is the only one."""
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


def _make_rule(clue: Clue, num_positions: int) -> Rule:
    if clue.kind in EITHER:
        return _either_rule(clue)
    if clue.kind in BINARY:
        return _binary_rule(clue, num_positions)
    kind, items, number = clue

    def narrow(domains: Domains) -> bool:
        before = tuple([domains[item] for item in items])
        after = _filter(kind, number, num_positions, before)
        if after != before:
            for item, domain in zip(items, after, strict=True):
                domains[item] = domain
        return after[0] != 0

    return narrow


def _binary_rule(clue: Clue, n: int) -> Rule:
    """Narrow by tables, which is faster than search; clues about two items are the most common."""
    a, b = clue.items
    forward, backward = _images(clue.kind, clue.number, n)

    def narrow(domains: Domains) -> bool:
        domains[b] = second = domains[b] & forward[domains[a]]
        domains[a] &= backward[second]
        return second != 0 and domains[a] != 0

    return narrow


@lru_cache(1 << 10)
def _images(kind: str, number: int, n: int) -> tuple[list[int], list[int]]:
    """Map every domain of the first item to the possible positions of the second, and vice
    versa."""
    forward, backward = [0], [0]
    for p in range(n):
        ahead = sum(1 << q for q in range(n) if BINARY[kind](n, number, p, q))
        back = sum(1 << q for q in range(n) if BINARY[kind](n, number, q, p))
        forward += [union | ahead for union in forward]
        backward += [union | back for union in backward]
    return forward, backward


@lru_cache(1 << 16)
def _filter(kind: str, number: int, n: int, domains: tuple[int, ...]) -> tuple[int, ...]:
    """Keep the positions of each item that are consistent with some positions of the others."""
    rows = _list_true(kind, number, n, len(domains))
    for item, domain in enumerate(domains):
        rows = [row for row in rows if row[item] & domain]
    return tuple(reduce(or_, (row[item] for row in rows), 0) for item in range(len(domains)))


@lru_cache(1 << 10)
def _list_true(kind: str, number: int, n: int, arity: int) -> list[tuple[int, ...]]:
    """List the positions, as bits, for which a relation is true."""
    rows = product(range(n), repeat=arity)
    is_true = _RELATIONS[kind]
    return [tuple(1 << p for p in row) for row in rows if is_true(n, number, *row)]


def _either_rule(clue: Clue) -> Rule:
    """Decide a pair once the other is decided; until then, both stay open."""
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
    """List the possible truths: whether two items may share a position, and whether they may
    differ."""
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
    """Give each position to one item of an attribute; a position possible for one item is that
    item's."""
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
