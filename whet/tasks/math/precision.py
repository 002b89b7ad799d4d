"""Whether two expressions have the same value at a point, and how many digits show it."""

import math

from whet.tasks.math import tree
from whet.tasks.math.tree import Node
from whet.tasks.math.value_at_point import (
    CONTEXT,
    DIGITS,
    SPARE_DIGITS,
    NoValueError,
    Number,
    Substitution,
    value,
)

MIN_SPREAD = 24
"""Terms of a sum closer than this, as a power of two, need no more digits."""
SHORT_NUMBER = 16
MIN_WRITTEN = 64
MAX_WRITTEN = 12_000
"""Numbers longer than `SHORT_NUMBER` bits need as many more digits as they have together, if those
are more than a few: sqrt(10^60 + 1) and 10^30 differ in the 61st."""
MAX_DIGITS = 6000
"""Where more would be needed to tell two values apart, they are not compared."""
MORE_DIGITS = 200
"""How many digits are added to see whether a difference shrinks."""
NOISE_SHARE = 0.8
"""Noise has at least this share of the digits added; the rest is luck."""
DECIMAL = math.log10(2)
_HYPERBOLIC = ("sinh", "cosh", "tanh")


def is_equal_at(a: Node, b: Node, point: Substitution) -> bool:
    """Compare two values relative to their size.

    A small difference may still be the noise of terms that cancel, as in sin(pi): noise shrinks
    with the precision, the difference of e^-200 and 0 does not.
    """
    num_digits = count_digits(point, a, b)
    difference, size = _difference(a, b, point, num_digits)
    if not difference:
        return True
    num_bits = CONTEXT.mag(max(size, 1)) - CONTEXT.mag(difference)
    if num_bits * DECIMAL < num_digits / 4:
        return False
    finer, _ = _difference(a, b, point, num_digits + MORE_DIGITS)
    shrinks_by = (CONTEXT.mag(difference) - CONTEXT.mag(finer)) * DECIMAL if finer else math.inf
    return bool(shrinks_by > NOISE_SHARE * MORE_DIGITS * num_bits * DECIMAL / num_digits)


def _difference(a: Node, b: Node, point: Substitution, num_digits: int) -> tuple[Number, Number]:
    """Give how far two values are apart, 0 if only in their last digits, and the larger size."""
    with CONTEXT.workdps(num_digits):
        left, right = value(a, point), value(b, point)
        size = max(abs(left), abs(right))
        difference = abs(left - right)
        return (CONTEXT.mpf(0) if difference <= size * _limit() else difference), size


def is_close(left: Number, right: Number, limit: Number | None = None) -> bool:
    return bool(abs(left - right) <= max(abs(left), abs(right)) * (limit or _limit()))


def _limit() -> Number:
    """Give the size of what the last digits of the precision in use can show."""
    return CONTEXT.mpf(10) ** (SPARE_DIGITS - CONTEXT.dps)


def count_digits(point: Substitution, *nodes: Node) -> int:
    """Count the digits that show the smallest term of each sum, number and argument."""
    num_bits = 0
    long_numbers = set()
    for part in (part for node in nodes for part in tree.walk(node)):
        if part.kind == "number" and _length(part) > SHORT_NUMBER:
            long_numbers.add(part)
        sizes = []
        for child in part.args:
            try:
                size = abs(value(child, point))
            except NoValueError:
                continue
            if size:
                sizes.append(int(CONTEXT.mag(size)))
        if part.kind == "add" and sizes:
            num_bits = max(num_bits, max(sizes) - min(sizes))
        elif part.kind in ("pow", "call") and sizes:
            num_bits = max(num_bits, -2 * min(sizes))
            if part.name in _HYPERBOLIC:  # e^x + e^-x
                num_bits = max(num_bits, 3 << min(max(*sizes, 0), 20))
    num_written = sum(map(_length, long_numbers))
    num_bits += min(num_written, MAX_WRITTEN) if num_written > MIN_WRITTEN else 0
    if num_bits <= MIN_SPREAD:
        return DIGITS
    num_digits = DIGITS + int(num_bits * 0.302) + 1
    if num_digits > MAX_DIGITS:
        raise NoValueError("terms too far apart")
    return num_digits


def _length(number: Node) -> int:
    top, bottom = number.value.as_integer_ratio()
    return max(abs(top).bit_length(), bottom.bit_length())


def is_real(node: Node, point: Substitution) -> bool:
    parts = (part for part in tree.walk(node) if part.kind in ("pow", "call"))
    return all(CONTEXT.im(value(part, point)) == 0 for part in parts)
