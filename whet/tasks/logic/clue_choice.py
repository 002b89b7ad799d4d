"""Choose the clues of a position puzzle: true ones, until only one solution is left.

Each new clue rules out a counterexample of the solver, so it is informative when it is added.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from whet.tasks.logic.positions import (
    BINARY,
    TERNARY,
    UNARY,
    Clue,
    PositionPuzzle,
    Positions,
    holds,
)

_ACROSS = ("same", "differ", "one_same", "any_same", "any_differ")
"""Kinds of clues that need two attributes."""
_TRIES = 2000


class Arrangement(NamedTuple):
    """The position of every item, and the item of each attribute at each position."""

    positions: Positions
    items: tuple[tuple[int, ...], ...]

    @property
    def num_positions(self) -> int:
        return len(self.items[0])


def draw_arrangement(num_positions: int, num_attributes: int, rng: Random) -> Arrangement:
    """Draw a solution, each equally likely."""
    items = []
    positions = [0] * (num_positions * num_attributes)
    for attribute in range(num_attributes):
        row = list(range(attribute * num_positions, (attribute + 1) * num_positions))
        rng.shuffle(row)
        items.append(tuple(row))
        for position, item in enumerate(row):
            positions[item] = position
    return Arrangement(tuple(positions), tuple(items))


def clues_for(
    solution: Arrangement, kinds: Sequence[str], rng: Random, *, minimal: bool = False
) -> list[Clue] | None:
    """Choose clues that leave only this solution; None if these kinds of clues cannot."""
    n = solution.num_positions
    m = len(solution.items)
    refused = {*(_ACROSS if m == 1 else ()), *(TERNARY if n <= 2 else ())}
    usable = [kind for kind in kinds if kind not in refused]
    puzzle = PositionPuzzle(n, m)
    clues = []
    while (counter := puzzle.other(solution.positions)) is not None:
        clue = _draw_against(counter, solution, usable, rng)
        if clue is None:
            return None
        clues.append(clue)
        puzzle.add(clue)
    for clue in list(clues) if minimal else ():
        rest = [other for other in clues if other is not clue]
        if PositionPuzzle(n, m, rest).other(solution.positions) is None:
            clues = rest
    rng.shuffle(clues)
    return clues


def _draw_against(
    counter: Positions, solution: Arrangement, kinds: Sequence[str], rng: Random
) -> Clue | None:
    """Draw a clue that holds for the solution but not for the counterexample."""
    pairs = zip(solution.positions, counter, strict=True)
    moved = [item for item, (position, other) in enumerate(pairs) if position != other]
    for _ in range(_TRIES):
        clue = _draw_clue(rng.choice(kinds), rng.choice(moved), solution, rng)
        if clue is not None and not holds(clue, counter, solution.num_positions):
            return clue
    return None


def _draw_clue(kind: str, item: int, solution: Arrangement, rng: Random) -> Clue | None:
    """Draw a clue of a kind about an item; None if it does not hold for the solution."""
    position = solution.positions[item]
    if kind in UNARY:
        number = {"at": position, "not_at": rng.randrange(solution.num_positions)}.get(kind, 0)
        clue = Clue(kind, (item,), number)
    elif kind in BINARY:
        other = _other(kind, item, position, solution, rng)
        if other is None or other == item:
            return None
        gap = abs(position - solution.positions[other]) - 1 if kind == "apart" else 0
        clue = Clue(kind, (item, other), gap)
    elif kind in TERNARY:
        sides = _sides(kind, position, solution, rng)
        if sides is None:
            return None
        clue = Clue(kind, (item, *sides))
    else:
        first = _partner(item, solution, rng)
        second = _partner(item, solution, rng)
        if first == second:
            return None
        clue = Clue(kind, (item, first, item, second))
    is_true = holds(clue, solution.positions, solution.num_positions)
    return clue if is_true and clue.number >= 0 else None


def _other(kind: str, item: int, position: int, solution: Arrangement, rng: Random) -> int | None:
    """Draw the second item of a pair, at a position that suits the kind."""
    n = solution.num_positions
    if kind == "same":
        return _partner_at(item, position, solution, rng)
    if kind == "differ":
        return _partner(item, solution, rng)
    near = {
        "left": (position + 1,),
        "right": (position - 1,),
        "beside": (position - 1, position + 1),
    }.get(kind)
    target = rng.choice(near) if near else int(rng.random() * n)
    return rng.choice(solution.items)[target] if 0 <= target < n else None


def _sides(kind: str, position: int, solution: Arrangement, rng: Random) -> tuple[int, int] | None:
    n = solution.num_positions
    if not 0 < position < n - 1:
        return None
    low = position - 1 if kind == "between" else rng.randrange(position)
    high = position + 1 if kind == "between" else rng.randrange(position + 1, n)
    first = rng.choice(solution.items)[low]
    second = rng.choice(solution.items)[high]
    return (first, second) if rng.random() < 0.5 else (second, first)


def _partner(item: int, solution: Arrangement, rng: Random) -> int:
    return _partner_at(item, int(rng.random() * solution.num_positions), solution, rng)


def _partner_at(item: int, position: int, solution: Arrangement, rng: Random) -> int:
    """Return the item of another attribute at a position."""
    own = item // solution.num_positions
    attribute = int(rng.random() * (len(solution.items) - 1))
    return solution.items[attribute + (attribute >= own)][position]
