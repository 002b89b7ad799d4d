"""Points at which two expressions that agree elsewhere may differ: at the corners of |x - 100|, at
the jumps of ⌊n/365⌋, between and beside them, and far out.

A site is an expression inside one of these, with the values at which it bends or jumps. Along a
line, on which one unknown varies, the sites are solved for it. Expressions of whole numbers are
also compared exactly through the periods of their remainders: ⌊n²/1009⌋ and ⌊(n² + 1)/1009⌋ first
differ at n = 469.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import combinations, pairwise
from typing import NamedTuple

from whet.rng import derive
from whet.tasks.math import tree
from whet.tasks.math.tree import Node, NotMathError
from whet.tasks.math.value_at_point import (
    CONTEXT,
    WHOLE_NAMES,
    NoValueError,
    Number,
    Substitution,
    value,
)

JUMPS = frozenset(("floor", "ceil", "mod", "gcd", "lcm", "factorial", "binom"))
MAX_SITES = 10
MAX_NAMES = 4
MAX_POINTS = 200
MAX_ROOTS = 8
"""Corners of a site that are searched for by halving, on one line."""
MIN_PERIOD = 30
"""Shorter periods are covered by the points that all expressions are compared at."""
MAX_PARTS = 16_000
"""How many parts are evaluated to compare two expressions, all numbers together."""
MAX_BITS = 4096

_Numbers = dict[str, int]
_STEPS = (-40, -3, -2, -1, 0, 1, 2, 3, 5, 12, 100)
"""Of all the whole numbers at which a floor jumps, the ones that are looked at."""
_SAMPLES = (1, 2, 3, 5, 8)
_WHOLE_LADDER = tuple(Fraction(97 * 3**k + derive(k, "ladder") % 60) for k in range(22))
_REAL_LADDER = tuple(Fraction(3**k) * 10 / 189 for k in range(22))
_NUM_HALVINGS = 40
_EXACT = CONTEXT.mpf(10) ** -30
_BESIDE = Fraction(1, 1000)


class _Site(NamedTuple):
    node: Node
    kind: str
    """`zero`: it bends at 0; `step`: it jumps at whole numbers; `square`: its square is under a
    root; `touch`: it is under a root itself, and bends at 0 if it does not change its sign."""


class _Line(NamedTuple):
    """All unknowns have a value but one."""

    others: tuple[tuple[str, Fraction], ...]
    name: str
    is_whole: bool
    is_positive: bool

    def at(self, number: Fraction) -> Substitution:
        return tuple(sorted((*self.others, (self.name, number))))

    def ladder(self) -> list[Fraction]:
        """List values of all sizes, in order."""
        if self.is_whole:
            return list(_WHOLE_LADDER)
        negative = () if self.is_positive else tuple(-number for number in reversed(_REAL_LADDER))
        return [*negative, *_REAL_LADDER]


def corner_points(a: Node, b: Node) -> Iterator[Substitution]:
    """List the points that show a difference of two expressions in their corners and jumps.

    Unknowns under a root alone stay positive, as lengths are: √(x²) is x there.
    """
    sites = list(dict.fromkeys((*_sites(a), *_sites(b))))[:MAX_SITES]
    has_jumps = has_jump(a) or has_jump(b)
    if not sites and not has_jumps:
        return
    is_positive = all(site.kind in ("square", "touch") for site in sites) and not has_jumps
    num_points = 0
    for line in _lines(sorted(tree.symbols(a) | tree.symbols(b)), has_jumps, is_positive):
        corners: set[tuple[Fraction, bool]] = set()
        for site in sites:
            corners.update(_solve(site, line))
        if is_positive and not corners and not any(_is_steep(site, line) for site in sites):
            continue
        for number in _beside(sorted(corners), line):
            yield line.at(number)
            num_points += 1
            if num_points == MAX_POINTS:
                return


def has_jump(node: Node) -> bool:
    """Whether a node has floors, factorials and the like, or powers such as (-1)^n."""
    return any(
        part.name in JUMPS if part.kind == "call" else part.args[0].value < 0
        for part in tree.walk(node)
        if part.kind in ("call", "pow")
    )


def _sites(node: Node) -> Iterator[_Site]:
    for part in tree.walk(node):
        if part.kind == "pow" and _is_even_root(part):
            yield from _root_sites(part.args[0])
        elif part.kind == "call" and part.name == "abs" and part.args:
            yield from (_Site(factor, "zero") for factor in _factors(part.args[0]))
        elif part.kind == "call" and part.name in ("max", "min"):
            for left, right in combinations(part.args, 2):
                yield from _difference(left, right)
        elif part.kind == "call" and part.name in ("floor", "ceil") and part.args:
            yield _Site(part.args[0], "step")
        elif part.kind == "call" and part.name in ("mod", "gcd", "lcm") and len(part.args) > 1:
            for top, bottom in combinations(part.args, 2):
                yield from _quotients(top, bottom)


def _is_even_root(power: Node) -> bool:
    exponent = power.args[1]
    return exponent.kind == "number" and exponent.value.denominator % 2 == 0


def _root_sites(base: Node) -> Iterator[_Site]:
    for factor in base.args if base.kind == "mul" else (base,):
        if factor.kind == "pow" and factor.args[0].kind != "symbol":
            yield _Site(factor.args[0], "square")
        elif factor.kind == "add":
            yield _Site(factor, "touch")


def _factors(node: Node) -> Iterable[Node]:
    """List what an absolute value is zero with."""
    for factor in node.args if node.kind == "mul" else (node,):
        yield factor.args[0] if factor.kind == "pow" else factor


def _difference(left: Node, right: Node) -> Iterator[_Site]:
    try:
        yield _Site(tree.add(left, tree.negative(right)), "zero")
    except NotMathError:
        return


def _quotients(top: Node, bottom: Node) -> Iterator[_Site]:
    for one, other in ((top, bottom), (bottom, top)):
        try:
            if other.kind == "number":
                yield _Site(tree.divide(one, other), "step")
        except NotMathError:
            continue


def _lines(names: list[str], has_jumps: bool, is_positive: bool) -> Iterator[_Line]:
    """Let each unknown vary, with the others at values of their own and, if whole, at one."""
    drawn = {name: derive(0, "math", "line", name) for name in names}
    whole = {name for name in names if has_jumps and name in WHOLE_NAMES}
    start = {
        name: Fraction(2 + number % 60) if name in whole else Fraction(1000 + number % 9973, 3001)
        for name, number in drawn.items()
    }
    ones = {name: Fraction(1) if name in whole else number for name, number in start.items()}
    for varied in names[:MAX_NAMES]:
        bases = {
            tuple((name, base[name]) for name in names if name != varied): None
            for base in (start, ones)
        }
        for others in bases:
            yield _Line(others, varied, varied in whole, is_positive)


def _beside(corners: list[tuple[Fraction, bool]], line: _Line) -> Iterator[Fraction]:
    """List the corners that are known exactly, what lies between and beside them, and the ladder.

    The ladder comes first: it shows most differences.
    """
    yield from line.ladder()
    numbers = [number for number, _ in corners]
    if line.is_whole:
        whole = {number // 1 + step for number in numbers for step in (-1, 0, 1, 2)}
        whole |= {(low + high) // 2 for low, high in pairwise(numbers)}
        yield from (Fraction(number) for number in sorted(whole) if number > 0)
        return
    near = {number for number, is_exact in corners if is_exact}
    near |= {(low + high) / 2 for low, high in pairwise(numbers)}
    for number in numbers:
        near |= {number + sign * _BESIDE * (1 + abs(number)) for sign in (-1, 1)}
    yield from (number for number in sorted(near) if number > 0 or not line.is_positive)


def _is_steep(site: _Site, line: _Line) -> bool:
    """Whether what is under a root is more than a square of its unknown."""
    samples = _read_samples(site, line)
    return samples is None or _fit(samples) is None


def _solve(site: _Site, line: _Line) -> list[tuple[Fraction, bool]]:
    """Find where a site bends or jumps on a line, and whether that is known exactly."""
    if line.name not in tree.names(site.node):
        return []
    targets = _STEPS if site.kind == "step" else (0,)
    samples = _read_samples(site, line)
    square = None if samples is None else _fit(samples)
    if square is None:
        return [(root, False) for root in _search(site, line, targets)]
    roots: list[Number] = []
    for target in targets:
        roots += _roots(square, target, is_touch=site.kind == "touch")
    return [_to_fraction(root) for root in roots]


def _read_samples(site: _Site, line: _Line) -> list[Number] | None:
    samples = [_read(site.node, line, Fraction(number)) for number in _SAMPLES]
    known = [number for number in samples if number is not None]
    return known if len(known) == len(_SAMPLES) else None


def _read(node: Node, line: _Line, number: Fraction) -> Number | None:
    """Evaluate at a point of a line; None where there is no real value."""
    try:
        result = value(node, line.at(number))
    except NoValueError:
        return None
    return CONTEXT.re(result) if abs(CONTEXT.im(result)) <= _EXACT else None


def _fit(samples: list[Number]) -> tuple[Number, Number, Number] | None:
    """Find the polynomial of degree two, or less, through the samples."""
    first, second, third, *rest = samples
    bend = (first - 2 * second + third) / 2
    slope = second - first - 3 * bend
    start = first - slope - bend
    size = max(abs(sample) for sample in samples) * _EXACT
    for number, sample in zip(_SAMPLES[3:], rest, strict=True):
        if abs(start + number * (slope + number * bend) - sample) > size:
            return None
    return start, slope, bend


def _roots(
    square: tuple[Number, Number, Number], target: int, *, is_touch: bool
) -> tuple[Number, ...]:
    start, slope, bend = square
    start -= target
    size = max(map(abs, square)) * _EXACT
    if abs(bend) <= size:
        return () if is_touch or abs(slope) <= size else (-start / slope,)
    inside = slope**2 - 4 * bend * start
    if abs(inside) <= (slope**2 + abs(4 * bend * start)) * _EXACT:
        return (-slope / (2 * bend),)
    if is_touch or inside < 0:
        return ()
    root = CONTEXT.sqrt(inside)
    return (-slope - root) / (2 * bend), (-slope + root) / (2 * bend)


def _to_fraction(number: Number) -> tuple[Fraction, bool]:
    sign, mantissa, exponent, _ = number._mpf_
    exact = Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)
    near = exact.limit_denominator(10**6)
    is_exact = abs(near - exact) <= Fraction(1, 10**25) * (1 + abs(exact))
    return (near, True) if is_exact else (exact, False)


def _search(site: _Site, line: _Line, targets: Iterable[int]) -> list[Fraction]:
    """Find where the values on the ladder pass a target, by halving."""
    rungs = [(rung, _read(site.node, line, rung)) for rung in line.ladder()]
    roots: list[Fraction] = []
    for target in sorted(targets, key=abs):
        for (low, before), (high, after) in pairwise(rungs):
            if before is None or after is None or (before < target) == (after < target):
                continue
            roots.append(_halve(site, line, low, high, target))
            if len(roots) == MAX_ROOTS:
                return roots
    return roots


def _halve(site: _Site, line: _Line, low: Fraction, high: Fraction, target: int) -> Fraction:
    at_low = _read(site.node, line, low)
    assert at_low is not None, "the ends of a search have values"
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        at_middle = _read(site.node, line, middle)
        if at_middle is not None and (at_middle < target) == (at_low < target):
            low = middle
        else:
            high = middle
    return high


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
            if _exact_value(a, numbers) != _exact_value(b, numbers):
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


def _exact_value(node: Node, numbers: _Numbers) -> int | Fraction:
    if not node.args:
        return numbers[node.name] if node.kind == "symbol" else node.value
    values = [_exact_value(part, numbers) for part in node.args]
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
