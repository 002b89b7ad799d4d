"""A walk over the tokens of one answer: where it stands, how deep it is. The base of the reader's
three layers."""

from collections.abc import Iterator
from contextlib import contextmanager

from whet.tasks.math.lexer import Token
from whet.tasks.math.tree import Node, NotMathError

MAX_DEPTH = 40

OPENING = {
    ("sign", "("),
    ("sign", "["),
    ("sign", "{"),
    ("sign", "|"),
    ("command", "{"),
    ("command", "|"),
}
OPENING_COMMANDS = {"lvert", "lfloor", "lceil", "langle", "lbrace", "lbrack", "vert"}
SIGNS = {("sign", "+"): 1, ("sign", "-"): -1}
OVER = {("sign", "/"), ("command", "div")}


class Cursor:
    """`units` gathers the words that stood behind numbers. The layers above say how each thing is
    read.

    `is_in_chain` is set behind the first sign of a relation, `is_before_condition` before the bar
    of a set.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.place = 0
        self.num_bars = 0
        self.units: list[str] = []
        self.units_end = -1
        self.is_in_chain = False
        self.is_before_condition = False
        self._depth = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self.place + ahead
        return self.tokens[place][:2] if place < len(self.tokens) else ("end", "")

    def take(self) -> Token:
        if self.place >= len(self.tokens):
            raise NotMathError("something is missing at the end")
        self.place += 1
        return self.tokens[self.place - 1]

    def expect(self, *wanted: tuple[str, str]) -> None:
        if self.peek() not in wanted:
            raise NotMathError(f"{wanted[0][1]} expected, not {self.peek()[1]!r}")
        self.place += 1

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Go one level down; too many levels are refused."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotMathError("nested too deeply")
        yield
        self._depth -= 1

    def bracketed(self) -> Node:
        """Read a bracket, set or matrix."""
        raise NotImplementedError

    def expression(self) -> Node:
        """Read a sum."""
        raise NotImplementedError

    def term(self) -> Node:
        """Read a product."""
        raise NotImplementedError

    def factor(self) -> Node:
        """Read a factor of a product, with its powers."""
        raise NotImplementedError

    def argument(self, *, is_digit: bool = False) -> Node:
        """Read what a command applies to: a brace group or one thing; `\\frac12` takes single
        digits."""
        raise NotImplementedError

    def starts_factor(self) -> bool:
        """Whether another factor follows without a sign between."""
        raise NotImplementedError
