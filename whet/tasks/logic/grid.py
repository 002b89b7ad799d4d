"""Solve position puzzles: several attributes, each a permutation of its items over the same
positions.

Propagation over bit masks, then branching on the item with the fewest places left. Complete: what
it says is unique is.
"""

from collections.abc import Iterable, Iterator, Sequence

from whet.tasks.logic.clues import Clue, Domains, Rule, rule

Positions = tuple[int, ...]
"""Where each item stands; item `a * n + v` is value v of attribute a."""


class Grid:
    """A puzzle as clues are added to it. `effort` counts the rounds of propagation so far."""

    def __init__(self, num_positions: int, num_attributes: int, clues: Iterable[Clue] = ()) -> None:
        self._n = num_positions
        self._starts = range(0, num_positions * num_attributes, num_positions)
        self._domains: Domains = [(1 << num_positions) - 1] * (num_positions * num_attributes)
        self._rules: list[Rule] = [rule(clue, num_positions) for clue in clues]
        self._is_open = True
        self.effort = 0
        self._settle()

    def add(self, clue: Clue) -> None:
        self._rules.append(rule(clue, self._n))
        self._settle()

    def other(self, truth: Positions) -> Positions | None:
        """Find a solution that is not the one given, which must be one; None proves that it is the
        only one."""
        domains = self._domains.copy()
        while (item := _narrowest(domains)) is not None:
            right = 1 << truth[item]
            for place in _places(domains[item] & ~right):
                found = next(self._from(domains, item, place), None)
                if found is not None:
                    return found
            domains[item] = right
            kept = self._propagate(domains)
            assert kept, "the solution given does not hold to the clues"
        return None

    def solutions(self) -> Iterator[Positions]:
        """Yield every solution."""
        if self._is_open:
            yield from self._search(self._domains.copy())

    def _settle(self) -> None:
        self._is_open = self._is_open and self._propagate(self._domains)

    def _from(self, domains: Domains, item: int, place: int) -> Iterator[Positions]:
        trial = domains.copy()
        trial[item] = place
        if self._propagate(trial):
            yield from self._search(trial)

    def _search(self, domains: Domains) -> Iterator[Positions]:
        item = _narrowest(domains)
        if item is None:
            yield tuple(domain.bit_length() - 1 for domain in domains)
            return
        for place in _places(domains[item]):
            yield from self._from(domains, item, place)

    def _propagate(self, domains: Domains) -> bool:
        before: Domains = []
        while domains != before:
            self.effort += 1
            before = domains.copy()
            for start in self._starts:
                if not _spread_out(domains, start, start + self._n):
                    return False
            for narrow in self._rules:
                if not narrow(domains):
                    return False
        return True


def _spread_out(domains: Domains, start: int, end: int) -> bool:
    """Keep the items of an attribute apart: a place that is taken is taken, one that only one item
    can have is its."""
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
    best, fewest = None, 99
    for item, domain in enumerate(domains):
        if domain & (domain - 1):
            size = domain.bit_count()
            if size == 2:
                return item
            if size < fewest:
                best, fewest = item, size
    return best


def _places(domain: int) -> Iterator[int]:
    while domain:
        place = domain & -domain
        yield place
        domain ^= place
