"""Decide whether two expressions have the same value, exactly or within the requested precision.

Rationals are compared exactly, the rest by evaluation at random points: forty agreeing digits at
three points are taken as equality, with as many more as the smallest term of a sum is below the
largest. Where floors, factorials and the like make whole numbers matter, there are more points, and
unknowns such as n are whole. `corners` has the points where |x - 100| and the like bend or jump.
"""

import math
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from pydantic import Field

from whet.config import CONSTANT, Config
from whet.tasks.math import tree
from whet.tasks.math.corners import agree_at_whole_numbers, corner_points, has_jump
from whet.tasks.math.tree import Node
from whet.tasks.math.value_at_point import (
    CONTEXT,
    POINT_SCALES,
    STEPS,
    TOLERANCE,
    NoValueError,
    Number,
    count_digits,
    is_close,
    is_equal_at,
    is_real,
    value,
)

NUM_POINTS = 3
FLOAT_DIGITS = 15
"""Decimals this long are printed by a program, and their last digits are noise."""
_FLOAT_NOISE = Fraction(1, 10**12)
_LARGE_C = tree.symbol("C")
_SMALL_C = tree.symbol("c")

_EXACT_CALLS = ("abs", "floor", "ceil", "factorial", "binom", "gcd", "lcm")
_ROUNDING = 0.01
"""A decimal this close to the other side of an equality may be a rounding of it."""


class MathConfig(Config):
    """What counts as the same answer where conventions differ."""

    name: Literal["math"] = "math"
    percent: Literal["unit", "value", "both"] = "unit"
    """What 50% is: "unit", the number 50 with a sign that may be left out, or 0.5 if neither the
    question nor the gold answer mentions percent; "value", 0.5; "both", either of them."""
    units: Literal["agree", "ignore", "same"] = "agree"
    """Units after a number: "agree", they may be left out, but may not contradict the gold answer
    or, if that has none, the question; "ignore"; "same", they must be given."""
    order: Literal["free", "fixed"] = "free"
    """Whether a list without brackets may be given in any order. Sets always may, tuples and
    answers to the parts (a), (b), ... of a question never."""
    names: Literal["drop", "keep"] = "drop"
    """Whether x = 2 is also given by 2: "drop" says yes, "keep" asks for the equation."""
    echo: Literal["wrong", "right"] = "wrong"
    """The verdict on a formula of the prompt that is repeated instead of worked out, if its value
    is right: 23 + 4 for 27. If the question asks for a number, any expression with work left is
    treated the same way."""
    rounded_digits: int = Field(default=6, ge=0)
    """A decimal is accepted for a fraction or root if it has this many significant digits, all
    correct; 0 never accepts one."""
    tolerance: float = Field(default=0.0, ge=0, lt=1e300)
    """The relative error that is accepted for every problem; a problem's own `tolerance` may be
    larger, and its `error` is accepted as well."""
    error: float = Field(default=0.0, ge=0, lt=1e300, json_schema_extra=CONSTANT)
    """The absolute error that is accepted; only a problem's payload sets it."""


def same_scalar(gold: Node, answer: Node, rules: MathConfig) -> bool:
    """Compare two expressions by value, or as a decimal written out to enough digits."""
    if gold.kind == "number" and answer.kind == "number" and gold.value == answer.value:
        return True
    if gold.kind == "call" and answer.kind == "call" and gold.name == answer.name == "ratio":
        return _same_ratio(gold, answer)
    if tree.has_call(gold, "degree") or tree.has_call(answer, "degree"):
        left, right = (
            tree.replace_calls(side, "degree", lambda call: call.args[0]) for side in (gold, answer)
        )
        if same_scalar(left, right, rules):
            return True
        if "π" not in tree.names(gold) | tree.names(answer):
            return False
    gold, answer = _with_one_constant(gold, answer)
    if same_value(gold, answer) or same_value(_with_common_log(gold), _with_common_log(answer)):
        return True
    return _is_rounded(gold, answer, rules) or _is_near(gold, answer, rules)


def _same_ratio(gold: Node, answer: Node) -> bool:
    if len(gold.args) != len(answer.args):
        return False
    if tree.ZERO in gold.args + answer.args:
        return gold.args == answer.args
    return all(
        same_value(tree.mul(g, answer.args[0]), tree.mul(a, gold.args[0])) is True
        for g, a in zip(gold.args, answer.args, strict=True)
    )


