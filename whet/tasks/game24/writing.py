"""The formats a response is written in. Every format says the same moves in more or fewer words.

v0   three steps and nothing else                  13 - 1 = 12 v0l  three steps, each with the
numbers left       13 - 1 = 12, left: 12 8 6 v1   a search, values only, no roll back lines     (13)
- (1) = 12, left: 12, 8, 6 v2   v1 with roll back lines                       roll back, left: 13 8
6 1 v3   v2 with the expression of every computed one  (13) - (1) = 12, left: (13 - 1) = 12, 8, 6 v4
a search in the words of v0l, numbers rising  back, left: 1 6 8 13

v1, v2 and v3 (those of LLM4Game24) close with `reach 24! expression: ...`. The others need no
closing line: the chain of steps that led to `24` is the answer. Hands without a solution close with
`no solution` in every format.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from whet.tasks.game24.values import Value, combine, write

Format = Literal["v0", "v0l", "v1", "v2", "v3", "v4"]

NO_SOLUTION = "no solution"


class Move(NamedTuple):
    a: Value
    symbol: str
    b: Value


@dataclass(frozen=True, slots=True)
class _Item:
    value: Value
    origin: str
    is_card: bool


def written(
    numbers: Sequence[int], moves: Iterable[Move | None], format: Format, *, is_solved: bool
) -> str:
    """Write moves on the numbers, in the order these were given; None among the moves is a roll
    back."""
    path = [_listed([_Item((number, 1), str(number), True) for number in numbers], format)]
    lines = []
    for move in moves:
        if move is None:
            path.pop()
            lines.append(_back_line(path[-1], format))
        else:
            path.append(_listed(_after(path[-1], move), format))
            lines.append(_step_line(move, path[-1], format))
    lines.append(_closing_line(path[-1][0], format) if is_solved else NO_SOLUTION)
    return "\n".join(line for line in lines if line)


def _listed(items: Sequence[_Item], format: Format) -> tuple[_Item, ...]:
    return tuple(sorted(items, key=lambda item: item.value) if format == "v4" else items)


def _after(items: tuple[_Item, ...], move: Move) -> tuple[_Item, ...]:
    rest = list(items)
    a = rest.pop(next(place for place, item in enumerate(rest) if item.value == move.a))
    b = rest.pop(next(place for place, item in enumerate(rest) if item.value == move.b))
    return (_Item(_result(move), f"({a.origin} {move.symbol} {b.origin})", False), *rest)


def _result(move: Move) -> Value:
    value = combine(*move)
    assert value is not None, f"a written move divides by zero: {move}"
    return value


def _step_line(move: Move, items: tuple[_Item, ...], format: Format) -> str:
    a = write(move.a)
    b = write(move.b)
    c = write(_result(move))
    if format == "v0":
        return f"{a} {move.symbol} {b} = {c}"
    if format in ("v0l", "v4"):
        return f"{a} {move.symbol} {b} = {c}, left: {_left(items, format)}"
    return f"({a}) {move.symbol} ({b}) = {c}, left: {_left(items, format)}"


def _back_line(items: tuple[_Item, ...], format: Format) -> str:
    if format == "v1":
        return ""
    return f"{'back' if format == 'v4' else 'roll back'}, left: {_left(items, format)}"


def _closing_line(item: _Item, format: Format) -> str:
    return f"reach 24! expression: {item.origin}" if format in ("v1", "v2", "v3") else ""


def _left(items: tuple[_Item, ...], format: Format) -> str:
    if format in ("v0l", "v4") or len(items) == 4:
        return " ".join(write(item.value) for item in items)
    if format == "v3":
        return ", ".join(
            item.origin if item.is_card else f"{item.origin} = {write(item.value)}"
            for item in items
        )
    return ", ".join(write(item.value) for item in items)
