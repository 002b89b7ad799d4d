"""The numbers on the table while a response is read: the path of states from the hand, and what is
wrong with a move.

The path holds one state a depth: four numbers, three, two, one. A state is None where the line that
led to it was wrong; nothing that rests on it is right until a roll back returns to a state that is
known.
"""

from functools import lru_cache

from whet.tasks.game24.reading import Left, Step
from whet.tasks.game24.values import Value, combine, write

State = tuple[Value, ...]

TARGET: Value = (24, 1)


class Board:
    """Play a response's steps and roll backs in turn. Every method returns what is wrong with the
    line, or ""."""

    def __init__(self, hand: tuple[int, ...], *, may_jump: bool) -> None:
        """With `may_jump` a step may take an earlier state of the path without a roll back line, as
        format v1 does."""
        self._hand = tuple(sorted(hand))
        self._may_jump = may_jump
        self._path: list[State | None] = [tuple((card, 1) for card in self._hand)]
        self._steps: list[str] = []
        self._taken: set[tuple[State, Value, str, Value]] = set()
        self.has_searched = False

    @property
    def depth(self) -> int:
        """Count the steps from the hand to here."""
        return len(self._path) - 1

    @property
    def is_won(self) -> bool:
        return self._path[-1] == (TARGET,)

    @property
    def chain(self) -> str:
        """Write the steps from the hand to here."""
        return "; ".join(self._steps)

    def step(self, step: Step) -> str:
        source = self.depth
        if self._may_jump and step.left is not None and 3 - len(step.left.values) < source:
            source = max(3 - len(step.left.values), 0)
            self.has_searched = True
        before = self._path[source]
        after = None if before is None else joined(before, step.a, step.symbol, step.b)
        fault = self._fault(step, before, after)
        is_true = combine(step.a, step.symbol, step.b) == step.c
        self._path[source + 1 :] = [after if is_true else None]
        self._steps[source:] = [f"{write(step.a)} {step.symbol} {write(step.b)} = {write(step.c)}"]
        return fault

    def roll_back(self, left: Left | None) -> str:
        self.has_searched = True
        if left is None:
            return "the numbers left cannot be read"
        target = 4 - len(left.values)
        if 0 <= target < self.depth and self._path[target] == left.values:
            del self._path[target + 1 :], self._steps[target:]
            return self._origin_fault(left)
        if self._path[-1] == left.values:
            return "rolls back to where it already is"
        keep = max(target, 1)
        self._path[keep:] = [None]
        del self._steps[keep:]
        return "rolls back to numbers that were not on this path"

    def _fault(self, step: Step, before: State | None, after: State | None) -> str:
        truth = combine(step.a, step.symbol, step.b)
        if truth != step.c:
            told = "undefined" if truth is None else write(truth)
            return f"false arithmetic: {write(step.a)} {step.symbol} {write(step.b)} is {told}, not {write(step.c)}"
        if before is None:
            return "rests on a wrong line"
        if after is None:
            return f"{write(step.a)} and {write(step.b)} are not both among {_listed(before)}"
        move = (before, step.a, step.symbol, step.b)
        if move in self._taken:
            return "repeats an earlier step from the same numbers"
        self._taken.add(move)
        if step.has_left and (step.left is None or step.left.values != after):
            return f"left should be {_listed(after)}"
        return self._origin_fault(step.left)

    def _origin_fault(self, left: Left | None) -> str:
        if left is None or left.cards is None or left.cards == self._hand:
            return ""
        return "the expressions left do not use the four numbers once each"


@lru_cache(1 << 16)
def joined(before: State, a: Value, symbol: str, b: Value) -> State | None:
    """Put the result of a step in place of its operands; None where they are not there."""
    result = combine(a, symbol, b)
    rest = list(before)
    if result is None or a not in rest:
        return None
    rest.remove(a)
    if b not in rest:
        return None
    rest.remove(b)
    return tuple(sorted([*rest, result]))


def _listed(state: State) -> str:
    return " ".join(write(value) for value in state)