def _with_one_constant(gold: Node, answer: Node) -> tuple[Node, Node]:
    """Spell the constant of integration one way: + c as + C."""
    for one, other in ((gold, answer), (answer, gold)):
        if one.kind != "add" or other.kind != "add":
            continue
        is_large = _LARGE_C in one.args and "c" not in tree.names(one)
        if is_large and _SMALL_C in other.args and "C" not in tree.names(other):
            return tree.substitute(gold, "c", _LARGE_C), tree.substitute(answer, "c", _LARGE_C)
    return gold, answer


def _with_common_log(node: Node) -> Node:
    """Read a logarithm without a base as base ten; `value` reads it as the natural logarithm."""
    return tree.replace_calls(node, "log", lambda call: call._replace(name="log10"))


def _is_rounded(gold: Node, answer: Node, rules: MathConfig) -> bool:
    """Whether one side is a long decimal that agrees with the other in all its digits."""
    if gold.digits and answer.digits:
        longest = max(gold.digits, answer.digits)
        size = max(abs(gold.value), abs(answer.value))
        return longest >= FLOAT_DIGITS and abs(gold.value - answer.value) <= size * _FLOAT_NOISE
    decimal, other = (gold, answer) if gold.digits else (answer, gold)
    if not rules.rounded_digits or decimal.digits < rules.rounded_digits:
        return False
    exact = _real_constant(other)
    if exact is None:
        return False
    off = exact - decimal.value
    last_place = _last_place(decimal)
    is_cut = abs(off) < last_place and (off > 0) == (exact > 0)
    is_noise = decimal.digits >= FLOAT_DIGITS and abs(off) <= abs(exact) * _FLOAT_NOISE
    return abs(off) <= last_place / 2 or is_cut or is_noise


def is_rounding(exact: Node, decimal: Node) -> bool:
    """Whether a decimal is a constant rounded to the decimal's number of places."""
    if not decimal.digits or exact.digits:
        return False
    known = _real_constant(exact)
    return known is not None and abs(known - decimal.value) <= _last_place(decimal) / 2


def _is_near(gold: Node, answer: Node, rules: MathConfig) -> bool:
    """Whether the answer is within the tolerance that the problem or the settings allow."""
    if not rules.tolerance and not rules.error:
        return False
    left = _real_constant(gold)
    right = _real_constant(answer)
    if left is None or right is None:
        return False
    allowed = max(abs(left) * Fraction(rules.tolerance), Fraction(rules.error))
    return abs(left - right) <= allowed


def _real_constant(node: Node) -> Fraction | None:
    """Evaluate a real expression without unknowns, to about forty digits."""
    if node.kind == "number":
        return node.value
    try:
        with CONTEXT.workdps(count_digits(0, node)):
            number = _constant(node)
    except NoValueError:
        return None
    if abs(number.imag) > abs(number.real) * 10**-30:
        return None
    sign, mantissa, exponent, _ = CONTEXT.re(number)._mpf_
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)


def _last_place(decimal: Node) -> Fraction:
    """Return the place value of a decimal's last digit: 0.01 for 3.14."""
    size = abs(decimal.value)
    if not size:
        return Fraction(0)
    exponent = len(str(size.numerator)) - len(str(size.denominator))
    while Fraction(10) ** exponent > size:
        exponent -= 1
    while Fraction(10) ** (exponent + 1) <= size:
        exponent += 1
    return Fraction(10) ** (exponent + 1 - decimal.digits)


def same_value(a: Node, b: Node) -> bool | None:
    """Compare two expressions; None if they cannot be evaluated.

    Points where both stay real decide; complex values count only if there are no such points.
    """
    if a == b or a.kind == b.kind == "number":
        return a.value == b.value
    try:
        if not (tree.symbols(a) or tree.symbols(b)):
            return is_equal_at(a, b, 0)
    except NoValueError:
        return None
    if not agree_at_whole_numbers(a, b):
        return False
    return _agree_at_numbered_points(a, b) and _agree_at_corners(a, b)


def _agree_at_numbered_points(a: Node, b: Node) -> bool | None:
    num_equal = 0
    complex_results = []
    has_one_abs = tree.has_call(a, "abs") != tree.has_call(b, "abs")
    is_stepped = has_jump(a) or has_jump(b)
    points = STEPS if is_stepped else range(len(POINT_SCALES))
    num_needed = len(points) if has_one_abs or is_stepped else NUM_POINTS
    for point in points:
        try:
            is_equal = is_equal_at(a, b, point)
            are_real = is_real(a, point) and is_real(b, point)
        except NoValueError:
            continue
        if not are_real:
            complex_results.append(is_equal)
            continue
        if not is_equal:
            return False
        num_equal += 1
        if num_equal == num_needed:
            return True
    if num_equal:
        return True
    return all(complex_results) if complex_results else None


