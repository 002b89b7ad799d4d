"""Expressions of whole numbers, compared exactly from 1 on through the periods of their remainders:
⌊n²/1009⌋ and ⌊(n² + 1)/1009⌋ first differ at n = 469.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from whet.tasks.math import tree
from whet.tasks.math.corners import JUMPS
from whet.tasks.math.tree import Node
from whet.tasks.math.value_at_point import WHOLE_NAMES, NoValueError

MIN_PERIOD = 30
"""Shorter periods are covered by the points that all expressions are compared at."""
MAX_PARTS = 16_000
"""How many parts are evaluated to compare two expressions, all numbers together."""
MAX_BITS = 4096

_Numbers = dict[str, int]


def agree_at_whole_numbers(a: Node, b: Node) -> bool:
    """Whether two expressions agree for the first whole numbers; also where that is not known."""
    parts = [*tree.walk(a), *tree.walk(b)]
    names = sorted(tree.symbols(a) | tree.symbols(b))
    longest = max((max(abs(n) for n in part.value.as_integer_ratio()) for part in parts), default=0)
    has_jumps = any(part.kind == "call" and part.name in JUMPS for part in parts)
    if longest <= MIN_PERIOD or not names or not has_jumps:
        return True
    if not all(_is_known(part) for part in parts):
        return True
    for numbers in _list_numbers(names, longest, MAX_PARTS // len(parts)):
        try:
            if _value(a, numbers) != _value(b, numbers):
                return False
        except NoValueError:
            continue
    return True


def _is_known(node: Node) -> bool:
    if node.kind == "call":
        return bool(node.args) and (node.name in _FUNCTIONS or node.name in _DIVISORS)
    if node.kind == "symbol":
        return node.name in WHOLE_NAMES
    return node.kind in ("number", "add", "mul", "pow")


def _list_numbers(names: list[str], longest: int, max_rows: int) -> Iterator[_Numbers]:
    """Let each unknown run through two periods, in mixed order; the others are one, or equal."""
    num_numbers = min(2 * longest, max_rows // len(names)) | 1
    stride = num_numbers * 5 // 13
    while math.gcd(stride, num_numbers) > 1:
        stride -= 1
    for index in range(num_numbers):
        number = 1 + index * stride % num_numbers
        for name in names:
            yield dict.fromkeys(names, 1) | {name: number}
        if len(names) > 1:
            yield dict.fromkeys(names, number)


def _value(node: Node, numbers: _Numbers) -> int | Fraction:
    if not node.args:
        return numbers[node.name] if node.kind == "symbol" else node.value
    values = [_value(part, numbers) for part in node.args]
    if node.kind == "add":
        return sum(values)
    if node.kind == "mul":
        return math.prod(values)
    if node.kind == "pow":
        return _power(*values)
    if node.name in _FUNCTIONS:
        return _FUNCTIONS[node.name](*values)
    return _DIVISORS[node.name](*map(_whole, values))


def _power(base: int | Fraction, exponent: int | Fraction) -> int | Fraction:
    size = max(abs(part).bit_length() for part in base.as_integer_ratio())
    times = _whole(exponent)
    if abs(times) * size > MAX_BITS or (not base and times <= 0):
        raise NoValueError("a power too large, or of zero")
    return Fraction(base) ** times


def _whole(number: int | Fraction) -> int:
    if number.denominator != 1:
        raise NoValueError("not a whole number")
    return int(number)


def _remainder(number: int, modulus: int) -> int:
    if not modulus:
        raise NoValueError("a remainder by zero")
    return number % modulus


_FUNCTIONS: dict[str, Callable[..., int | Fraction]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "abs": abs,
    "max": max,
    "min": min,
}
_DIVISORS: dict[str, Callable[..., int]] = {"mod": _remainder, "gcd": math.gcd, "lcm": math.lcm}
