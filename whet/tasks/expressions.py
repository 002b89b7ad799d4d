"""Exact values and expressions of whole numbers, for the 24 game, countdown, arithmetic and graphs.

A value is a reduced (numerator, denominator) pair. Pairs of small integers are several times faster
than `fractions.Fraction`, and traces and graders use the same few values repeatedly, so the
operations cache their results. An expression has whole numbers, + - * /, brackets and unary minus.
A bounded recursive-descent parser reads it, without `eval`.
"""

import re
from functools import lru_cache, partial
from itertools import permutations
from math import gcd
from typing import NamedTuple

Value = tuple[int, int]
State = tuple[Value, ...]

TARGET: Value = (24, 1)
SYMBOLS = "+-*/"
NUMBER = r"-?[0-9]{1,9}(?:/[0-9]{1,9}|\.[0-9]{1,6})?"
"""How a value may be written: 12, -5, 8/3, 1.5. Only the ten ASCII digits count."""

_CACHE_SIZE = 1 << 16
_MAX_CHARS = 256
_MAX_DEPTH = 32
_NUMBER = re.compile(NUMBER)
_PIECE = re.compile(r"[0-9]{1,9}|[-+*/()]")
_EXPRESSION = re.compile(r"(?:[0-9]{1,9}(?![0-9])|[-+*/() ])+")
_FRACTION = re.compile(r"\\[dt]?frac\s?\{([^{}]{1,60})\}\s?\{([^{}]{1,60})\}")
_TIMES = re.compile(r"\\(?:times|cdot)(?![a-z])")
_PRODUCT = re.compile(r"(?<=[0-9)])\s?(?=\()|(?<=\))\s?(?=[0-9])")
"""A product without a sign: `5(5 - 1/5)`."""
_BRACKETS = str.maketrans("[]", "()")
_THIN_SPACE = re.compile(r"(?<![0-9])\\[,;:! ]|\\[,;:! ](?![0-9])")
SIGNS = str.maketrans(
    dict.fromkeys("×·⋅∙∗✕", "*") | dict.fromkeys("−–", "-") | {"÷": "/", "∕": "/"}
)
"""Other signs that models write for * - /."""


@lru_cache(_CACHE_SIZE)
def read_value(text: str) -> Value | None:
    """Read a written value; None if it is not a value, or divides by zero.

    >>> read_value("-6/4"), read_value("1.5"), read_value("1/0")
    ((-3, 2), (3, 2), None)
    """
    if not _NUMBER.fullmatch(text):
        return None
    if "." in text:
        whole, _, digits = text.partition(".")
        return reduce(int(whole + digits), 10 ** len(digits))
    top, _, bottom = text.partition("/")
    return reduce(int(top), int(bottom or 1))


@lru_cache(_CACHE_SIZE)
def write_value(value: Value) -> str:
    """Write a value in the form of the trace formats: 12, -5, 8/3."""
    top, bottom = value
    return str(top) if bottom == 1 else f"{top}/{bottom}"


@lru_cache(_CACHE_SIZE)
def combine(left: Value | None, symbol: str, right: Value | None) -> Value | None:
    """Apply an operation exactly; None if it, or an operand's own operation, divides by zero."""
    if left is None or right is None:
        return None
    a, b = left
    c, d = right
    if symbol == "*":
        return reduce(a * c, b * d)
    if symbol == "/":
        return reduce(a * d, b * c)
    return reduce(a * d + b * c if symbol == "+" else a * d - b * c, b * d)


def reduce(top: int, bottom: int) -> Value | None:
    """Reduce a fraction; None if its denominator is zero."""
    if bottom == 0:
        return None
    shared = gcd(top, bottom) if bottom > 0 else -gcd(top, bottom)
    return top // shared, bottom // shared


@lru_cache(_CACHE_SIZE)
def join(before: State, a: Value, symbol: str, b: Value) -> State | None:
    """Replace the operands of a step with its result; None if they are missing."""
    result = combine(a, symbol, b)
    rest = list(before)
    if result is None or a not in rest:
        return None
    rest.remove(a)
    if b not in rest:
        return None
    rest.remove(b)
    return tuple(sorted([*rest, result]))


@lru_cache(_CACHE_SIZE)
def can_reach(state: State) -> bool:
    """Whether up to four numbers can be combined to 24 alone."""
    if len(state) == 1:
        return state == (TARGET,)
    moves = ((a, symbol, b) for a, b in permutations(state, 2) for symbol in SYMBOLS)
    states = {after for move in moves if (after := join(state, *move)) is not None}
    return any(map(can_reach, states))


class Expression(NamedTuple):
    """The value (None if it divides by zero) and the whole numbers in it, in ascending order."""

    value: Value | None
    leaves: tuple[int, ...]


def parse_expression(text: str) -> Expression | None:
    """Parse a whole text; None if it is not an expression, or longer or deeper than any honest one.

    >>> parse_expression("8 / (3 - 8/3)")
    Expression(value=(24, 1), leaves=(3, 3, 8, 8))
    """
    if len(text) > _MAX_CHARS or not _EXPRESSION.fullmatch(text):
        return None
    pieces = _PIECE.findall(text)[::-1]
    leaves: list[int] = []

    def take() -> str:
        return pieces.pop() if pieces else ""

    def read_operations(symbols: str, depth: int) -> Value | None:
        """Read a sum of products, or a product of atoms."""
        read_operand = partial(read_operations, "*/") if symbols == "+-" else read_atom
        value = read_operand(depth)
        while pieces and pieces[-1] in symbols:
            value = combine(value, take(), read_operand(depth))
        return value

    def read_atom(depth: int) -> Value | None:
        piece = take()
        if depth > _MAX_DEPTH:
            raise ValueError("too deep")
        if piece == "-":
            return combine((-1, 1), "*", read_atom(depth + 1))
        if piece != "(":
            leaves.append(int(piece))  # a ValueError if it is not a number
            return leaves[-1], 1
        value = read_operations("+-", depth + 1)
        if take() != ")":
            raise ValueError("not closed")
        return value

    try:
        value = read_operations("+-", 0)
    except ValueError:
        return None
    return None if pieces else Expression(value, tuple(sorted(leaves)))


def write_plainly(text: str) -> str:
    r"""Write LaTeX, square brackets and products without a sign as plain expressions.

    >>> write_plainly("[5(3 - 1)]"), write_plainly(r"5 \times \frac{6}{7}")
    ('(5*(3 - 1))', '5 * ((6)/(7))')
    """
    if "\\" in text:
        text = text.replace("\\left", "").replace("\\right", "").replace("\\div", "/")
        text = _PRODUCT.sub("*", _THIN_SPACE.sub("", text))  # `5\frac{1}{5}` is not a product
        for _ in range(3):
            text = _FRACTION.sub(r"((\1)/(\2))", text)
        return _TIMES.sub("*", text)
    return _PRODUCT.sub("*", text.translate(_BRACKETS))


def read_chain(text: str, target: int = TARGET[0]) -> Expression | None:
    """Read an expression, alone or in a chain of equal ones, of which the first counts.

    >>> read_chain("6 * (13 - 9) = 6 * 4 = 24").leaves
    (6, 9, 13)
    """
    parts = [part.strip() for part in text.split("=")]
    if parts[0] == str(target):
        parts = [*parts[1:], parts[0]]
    first, *others = map(parse_expression, parts)
    are_equal = all(other is not None and other.value == (target, 1) for other in others)
    return first if are_equal else None
