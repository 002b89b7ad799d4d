"""The tree a mathematical answer is read into. Sums and products are kept flat, sorted and with
their numbers folded.

Two answers with equal trees are equal; unequal trees may still be equal in value, which `values`
decides.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import isqrt
from typing import Literal, NamedTuple

Kind = Literal["number", "symbol", "add", "mul", "pow", "call", "seq", "relation"]

MAX_BITS = 12_000
"""Whole numbers longer than this are not written out; the power or factorial stays as it is."""
MAX_EXPONENT = 2000


class NotMathError(Exception):
    """The text is not mathematics that the reader knows, or is larger than it reads."""


class Node(NamedTuple):
    """One place of the tree.

    `name` is the symbol, function, bracket pair of a sequence, or relation sign. `digits` counts
    the significant digits of a number written with a decimal point, and is 0 for one that is exact.
    """

    kind: Kind
    args: tuple["Node", ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)
    digits: int = 0


def number(value: Fraction | int, digits: int = 0) -> Node:
    return Node("number", value=Fraction(value), digits=digits)


def symbol(name: str) -> Node:
    return Node("symbol", name=name)


def call(name: str, *args: Node) -> Node:
    return Node("call", args, name)


def seq(brackets: str, args: Iterable[Node]) -> Node:
    """Put nodes in a row; `brackets` is "" for a bare list, "()", "[)", "{}", "matrix" or "row"."""
    return Node("seq", tuple(args), brackets)


ZERO = number(0)
ONE = number(1)
MINUS_ONE = number(-1)
HALF = number(Fraction(1, 2))
INFINITY = symbol("∞")


def add(*terms: Node) -> Node:
    total = Fraction(0)
    rest = []
    num_numbers = 0
    last = ZERO
    for term in terms:
        for part in term.args if term.kind == "add" else (term,):
            if part.kind == "number":
                total += part.value
                num_numbers += 1
                last = part
            else:
                rest.append(part)
    _check(total)
    if not rest:
        return last if num_numbers == 1 else number(total)
    if total:
        rest.append(number(total))
    return rest[0] if len(rest) == 1 else Node("add", tuple(sorted(rest)))


def mul(*factors: Node) -> Node:
    product = Fraction(1)
    rest = []
    digits = 0
    scale = 1
    for factor in factors:
        for part in factor.args if factor.kind == "mul" else (factor,):
            if part.kind != "number":
                rest.append(part)
                continue
            product *= part.value
            # 2.31 x 10^-3 is a decimal of three digits; a product of anything else is exact.
            digits, scale = (
                (part.digits, scale)
                if part.digits and not digits
                else (digits, scale * _off_ten(part))
            )
    _check(product)
    if not rest:
        return number(product, digits if scale else 0)
    if product == 0 and not any(part == INFINITY for part in rest):
        return ZERO
    if product != 1:
        rest.append(number(product))
    return rest[0] if len(rest) == 1 else Node("mul", tuple(sorted(rest)))


def negative(node: Node) -> Node:
    if node.kind == "number":
        return number(-node.value, node.digits)
    if node.kind == "add":
        return add(*(mul(MINUS_ONE, term) for term in node.args))
    return mul(MINUS_ONE, node)


def divide(top: Node, bottom: Node) -> Node:
    return mul(top, power(bottom, MINUS_ONE))


def power(base: Node, exponent: Node) -> Node:
    if exponent.kind == "number" and exponent.value == 1:
        return base
    if base.kind == "number" and exponent.kind == "number":
        folded = _number_power(base.value, exponent.value)
        if folded is not None:
            return number(folded)
    if base.kind == "pow" and exponent.kind == "number" and exponent.value.denominator == 1:
        return power(base.args[0], mul(base.args[1], exponent))
    return Node("pow", (base, exponent))


def walk(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.args


def symbols(node: Node) -> set[str]:
    """List the unknowns; the constants e, i, pi and infinity are none."""
    return {part.name for part in walk(node) if part.kind == "symbol"} - CONSTANTS


CONSTANTS = frozenset({"e", "i", "π", "∞"})


def with_symbol(node: Node, name: str, replacement: Node) -> Node:
    """Put a node in the place of a symbol and fold again."""
    if node.kind == "symbol" and node.name == name:
        return replacement
    if not node.args:
        return node
    args = [with_symbol(part, name, replacement) for part in node.args]
    return rebuilt(node, args)


def rebuilt(node: Node, args: list[Node]) -> Node:
    if node.kind == "add":
        return add(*args)
    if node.kind == "mul":
        return mul(*args)
    if node.kind == "pow":
        return power(*args)
    return node._replace(args=tuple(args))


def _number_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if base == 0 and exponent <= 0:
        raise NotMathError("zero to a power that is not positive")
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator == 1:
        return base**exponent.numerator if size * abs(exponent.numerator) <= MAX_BITS else None
    if exponent.denominator == 2 and base >= 0 and size * abs(exponent.numerator) <= MAX_BITS:
        top = isqrt(base.numerator)
        bottom = isqrt(base.denominator)
        if top * top == base.numerator and bottom * bottom == base.denominator:
            return _number_power(Fraction(top, bottom), Fraction(exponent.numerator))
    return None


def _off_ten(node: Node) -> int:
    """Say 1 for plus or minus a power of ten, 0 for any other number."""
    top = abs(node.value.numerator)
    bottom = node.value.denominator
    longer = str(max(top, bottom)) if max(top, bottom).bit_length() < MAX_BITS else "2"
    return int(min(top, bottom) == 1 and longer.strip("0") == "1")


def _check(value: Fraction) -> None:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise NotMathError("a number too long to compute with")
