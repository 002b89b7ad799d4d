"""Make the clues of a position puzzle: true ones, until no second solution is left.

Each new clue rules out a counterexample that the solver found, so every clue says something when it
is added.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from whet.tasks.logic.clues import BINARY, TERNARY, UNARY, Clue, holds
from whet.tasks.logic.grid import Grid, Positions

_ACROSS = ("same", "differ", "one_same", "any_same", "any_differ")
"""Kinds that speak of two attributes."""
_TRIES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Where every item stands, and which item of each attribute stands at each position."""

    num_positions: int
    num_attributes: int
    positions: Positions
    items: tuple[tuple[int, ...], ...]


def shuffled(num_positions: int, num_attributes: int, rng: Random) -> Solution:
    """Draw a solution, each equally likely."""
    items = []
    positions = [0] * (num_positions * num_attributes)
    for attribute in range(num_attributes):
        row = list(range(attribute * num_positions, (attribute + 1) * num_positions))
        rng.shuffle(row)
        items.append(tuple(row))
        for place, item in enumerate(row):
            positions[item] = place
    return Solution(
        num_positions=num_positions,
        num_attributes=num_attributes,
        positions=tuple(positions),
        items=tuple(items),
    )


def clues_for(
    solution: Solution, kinds: Sequence[str], rng: Random, *, minimal: bool = False
) -> list[Clue] | None:
    """Choose clues that leave the solution alone, every one needed if `minimal`; None where the
    kinds cannot."""
    n, m = solution.num_positions, solution.num_attributes
    usable = [
        kind for kind in kinds if (m > 1 or kind not in _ACROSS) and (n > 2 or kind not in TERNARY)
    ]
    grid = Grid(n, m)
    clues = []
    while (counter := grid.other(solution.positions)) is not None:
        clue = _against(counter, solution, usable, rng)
        if clue is None:
            return None
        clues.append(clue)
        grid.add(clue)
    if minimal:
        clues = _needed(solution, clues)
    rng.shuffle(clues)
    return clues


def _needed(solution: Solution, clues: list[Clue]) -> list[Clue]:
    kept = clues
    for clue in clues:
        rest = [other for other in kept if other is not clue]
        if (
            Grid(solution.num_positions, solution.num_attributes, rest).other(solution.positions)
            is None
        ):
            kept = rest
    return kept


def _against(
    counter: Positions, solution: Solution, kinds: Sequence[str], rng: Random
) -> Clue | None:
    """Draw a clue that is true of the solution and not of the counterexample."""
    pairs = zip(solution.positions, counter, strict=True)
    moved = [item for item, (place, other) in enumerate(pairs) if place != other]
    for _ in range(_TRIES):
        clue = _drawn(rng.choice(kinds), rng.choice(moved), solution, rng)
        if clue is not None and not holds(clue, counter, solution.num_positions):
            return clue
    return None


def _drawn(kind: str, item: int, solution: Solution, rng: Random) -> Clue | None:
    """Draw a clue of a kind about an item, true of the solution; None where this draw found
    none."""
    place = solution.positions[item]
    if kind in UNARY:
        number = {"at": place, "not_at": rng.randrange(solution.num_positions)}.get(kind, 0)
        clue = Clue(kind, (item,), number)
    elif kind in BINARY:
        other = _other(kind, item, place, solution, rng)
        if other is None or other == item:
            return None
        gap = abs(place - solution.positions[other]) - 1 if kind == "apart" else 0
        clue = Clue(kind, (item, other), gap)
    elif kind in TERNARY:
        sides = _sides(kind, place, solution, rng)
        if sides is None:
            return None
        clue = Clue(kind, (item, *sides))
    else:
        first = _partner(item, solution, rng)
        second = _partner(item, solution, rng)
        if first == second:
            return None
        clue = Clue(kind, (item, first, item, second))
    return (
        clue
        if holds(clue, solution.positions, solution.num_positions) and clue.number >= 0
        else None
    )


def _other(kind: str, item: int, place: int, solution: Solution, rng: Random) -> int | None:
    """Draw the second item of a pair, near enough to what the kind says."""
    n = solution.num_positions
    if kind == "same":
        return _partner_at(item, place, solution, rng)
    if kind == "differ":
        return _partner(item, solution, rng)
    near = {"left": (place + 1,), "right": (place - 1,), "beside": (place - 1, place + 1)}.get(kind)
    target = rng.choice(near) if near else int(rng.random() * n)
    return rng.choice(solution.items)[target] if 0 <= target < n else None


def _sides(kind: str, place: int, solution: Solution, rng: Random) -> tuple[int, int] | None:
    n = solution.num_positions
    if not 0 < place < n - 1:
        return None
    low = place - 1 if kind == "between" else rng.randrange(place)
    high = place + 1 if kind == "between" else rng.randrange(place + 1, n)
    first = rng.choice(solution.items)[low]
    second = rng.choice(solution.items)[high]
    return (first, second) if rng.random() < 0.5 else (second, first)


def _partner(item: int, solution: Solution, rng: Random) -> int:
    return _partner_at(item, int(rng.random() * solution.num_positions), solution, rng)


def _partner_at(item: int, place: int, solution: Solution, rng: Random) -> int:
    """Take the item of another attribute at a place."""
    own = item // solution.num_positions
    attribute = int(rng.random() * (solution.num_attributes - 1))
    return solution.items[attribute + (attribute >= own)][place]
