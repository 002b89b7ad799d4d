"""Evaluate an expression at a point, and tell whether two have the same value there.

At a numbered point unknowns take random positive values, the same for the same name; at those in
`STEPS` unknowns such as n are whole numbers. Other points give each unknown its value. Nothing
grows: powers, factorials and arguments beyond the limits have no value.
"""

import functools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import mpmath
from mpmath import mp

from whet.rng import derive
from whet.tasks.math import tree
from whet.tasks.math.tree import Node

POINT_SCALES = (1, 7, 30, 1, 7, -1, 2, 1)
"""How far from zero the unknowns are at each point: large so that floors differ, small for narrow
domains."""
STEPS = range(100, 161)
"""The points for expressions that jump; their number is a prime."""
WHOLE_NAMES = frozenset("jklmnKLMN")
"""Unknowns that are whole numbers where there are jumps."""
MAX_LOG2 = 200_000.0
"""Values above two to this power, or below its inverse, are not computed."""
MAX_FACTORIAL = 5000
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

CONTEXT = mp.clone()
DIGITS = 50
CONTEXT.dps = DIGITS
TOLERANCE = CONTEXT.mpf(10) ** -38
SPARE_DIGITS = 12
"""How many of the last digits may be the noise of rounding."""
_KNOWN = {"π": CONTEXT.pi, "e": CONTEXT.e, "i": CONTEXT.mpc(0, 1)}
Number: TypeAlias = mpmath.mpf
"""A real or complex number of mpmath, which has no type annotations."""
Substitution: TypeAlias = int | tuple[tuple[str, Fraction], ...]
"""The number of a point, or the value of each unknown by name."""


class NoValueError(Exception):
    """The expression has no value that can be computed here."""


def value(node: Node, point: Substitution) -> Number:
    """Evaluate with the unknowns at their values of this point, at the precision in use."""
    return _value(node, point, CONTEXT.dps)


@functools.lru_cache(1 << 14)
def _value(node: Node, point: Substitution, num_digits: int) -> Number:
    try:
        number = _evaluate(node, point)
    except (ArithmeticError, ValueError, TypeError, mpmath.libmp.NoConvergence) as error:
        raise NoValueError(str(error)) from error
    if not CONTEXT.isfinite(number):
        raise NoValueError("not finite")
    return number


def _evaluate(node: Node, point: Substitution) -> Number:
    if node.kind == "number":
        return CONTEXT.mpf(node.value.numerator) / node.value.denominator
    if node.kind == "symbol":
        if node.name in ("∞", "∅"):
            raise NoValueError(node.name)
        return +_KNOWN[node.name] if node.name in _KNOWN else _at_random(node.name, point)
    if node.kind == "call":
        return _call(node, point)
    if node.kind not in ("add", "mul", "pow"):
        raise NoValueError(f"a {node.kind} has no value")
    parts = [value(part, point) for part in node.args]
    if node.kind == "pow":
        return _power(parts[0], parts[1])
    return functools.reduce(operator.add if node.kind == "add" else operator.mul, parts)


def _at_random(name: str, point: Substitution) -> Number:
    """Give a name its value, mostly positive so that roots and logarithms are real."""
    if isinstance(point, tuple):
        given = dict(point).get(name)
        if given is None:
            given = Fraction(1000 + derive(0, "math", name, repr(point)) % 9973, 3001)
        return CONTEXT.mpf(given.numerator) / given.denominator
    if point in STEPS and name in WHOLE_NAMES:
        step = 1 + derive(0, "math", name) % (len(STEPS) - 1)
        return CONTEXT.mpf(1 + point * step % len(STEPS))
    fraction = CONTEXT.mpf(derive(point, "math", name) % (1 << 60)) / (1 << 59)
    scale = POINT_SCALES[point % len(POINT_SCALES)]
    return scale * (CONTEXT.mpf(1) / 3 + fraction)


def _power(base: Number, exponent: Number) -> Number:
    if exponent == 0:
        return CONTEXT.mpf(1)
    if base == 0:
        if CONTEXT.re(exponent) <= 0:
            raise NoValueError("a power of zero")
        return base
    if abs(exponent) * abs(CONTEXT.log(abs(base), 2)) > MAX_LOG2 or abs(exponent) > MAX_LOG2:
        raise NoValueError("a power too large")
    if CONTEXT.im(base) == 0 and CONTEXT.re(base) < 0 and CONTEXT.im(exponent) == 0:
        odd = _odd_root(exponent)
        if odd:
            return -((-base) ** exponent) if odd == 1 else (-base) ** exponent
    return base**exponent