def _agree_at_corners(a: Node, b: Node) -> bool:
    """Whether two expressions agree wherever both are real at the points of their corners."""
    for point in corner_points(a, b):
        try:
            if not is_equal_at(a, b, point) and is_real(a, point) and is_real(b, point):
                return False
        except NoValueError:
            continue
    return True


def contradicts_itself(answer: Node) -> bool:
    """Whether a chain equates values that differ: x = 41 = 42."""
    chains = [part for part in tree.walk(answer) if part.kind == "relation"]
    return any(_has_unequal_sides(chain) for chain in chains)


def _has_unequal_sides(relation: Node) -> bool:
    if set(relation.name.split()) != {"="}:
        return False
    sides = relation.args
    is_named = len(sides) > 2 and tree.is_name(sides[0])
    if not is_named or tree.symbols(sides[0]) & tree.symbols(sides[-1]):
        sides = tuple(side for side in sides if not tree.symbols(side))
    elif is_named:
        sides = sides[1:]
    return any(_is_unequal(a, b) for a, b in pairwise(sides))


def _is_unequal(a: Node, b: Node) -> bool:
    """Whether two sides certainly differ; a decimal may be rounded, and x^2 = 4 holds for some
    x."""
    if tree.symbols(a) != tree.symbols(b):
        return False
    if (a.kind == "seq") != (b.kind == "seq") or (a.kind == "seq" and not a.args and b.args):
        return True
    parts = [*tree.walk(a), *tree.walk(b)]
    if any(part.kind in ("call", "seq") and part.name not in _EXACT_CALLS for part in parts):
        return False
    if any(part.digits for part in parts):
        return abs(to_float(a) - to_float(b)) > abs(to_float(b)) * _ROUNDING
    return same_value(a, b) is False


def ratio_sign(a: Node, b: Node) -> int:
    """Give the sign of the constant that a is times b; 0 if there is none or it has no sign."""
    ratios: list[Number] = []
    for point in range(len(POINT_SCALES)):
        try:
            with CONTEXT.workdps(count_digits(point, a, b)):
                left, right = value(a, point), value(b, point)
                if min(abs(left), abs(right)) < CONTEXT.mpf(10) ** (4 - CONTEXT.dps):
                    return 0
                ratios.append(left / right)
                if not is_close(ratios[0], ratios[-1]):
                    return 0
        except NoValueError:
            continue
        if len(ratios) == NUM_POINTS:
            real = CONTEXT.re(ratios[0])
            has_sign = abs(CONTEXT.im(ratios[0])) <= abs(real) * TOLERANCE
            if not has_sign or not _has_ratio_at_corners(a, b, ratios[0]):
                return 0
            return 1 if real > 0 else -1
    return 0


def _has_ratio_at_corners(a: Node, b: Node, ratio: Number) -> bool:
    for point in corner_points(a, b):
        try:
            with CONTEXT.workdps(count_digits(point, a, b)):
                left, right = value(a, point), value(b, point) * ratio
                is_zero = max(abs(left), abs(right)) <= TOLERANCE
                if is_zero or is_close(left, right, TOLERANCE):
                    continue
            if is_real(a, point) and is_real(b, point):
                return False
        except NoValueError:
            continue
    return True


def to_float(node: Node) -> float:
    """Evaluate the real part of an expression; NaN where it has unknowns or no value."""
    try:
        return float(_constant(node).real)
    except (NoValueError, OverflowError):
        return math.nan


def _constant(node: Node) -> Number:
    if tree.symbols(node):
        raise NoValueError("not a constant")
    return value(node, 0)


def read_residue(node: Node) -> Node:
    """Read 7^100 = 1 (mod 5) as 1; return anything else unchanged."""
    first, *_, last = node.args
    if last.name != "modulo" or any(part.kind != "number" for part in (first, *last.args)):
        return node
    value, modulus = (part.value for part in last.args)
    is_true = 0 <= value < modulus and (first.value - value) % modulus == 0
    return last.args[0] if is_true and node.name == "=" else node
