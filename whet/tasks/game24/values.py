"""Exact numbers of the 24 game: a reduced (numerator, denominator) pair, read from and written to
text.

Pairs of small integers are several times faster than `fractions.Fraction`, and a trace or a grader
meets the same few again and again, so the operations remember their results.
"""

import re
from functools import lru_cache
from math import gcd

Value = tuple[int, int]

SYMBOLS = "+-*/"
NUMBER = r"-?[0-9]{1,9}(?:/[0-9]{1,9}|\.[0-9]{1,6})?"
"""How a value may be written: 12, -5, 8/3, 1.5. Only the ten ASCII digits count."""

_MEMORY = 1 << 16
_NUMBER = re.compile(NUMBER)


@lru_cache(_MEMORY)
def read(text: str) -> Value | None:
    """Read a written value; None where it is none, or is over zero.

    >>> read("-6/4"), read("1.5"), read("1/0")
    ((-3, 2), (3, 2), None)
    """
    if not _NUMBER.fullmatch(text):
        return None
    if "." in text:
        whole, _, digits = text.partition(".")
        return reduced(int(whole + digits), 10 ** len(digits))
    top, _, bottom = text.partition("/")
    return reduced(int(top), int(bottom or 1))


@lru_cache(_MEMORY)
def write(value: Value) -> str:
    """Write a value as the formats do: 12, -5, 8/3."""
    top, bottom = value
    return str(top) if bottom == 1 else f"{top}/{bottom}"


@lru_cache(_MEMORY)
def combine(left: Value, symbol: str, right: Value) -> Value | None:
    """Apply an operation exactly; None where it divides by zero."""
    (a, b) = left
    (c, d) = right
    match symbol:
        case "+":
            return reduced(a * d + b * c, b * d)
        case "-":
            return reduced(a * d - b * c, b * d)
        case "*":
            return reduced(a * c, b * d)
        case _:
            return reduced(a * d, b * c)


def reduced(top: int, bottom: int) -> Value | None:
    if bottom == 0:
        return None
    shared = gcd(top, bottom) if bottom > 0 else -gcd(top, bottom)
    return top // shared, bottom // shared
