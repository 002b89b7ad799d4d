"""Reasoning traces: the moves of a solution, or of a randomised depth-first search pruned to a
number of steps.

A pruned search shows some of the dead ends that a search in random order meets before it finds 24,
each followed by a roll back. Every dead end is truly dead, no numbers are tried twice, and a trace
takes about a tenth of a millisecond, because a state remembers its moves and which of them can
still reach 24.

In v4 numbers stand in rising order and a sum or product is written in one way, so that the same
state always looks the same; moves with a whole result of 0 or more are tried first, and below a
dead end only those are shown.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from random import Random
from typing import Literal, NamedTuple

from whet.tasks.game24.board import TARGET, State, joined
from whet.tasks.game24.hands import Hand, hand_of, is_solvable, plays
from whet.tasks.game24.solver import OPERATIONS, decode
from whet.tasks.game24.values import Value, combine
from whet.tasks.game24.writing import Format, Move, written

Length = Literal["short", "medium", "long"]

BUDGETS: dict[Length, range] = {
    "short": range(6, 10),
    "medium": range(10, 14),
    "long": range(14, 18),
}
"""Steps a search may show. LLM4Game24 cut its v3 traces at 300 and 550 tokens, into nearly equal
thirds of these."""
SHORTEST, WIDEST = 6, 100


def trace(
    numbers: Sequence[int], rng: Random, *, format: Format, budget: int = 9, depth: int = 3
) -> str:
    """Write one right response to the numbers, in their order.

    v0 and v0l give a random solution. The other formats search: at most `budget` steps are shown,
    never fewer than the solution needs, and dead ends are followed `depth` steps deep: at 2, two
    numbers that cannot make 24 are left at once, without their six results.
    """
    hand = hand_of(numbers)
    if format in ("v0", "v0l"):
        moves: list[Move | None] = list(_solution(hand, rng)) if is_solvable(hand) else []
    else:
        is_tidy = format == "v4"
        moves = list(
            _flattened(_search(hand, rng, budget, depth, is_tidy=is_tidy), rng, is_tidy=is_tidy)
        )
    return written(numbers, moves, format, is_solved=is_solvable(hand))


def _solution(hand: Hand, rng: Random) -> Iterator[Move]:
    """Draw a solution, each different one equally likely, then one of the plays that write it."""
    values: list[Value] = [(card, 1) for card in hand]
    for move_number in rng.choice(rng.choice(plays(hand))):
        first, second, symbol = decode(move_number, len(values))
        a = values[first]
        b = values[second]
        result = combine(a, symbol, b)
        assert result is not None, "a winning play never divides by zero"
        values = [result] + [
            value for place, value in enumerate(values) if place not in (first, second)
        ]
        yield _turned(Move(a, symbol, b), rng)


@dataclass(slots=True, eq=False)
class _Node:
    state: State
    depth: int
    moves: tuple[Move, ...] = ()
    is_live: bool = False
    children: "list[_Node]" = field(default_factory=list)


def _search(hand: Hand, rng: Random, budget: int, depth: int, *, is_tidy: bool) -> _Node:
    """Grow the tree of a pruned search: the way to 24 if there is one, and dead ends met before
    it."""
    root = node = _Node(tuple((card, 1) for card in hand), 0)
    frontier: list[tuple[_Node, _Branch]] = []
    way: list[tuple[_Node, _Node]] = []
    while len(node.state) > 1:
        live = None
        for branch in _shuffled(node.state, rng, is_tidy=is_tidy):
            if branch.is_live:
                live = _Node(branch.state, node.depth + 1, branch.moves, True)
                break
            if node.depth < depth:
                frontier.append((node, branch))
        if live is None:
            break
        way.append((node, live))
        node = live
    _grow(frontier, rng, budget - len(way), depth, plain_branches if is_tidy else branches)
    for parent, child in way:
        parent.children.append(child)
    return root


def _grow(
    frontier: "list[tuple[_Node, _Branch]]",
    rng: Random,
    num_nodes: int,
    depth: int,
    tries_of: "Callable[[State], Sequence[_Branch]]",
) -> None:
    """Hang random dead ends into the tree, each below a node that is already in it."""
    met: set[State] = set()
    while num_nodes > 0 and frontier:
        place = rng.randrange(len(frontier))
        frontier[place], frontier[-1] = frontier[-1], frontier[place]
        parent, branch = frontier.pop()
        if branch.state in met:
            continue
        node = _Node(branch.state, parent.depth + 1, branch.moves)
        parent.children.append(node)
        num_nodes -= 1
        if len(branch.state) > 1:
            met.add(branch.state)
            if node.depth < depth:
                frontier += [(node, next_branch) for next_branch in tries_of(branch.state)]


def _flattened(node: _Node, rng: Random, *, is_tidy: bool) -> Iterator[Move | None]:
    """List the moves below a node in the order of the search, None for each roll back."""
    for child in node.children:
        yield child.moves[0] if is_tidy else _turned(rng.choice(child.moves), rng)
        yield from _flattened(child, rng, is_tidy=is_tidy)
        if not child.is_live:
            yield None


def _turned(move: Move, rng: Random) -> Move:
    """Swap the operands of + and * half of the time."""
    return Move(move.b, move.symbol, move.a) if move.symbol in "+*" and rng.random() < 0.5 else move


class _Branch(NamedTuple):
    """A state one step ahead, the moves that lead to it, and whether 24 is still in reach there."""

    moves: tuple[Move, ...]
    state: State
    is_live: bool


def _shuffled(state: State, rng: Random, *, is_tidy: bool) -> list[_Branch]:
    found = list(branches(state))
    rng.shuffle(found)
    return sorted(found, key=lambda branch: not _is_plain(branch)) if is_tidy else found


@lru_cache(1 << 16)
def branches(state: State) -> tuple[_Branch, ...]:
    """List the states that one move leads to."""
    found: dict[State, list[Move]] = {}
    for a, b in combinations(state, 2):
        for symbol, is_swapped in OPERATIONS:
            move = Move(b, symbol, a) if is_swapped else Move(a, symbol, b)
            after = joined(state, *move)
            if after is not None:
                found.setdefault(after, []).append(move)
    return tuple(_Branch(tuple(moves), after, _is_live(after)) for after, moves in found.items())


@lru_cache(1 << 16)
def plain_branches(state: State) -> tuple[_Branch, ...]:
    """List the branches of a state that lead to a whole result of 0 or more."""
    return tuple(filter(_is_plain, branches(state)))


def _is_plain(branch: _Branch) -> bool:
    top, bottom = combine(*branch.moves[0]) or (-1, 1)
    return bottom == 1 and top >= 0


@lru_cache(1 << 17)
def _is_live(state: State) -> bool:
    if len(state) == 1:
        return state[0] == TARGET
    if len(state) == 2:
        (a, b), (c, d) = state
        ad = a * d
        bc = b * c
        goal = TARGET[0] * b * d
        quotients = (TARGET[0] * bc or None, TARGET[0] * ad or None)
        return (
            goal in (ad + bc, ad - bc, bc - ad, a * c) or quotients[0] == ad or quotients[1] == bc
        )
    return any(branch.is_live for branch in branches(state))
