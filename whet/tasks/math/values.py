"""Whether two expressions have the same value: exact for rationals, by evaluation at random points
for the rest.

Unknowns take random positive values, the same for the same name; forty agreeing digits at three
points are taken as equality. Nothing grows: powers, factorials and arguments beyond the limits are
not evaluated.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import mpmath
from mpmath import mp

from whet.rng import derive
from whet.tasks.math import tree
from whet.tasks.math.tree import Node

NUM_POINTS = 3
_SCALES = (1, 7, 30, 1, 7, -1, 2, 1)
"""How far from zero the unknowns are at each point: large enough for floors to differ, small for
narrow domains."""
MAX_LOG2 = 200_000.0
"""Values beyond two to this power, or below its inverse, are not computed."""
MAX_FACTORIAL = 5000

_CONTEXT = mp.clone()
_CONTEXT.dps = 50
_TOLERANCE = _CONTEXT.mpf(10) ** -38
_TINY = _CONTEXT.mpf(10) ** -46
Number: TypeAlias = mpmath.mpf
"""A real or complex number of mpmath, which has no types of its own."""


class NoValueError(Exception):
    """The expression has no value that can be computed here."""


def same_value(a: Node, b: Node) -> bool | None:
    """Compare two expressions; None where they cannot be evaluated.

    A point where both stay real decides; branches of complex roots are looked at only where there
    is no such point.
    """
    if a == b or a.kind == b.kind == "number":
        return a.value == b.value
    num_equal = 0
    complex_found = []
    num_needed = len(_SCALES) if _has_abs(a) != _has_abs(b) else NUM_POINTS
    for point in range(len(_SCALES)):
        try:
            is_equal = is_close(value(a, point), value(b, point))
            if not (tree.symbols(a) | tree.symbols(b)):
                return is_equal
            is_real = _is_real(a, point) and _is_real(b, point)
        except NoValueError:
            continue
        if not is_real:
            complex_found.append(is_equal)
            continue
        if not is_equal:
            return False
        num_equal += 1
        if num_equal == num_needed:
            return True
    if num_equal:
        return True
    return all(complex_found) if complex_found else None


def _has_abs(node: Node) -> bool:
    return any(part.name == "abs" for part in tree.walk(node))


def _is_real(node: Node, point: int) -> bool:
    parts = (part for part in tree.walk(node) if part.kind in ("pow", "call"))
    return all(_CONTEXT.im(value(part, point)) == 0 for part in parts)


def ratio_of(a: Node, b: Node) -> int:
    """Say whether a is a constant times b: the sign of the constant, 0 where it is none or has no
    sign."""
    ratios = []
    for point in range(len(_SCALES)):
        try:
            left = value(a, point)
            right = value(b, point)
        except NoValueError:
            continue
        if abs(right) < _TINY or abs(left) < _TINY:
            return 0
        ratios.append(left / right)
        if not is_close(ratios[0], ratios[-1]):
            return 0
        if len(ratios) == NUM_POINTS:
            real = _CONTEXT.re(ratios[0])
            return (
                0 if abs(_CONTEXT.im(ratios[0])) > abs(real) * _TOLERANCE else 1 if real > 0 else -1
            )
    return 0


def is_close(left: Number, right: Number) -> bool:
    size = max(abs(left), abs(right))
    return bool(abs(left - right) <= max(size * _TOLERANCE, _TINY if size < 1 else 0))


def constant(node: Node) -> Number:
    """Evaluate an expression without unknowns."""
    if tree.symbols(node):
        raise NoValueError("not a constant")
    return value(node, 0)


def to_fraction(number: Number) -> Fraction:
    """Write the real part of a number as it is held, exactly."""
    sign, mantissa, exponent, _ = _CONTEXT.re(number)._mpf_
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)


@lru_cache(1 << 14)
def value(node: Node, point: int) -> Number:
    """Evaluate with the unknowns at their values of this point."""
    try:
        found = _value(node, point)
    except (
        ZeroDivisionError,
        OverflowError,
        ValueError,
        TypeError,
        mpmath.libmp.NoConvergence,
    ) as error:
        raise NoValueError(str(error)) from error
    if not _CONTEXT.isfinite(found):
        raise NoValueError("not finite")
    return found


def _value(node: Node, point: int) -> Number:
    if node.kind == "number":
        return _from_fraction(node.value)
    if node.kind == "symbol":
        return _symbol(node.name, point)
    if node.kind == "call":
        return _call(node, point)
    if node.kind not in ("add", "mul", "pow"):
        raise NoValueError(f"a {node.kind} has no value")
    parts = [value(part, point) for part in node.args]
    if node.kind == "pow":
        return _power(parts[0], parts[1])
    total = parts[0]
    for part in parts[1:]:
        total = total + part if node.kind == "add" else total * part
    return total


def _from_fraction(number: Fraction) -> Number:
    return _CONTEXT.mpf(number.numerator) / number.denominator


def _symbol(name: str, point: int) -> Number:
    if name in ("∞", "∅"):
        raise NoValueError(name)
    fixed = {"π": _CONTEXT.pi, "e": _CONTEXT.e, "i": _CONTEXT.mpc(0, 1)}.get(name)
    return +fixed if fixed is not None else _at_random(name, point)


def _at_random(name: str, point: int) -> Number:
    """Give a name a value away from zero; mostly positive, so that roots and logarithms are
    real."""
    fraction = _CONTEXT.mpf(derive(point, "math", name) % (1 << 60)) / (1 << 59)
    return _SCALES[point] * (_CONTEXT.mpf(1) / 3 + fraction)


def _power(base: Number, exponent: Number) -> Number:
    if exponent == 0:
        return _CONTEXT.mpf(1)
    if base == 0:
        if _CONTEXT.re(exponent) <= 0:
            raise NoValueError("a power of zero")
        return base
    if abs(exponent) * abs(_CONTEXT.log(abs(base), 2)) > MAX_LOG2 or abs(exponent) > MAX_LOG2:
        raise NoValueError("a power too large")
    if _CONTEXT.im(base) == 0 and _CONTEXT.re(base) < 0 and _CONTEXT.im(exponent) == 0:
        odd = _odd_root(exponent)
        if odd:
            return -((-base) ** exponent) if odd == 1 else (-base) ** exponent
    return base**exponent


def _odd_root(exponent: Number) -> int:
    """Say 1 for an odd root of an odd power, 2 for an odd root of an even power, as school reads
    them; else 0."""
    for bottom in (3, 5, 7):
        top = _CONTEXT.re(exponent) * bottom
        nearest = int(_CONTEXT.nint(top))
        if nearest % bottom and abs(top - nearest) < _TOLERANCE:
            return 1 if nearest % 2 else 2
    return 0


def _call(node: Node, point: int) -> Number:
    function = _FUNCTIONS.get(node.name)
    if function is None:
        return _at_random(repr(node), point)
    parts = [value(part, point) for part in node.args]
    if any(abs(part) > 10**15 for part in parts):
        raise NoValueError("an argument too large")
    return function(*parts)


def _factorial(number: Number) -> Number:
    if abs(number) > MAX_FACTORIAL:
        raise NoValueError("a factorial too large")
    return _CONTEXT.gamma(number + 1)


def _binomial(top: Number, bottom: Number) -> Number:
    if max(abs(top), abs(bottom)) > MAX_FACTORIAL:
        raise NoValueError("a binomial too large")
    return _CONTEXT.binomial(top, bottom)


def _whole(number: Number) -> int:
    nearest = int(_CONTEXT.nint(_CONTEXT.re(number)))
    if abs(number - nearest) > _TOLERANCE:
        raise NoValueError("not a whole number")
    return nearest


def _mod(top: Number, bottom: Number) -> Number:
    return _CONTEXT.mpf(_whole(top) % _whole(bottom))


def _gcd(*parts: Number) -> Number:
    return _CONTEXT.mpf(math.gcd(*(_whole(part) for part in parts)))


def _lcm(*parts: Number) -> Number:
    return _CONTEXT.mpf(math.lcm(*(_whole(part) for part in parts)))


def _real(function: Callable[..., Number]) -> Callable[..., Number]:
    def applied(*parts: Number) -> Number:
        if any(abs(_CONTEXT.im(part)) > _TOLERANCE for part in parts):
            raise NoValueError("not real")
        return function(*(_CONTEXT.re(part) for part in parts))

    return applied


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sin": _CONTEXT.sin, "cos": _CONTEXT.cos, "tan": _CONTEXT.tan, "cot": _CONTEXT.cot, "sec": _CONTEXT.sec,
    "csc": _CONTEXT.csc, "arcsin": _CONTEXT.asin, "arccos": _CONTEXT.acos, "arctan": _CONTEXT.atan,
    "arccot": _CONTEXT.acot, "arcsec": _CONTEXT.asec, "sinh": _CONTEXT.sinh, "cosh": _CONTEXT.cosh,
    "tanh": _CONTEXT.tanh, "ln": _CONTEXT.ln, "log": _CONTEXT.ln, "log10": _CONTEXT.log10, "abs": abs,
    "floor": _real(_CONTEXT.floor), "ceil": _real(_CONTEXT.ceil), "max": _real(max), "min": _real(min),
    "factorial": _factorial, "binom": _binomial, "mod": _mod, "gcd": _gcd, "lcm": _lcm,
    "ratio": lambda top, bottom: top / bottom, "percent": lambda number: number / 100,
    "degree": lambda number: number * _CONTEXT.pi / 180,
}  # fmt: skip