def _odd_root(exponent: Number) -> int:
    """Return 1 for an odd root of an odd power, 2 for one of an even power, 0 for all others.

    Schools read odd roots of negative numbers as real.
    """
    for bottom in (3, 5, 7):
        top = CONTEXT.re(exponent) * bottom
        nearest = int(CONTEXT.nint(top))
        if nearest % bottom and abs(top - nearest) < TOLERANCE:
            return 1 if nearest % 2 else 2
    return 0


def _call(node: Node, point: Substitution) -> Number:
    function = _FUNCTIONS.get(node.name)
    if function is None:
        return _at_random(repr(node), point)
    parts = [value(part, point) for part in node.args]
    if node.name not in _SLOW_GROWING and any(abs(part) > 10**15 for part in parts):
        raise NoValueError("an argument too large")
    return function(*parts)


_SLOW_GROWING = frozenset(("ln", "log", "log10", "abs", "max", "min"))


def _limit_to_small(function: Callable[..., Number]) -> Callable[..., Number]:
    def apply(*parts: Number) -> Number:
        if any(abs(part) > MAX_FACTORIAL for part in parts):
            raise NoValueError("a factorial too large")
        return function(*parts)

    return apply


def _take_integers(function: Callable[..., int]) -> Callable[..., Number]:
    def apply(*parts: Number) -> Number:
        integers = [int(CONTEXT.nint(CONTEXT.re(part))) for part in parts]
        if any(abs(x - nearest) > TOLERANCE for x, nearest in zip(parts, integers, strict=True)):
            raise NoValueError("not a whole number")
        return CONTEXT.mpf(function(*integers))

    return apply


def _take_reals(function: Callable[..., Number]) -> Callable[..., Number]:
    def apply(*parts: Number) -> Number:
        if any(abs(CONTEXT.im(part)) > TOLERANCE for part in parts):
            raise NoValueError("not real")
        return function(*(CONTEXT.re(part) for part in parts))

    return apply


def _snap(function: Callable[[Number], Number]) -> Callable[[Number], Number]:
    """Round what is whole but for its last digits, as ln 1000 / ln 10 is."""

    def apply(number: Number) -> Number:
        nearest = CONTEXT.nint(number)
        is_whole = abs(number - nearest) <= max(abs(number), 1) * CONTEXT.mpf(10) ** (
            SPARE_DIGITS - CONTEXT.dps
        )
        return nearest if is_whole else function(number)

    return apply


_ELEMENTARY = "sin cos tan cot sec csc sinh cosh tanh ln log10"
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    **{name: getattr(CONTEXT, name) for name in _ELEMENTARY.split()},
    **{f"arc{name}": getattr(CONTEXT, f"a{name}") for name in ("sin", "cos", "tan", "cot", "sec")},
    "log": CONTEXT.ln,
    "abs": abs,
    "floor": _take_reals(_snap(CONTEXT.floor)),
    "ceil": _take_reals(_snap(CONTEXT.ceil)),
    "max": _take_reals(max),
    "min": _take_reals(min),
    "factorial": _limit_to_small(CONTEXT.factorial),
    "binom": _limit_to_small(CONTEXT.binomial),
    "mod": _take_integers(operator.mod),
    "gcd": _take_integers(math.gcd),
    "lcm": _take_integers(math.lcm),
    "ratio": operator.truediv,
    "percent": lambda number: number / 100,
    "degree": lambda number: number * CONTEXT.pi / 180,
}


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
    """Return the distance of two values, 0 if it is rounding, and the larger of their sizes."""
    with CONTEXT.workdps(num_digits):
        left, right = value(a, point), value(b, point)
        size = max(abs(left), abs(right))
        difference = abs(left - right)
        return (CONTEXT.mpf(0) if difference <= size * _limit() else difference), size


def is_close(left: Number, right: Number, limit: Number | None = None) -> bool:
    return bool(abs(left - right) <= max(abs(left), abs(right)) * (limit or _limit()))


def _limit() -> Number:
    """Return the relative rounding error at the current precision."""
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
