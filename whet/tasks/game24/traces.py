"""Gold responses: the moves of a solution, or of a randomised depth-first search pruned to a number
of steps, in one of six formats.

A pruned search shows some of the dead ends that a search in random order meets before it finds 24,
each followed by a roll back. Every dead end is truly dead, and no state is searched twice. A trace
takes about a tenth of a millisecond, because the moves of a state are cached, with whether each can
still reach 24.

    v0   three steps and nothing else                  13 - 1 = 12
    v0l  three steps, each with the numbers left       13 - 1 = 12, left: 12 8 6
    v1   a search, values only, no roll back lines     (13) - (1) = 12, left: 12, 8, 6
    v2   v1 with roll back lines                       roll back, left: 13 8 6 1
    v3   v2 with the expression of computed numbers    (13) - (1) = 12, left: (13 - 1) = 12, 8, 6
    v4   a search in the words of v0l, numbers rising  back, left: 1 6 8 13

v1, v2 and v3 (from LLM4Game24) end with `reach 24! expression: ...`. The others need no closing
line: the chain of steps to `24` is the answer. Hands without a solution end with `no solution` in
every format. In v4, a sum or product has only one form, so that equal states look equal. Moves with
a whole result of 0 or more are tried first, and below a dead end only those are shown.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from random import Random
from typing import Literal, NamedTuple

from whet.tasks.expressions import TARGET, State, Value, combine, join, write_value
from whet.tasks.game24.hands import OPERATIONS, Hand, Plays, decode_move

TraceFormat = Literal["v0", "v0l", "v1", "v2", "v3", "v4"]

NO_SOLUTION = "no solution"
Length = Literal["short", "medium", "long"]

BUDGETS: dict[Length, range] = {
    "short": range(6, 10),
    "medium": range(10, 14),
    "long": range(14, 18),
}
"""Numbers of steps a search may show, close to where LLM4Game24 cut its v3 traces: 300 and 550
tokens."""
SHORTEST = 6
WIDEST = 100


class Move(NamedTuple):
    """One step on the numbers of a state."""

    a: Value
    symbol: str
    b: Value


class _Branch(NamedTuple):
    """A state one step ahead, the moves that lead to it, and whether 24 is still within reach."""

    moves: tuple[Move, ...]
    state: State
    is_live: bool


class _Node(NamedTuple):
    """A state in a search tree, and the states tried from it."""

    branch: _Branch
    children: "list[_Node]"


class _Item(NamedTuple):
    value: Value
    origin: str
    is_card: bool


def draw_budget(length: Length | Literal["mixed", "wide"], rng: Random) -> int:
    """Draw how many steps a search may show."""
    if length == "wide":
        return int(SHORTEST * (WIDEST / SHORTEST) ** rng.random())
    spans = [span for name, span in BUDGETS.items() if length in (name, "mixed")]
    return rng.choice([steps for span in spans for steps in span])


def trace(
    numbers: Sequence[int],
    plays: Plays,
    rng: Random,
    *,
    format: TraceFormat,
    budget: int = 9,
    depth: int = 3,
) -> str:
    """Write one right response for the numbers in their order, given their winning plays.

    v0 and v0l write a random solution. The other formats search and show at most `budget` steps,
    but never fewer than the solution needs. Dead ends are followed `depth` steps deep: at 2, two
    numbers that cannot make 24 are abandoned without trying their six results.
    """
    hand = tuple(sorted(numbers))
    if format in ("v0", "v0l"):
        moves: list[Move | None] = list(_solution(hand, plays, rng)) if plays else []
    else:
        is_tidy = format == "v4"
        tree = _search(hand, rng, budget, depth, is_tidy=is_tidy)
        moves = list(_flatten(tree, rng, is_tidy=is_tidy))
    return write_moves(numbers, moves, format, is_solved=bool(plays))


def _solution(hand: Hand, plays: Plays, rng: Random) -> Iterator[Move]:
    """Draw a solution, each equally likely, then one of the plays that produce it."""
    values: list[Value] = [(card, 1) for card in hand]
    for move_number in rng.choice(rng.choice(plays)):
        first, second, symbol = decode_move(move_number, len(values))
        move = Move(values[first], symbol, values[second])
        rest = [value for i, value in enumerate(values) if i not in (first, second)]
        values = [_result(move), *rest]
        yield _swap_maybe(move, rng)


def _search(hand: Hand, rng: Random, budget: int, depth: int, *, is_tidy: bool) -> _Node:
    """Build the tree of a pruned search: the path to 24, if any, and dead ends found before it."""
    path = [_Node(_Branch((), tuple((card, 1) for card in hand), True), [])]
    frontier: list[tuple[_Node, _Branch]] = []
    while len(path[-1].branch.state) > 1:
        tried = _shuffle_branches(path[-1].branch.state, rng, is_tidy=is_tidy)
        live = next((k for k, branch in enumerate(tried) if branch.is_live), len(tried))
        if len(path) <= depth:
            frontier += [(path[-1], branch) for branch in tried[:live]]
        if live == len(tried):
            break
        path.append(_Node(tried[live], []))
    _grow(frontier, rng, budget - len(path) + 1, 4 - depth, is_tidy=is_tidy)
    for parent, child in pairwise(path):
        parent.children.append(child)
    return path[0]


def _grow(
    frontier: list[tuple[_Node, _Branch]], rng: Random, count: int, fewest: int, *, is_tidy: bool
) -> None:
    """Add random dead ends to the tree, each below an existing node.

    States of `fewest` numbers are abandoned at once.
    """
    met: set[State] = set()
    while count > 0 and frontier:
        index = rng.randrange(len(frontier))
        parent, branch = frontier[index]
        frontier[index] = frontier[-1]
        frontier.pop()
        if branch.state in met:
            continue
        node = _Node(branch, [])
        parent.children.append(node)
        count -= 1
        if len(branch.state) > 1:
            met.add(branch.state)
        if len(branch.state) > fewest:
            tries = plain_branches(branch.state) if is_tidy else branches(branch.state)
            frontier += [(node, next_branch) for next_branch in tries]


def _flatten(node: _Node, rng: Random, *, is_tidy: bool) -> Iterator[Move | None]:
    """Yield the moves below a node in search order, with None for each roll back."""
    for child in node.children:
        moves = child.branch.moves
        yield moves[0] if is_tidy else _swap_maybe(rng.choice(moves), rng)
        yield from _flatten(child, rng, is_tidy=is_tidy)
        if not child.branch.is_live:
            yield None


def _swap_maybe(move: Move, rng: Random) -> Move:
    """Swap the operands of + and * half of the time."""
    if move.symbol in "+*" and rng.random() < 0.5:
        return Move(move.b, move.symbol, move.a)
    return move


def _shuffle_branches(state: State, rng: Random, *, is_tidy: bool) -> list[_Branch]:
    shuffled = list(branches(state))
    rng.shuffle(shuffled)
    return sorted(shuffled, key=lambda branch: not _is_plain(branch)) if is_tidy else shuffled


@lru_cache(1 << 16)
def branches(state: State) -> tuple[_Branch, ...]:
    """List the states that one move leads to."""
    moves_to: dict[State, list[Move]] = {}
    for a, b in combinations(state, 2):
        for symbol, is_swapped in OPERATIONS:
            move = Move(b, symbol, a) if is_swapped else Move(a, symbol, b)
            after = join(state, *move)
            if after is not None:
                moves_to.setdefault(after, []).append(move)
    return tuple(_Branch(tuple(moves), after, _is_live(after)) for after, moves in moves_to.items())


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
        is_quotient = quotients[0] == ad or quotients[1] == bc
        return is_quotient or goal in (ad + bc, ad - bc, bc - ad, a * c)
    return any(branch.is_live for branch in branches(state))


def write_moves(
    numbers: Sequence[int], moves: Iterable[Move | None], format: TraceFormat, *, is_solved: bool
) -> str:
    """Write moves on the numbers in their order; None is a roll back."""
    path = [_order([_Item((number, 1), str(number), True) for number in numbers], format)]
    lines = []
    for move in moves:
        if move is not None:
            path.append(_order(_after(path[-1], move), format))
            lines.append(_step_line(move, path[-1], format))
            continue
        path.pop()
        if format != "v1":
            word = "back" if format == "v4" else "roll back"
            lines.append(f"{word}, left: {_list_rest(path[-1], format)}")
    if not is_solved:
        lines.append(NO_SOLUTION)
    elif format in ("v1", "v2", "v3"):
        lines.append(f"reach 24! expression: {path[-1][0].origin}")
    return "\n".join(lines)


def _order(items: Sequence[_Item], format: TraceFormat) -> tuple[_Item, ...]:
    return tuple(sorted(items, key=lambda item: item.value) if format == "v4" else items)


def _after(items: tuple[_Item, ...], move: Move) -> tuple[_Item, ...]:
    rest = list(items)
    a = next(item for item in rest if item.value == move.a)
    rest.remove(a)
    b = next(item for item in rest if item.value == move.b)
    rest.remove(b)
    return (_Item(_result(move), f"({a.origin} {move.symbol} {b.origin})", False), *rest)


def _result(move: Move) -> Value:
    value = combine(*move)
    assert value is not None, f"a written move divides by zero: {move}"
    return value


def _step_line(move: Move, items: tuple[_Item, ...], format: TraceFormat) -> str:
    a = write_value(move.a)
    b = write_value(move.b)
    if format in ("v1", "v2", "v3"):
        a = f"({a})"
        b = f"({b})"
    equation = f"{a} {move.symbol} {b} = {write_value(_result(move))}"
    return equation if format == "v0" else f"{equation}, left: {_list_rest(items, format)}"


def _list_rest(items: tuple[_Item, ...], format: TraceFormat) -> str:
    values = [write_value(item.value) for item in items]
    if format in ("v0l", "v4") or len(items) == 4:
        return " ".join(values)
    if format == "v3":
        origins = ["" if item.is_card else f"{item.origin} = " for item in items]
        values = [origin + value for origin, value in zip(origins, values, strict=True)]
    return ", ".join(values)
