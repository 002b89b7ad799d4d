"""Read an arithmetic expression a model wrote: own tokenizer and recursive descent, exact, bounded,
never `eval`.

Whole numbers, + - * /, brackets and unary minus; nothing else is an expression.
"""

import re
from dataclasses import dataclass

from whet.tasks.game24.values import Value, combine

MAX_CHARS = 256
MAX_DEPTH = 32

_PIECE = re.compile(r"[0-9]{1,9}|[-+*/()]")
_WRITTEN = re.compile(r"(?:[0-9]{1,9}(?![0-9])|[-+*/() ])+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """What an expression comes to (None where it divides by zero) and the whole numbers in it, in
    rising order."""

    value: Value | None
    leaves: tuple[int, ...]


def parse(text: str) -> Expression | None:
    """Parse a whole text; None where it is not an expression, or longer or deeper than any honest
    one.

    >>> parse("8 / (3 - 8/3)")
    Expression(value=(24, 1), leaves=(3, 3, 8, 8))
    """
    if len(text) > MAX_CHARS or not _WRITTEN.fullmatch(text):
        return None
    reader = _Reader(_PIECE.findall(text))
    try:
        value = reader.sum(0)
    except _SyntaxError:
        return None
    if not reader.is_done:
        return None
    return Expression(value=value, leaves=tuple(sorted(reader.leaves)))


class _SyntaxError(Exception):
    """Raised and caught in this file only."""


class _Reader:
    def __init__(self, pieces: list[str]) -> None:
        self._pieces = [*pieces, ""]
        self._place = 0
        self.leaves: list[int] = []

    @property
    def is_done(self) -> bool:
        return self._pieces[self._place] == ""

    def sum(self, depth: int) -> Value | None:
        value = self._product(depth)
        while self._pieces[self._place] in ("+", "-"):
            symbol = self._next()
            value = _joined(value, symbol, self._product(depth))
        return value

    def _product(self, depth: int) -> Value | None:
        value = self._atom(depth)
        while self._pieces[self._place] in ("*", "/"):
            symbol = self._next()
            value = _joined(value, symbol, self._atom(depth))
        return value

    def _atom(self, depth: int) -> Value | None:
        piece = self._next()
        if depth > MAX_DEPTH:
            raise _SyntaxError
        if piece == "(":
            value = self.sum(depth + 1)
            if self._next() != ")":
                raise _SyntaxError
            return value
        if piece == "-":
            return _joined((-1, 1), "*", self._atom(depth + 1))
        if not piece.isdigit():
            raise _SyntaxError
        self.leaves.append(int(piece))
        return int(piece), 1

    def _next(self) -> str:
        piece = self._pieces[self._place]
        self._place = min(self._place + 1, len(self._pieces) - 1)
        return piece


def _joined(left: Value | None, symbol: str, right: Value | None) -> Value | None:
    return None if left is None or right is None else combine(left, symbol, right)
