"""The tree a mathematical answer is read into, with its arithmetic.

Sums and products are flat and sorted, with their numbers combined. Matrices are evaluated as they
are read, since their order matters. Answers with equal trees are equal; others may still be equal
in value, which `numeric` decides.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from math import isqrt
from typing import Literal, NamedTuple

_Kind = Literal["number", "symbol", "add", "mul", "pow", "call", "seq", "relation"]

MAX_BITS = 12_000
"""Larger whole numbers are not computed; the power or factorial stays symbolic."""
MAX_CELLS = 400
MAX_DETERMINANT = 4
CONSTANTS = frozenset({"e", "i", "π", "∞"})


class NotMathError(Exception):
    """The text is not mathematics that the parser knows, or is too large."""


class Node(NamedTuple):
    """One node of the tree.

    `name` is the symbol, function, bracket pair of a sequence, or relation sign. `digits` counts
    the significant digits of a number written with a decimal point, and is 0 for an exact number.
    """

    kind: _Kind
    args: tuple["Node", ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)
    digits: int = 0


def make_number(value: Fraction | int, digits: int = 0) -> Node:
    return Node("number", value=Fraction(value), digits=digits)


def symbol(name: str) -> Node:
    return Node("symbol", name=name)


def call(name: str, *args: Node) -> Node:
    return Node("call", args, name)


def seq(brackets: str, args: Iterable[Node]) -> Node:
    """Put nodes in a row; `brackets` is "" for a bare list, "()", "[)", "{}", "matrix" or "row"."""
    return Node("seq", tuple(args), brackets)


ZERO = make_number(0)
ONE = make_number(1)
MINUS_ONE = make_number(-1)
HALF = make_number(Fraction(1, 2))
INFINITY = symbol("∞")
NAMED_FUNCTIONS = frozenset(("zeta", "phi", "varphi", "Gamma"))
"""Greek letters that are functions before a number in brackets."""
_NAMELESS = frozenset(("sin", "cos", "tan", "ln", "log", "factorial", "union"))
"""Calls that are not names, even if their arguments are."""


def add(*terms: Node) -> Node:
    numbers: list[Node] = []
    rest: list[Node] = []
    for term in terms:
        for part in term.args if term.kind == "add" else (term,):
            _check_operand(part)
            (numbers if part.kind == "number" else rest).append(part)
    total = sum((part.value for part in numbers), Fraction(0))
    _check(total)
    if not rest:
        return numbers[0] if len(numbers) == 1 else make_number(total)
    if total:
        rest.append(make_number(total))
    return rest[0] if len(rest) == 1 else Node("add", tuple(sorted(rest)))


def mul(*factors: Node) -> Node:
    product = Fraction(1)
    rest = []
    digits = 0
    is_decimal = True
    for factor in factors:
        for part in factor.args if factor.kind == "mul" else (factor,):
            if part.kind != "number":
                _check_operand(part)
                rest.append(part)
                continue
            product *= part.value
            # 2.31 x 10^-3 is a decimal of three digits; a product of anything else is exact.
            if part.digits and not digits:
                digits = part.digits
            else:
                is_decimal = is_decimal and _is_power_of_ten(part)
    _check(product)
    if not rest:
        return make_number(product, digits if is_decimal else 0)
    if product == 0 and not any(part == INFINITY for part in rest):
        return ZERO
    if product != 1:
        rest.append(make_number(product))
    return rest[0] if len(rest) == 1 else Node("mul", tuple(sorted(rest)))


def negative(node: Node) -> Node:
    if node.kind == "number":
        return make_number(-node.value, node.digits)
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
            return make_number(folded)
    if base.kind == "pow" and exponent.kind == "number" and exponent.value.denominator == 1:
        return power(base.args[0], mul(base.args[1], exponent))
    return Node("pow", (base, exponent))


def walk(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += part.args


def symbols(node: Node) -> set[str]:
    """List the unknowns; the constants e, i, pi and infinity are not unknowns."""
    return names(node) - CONSTANTS


def names(node: Node) -> set[str]:
    return {part.name for part in walk(node) if part.kind == "symbol"}


def has_call(node: Node, name: str) -> bool:
    return any(part.name == name and part.kind == "call" for part in walk(node))


def is_name(node: Node) -> bool:
    """Whether a node only names what the question asks for: x, a_n, f(x), f(2), (p, q), |AB|,
    A:B."""
    if node.kind == "symbol":
        return node.name not in CONSTANTS
    if node.kind == "pow":  # an inverse function
        base, exponent = node.args
        return base.kind == "symbol" and is_name(base) and exponent == MINUS_ONE
    if node.kind in ("mul", "seq"):
        return bool(node.args) and all(is_name(part) for part in node.args)
    if node.kind != "call" or node.name in _NAMELESS:
        return False
    is_short = len(node.name) == 1 or node.name in NAMED_FUNCTIONS
    return bool(node.args) and all(
        is_name(part) or (is_short and part.kind == "number") for part in node.args
    )


def is_applied(node: Node, value: Node) -> bool:
    """Whether a node is a function such as f(a + 1), and f is not in the value."""
    if node.kind != "mul" or len(node.args) != 2 or not any(a.kind == "add" for a in node.args):
        return False
    names = {part.name for part in node.args} & set("fghPpq")
    return bool(names) and names.isdisjoint(symbols(value))


def substitute(node: Node, name: str, replacement: Node) -> Node:
    """Replace a symbol by a node and simplify again."""
    if node.kind == "symbol" and node.name == name:
        return replacement
    return rebuild(node, lambda part: substitute(part, name, replacement))


def rebuild(node: Node, change: Callable[[Node], Node]) -> Node:
    """Change the arguments of a node and simplify again."""
    if not node.args:
        return node
    args = [change(part) for part in node.args]
    if node.kind == "add":
        return add(*args)
    if node.kind == "mul":
        return mul(*args)
    if node.kind == "pow":
        return power(*args)
    return node._replace(args=tuple(args))


def replace_calls(node: Node, name: str, change: Callable[[Node], Node]) -> Node:
    """Change every call of a function, from the inside out, and simplify again."""
    node = rebuild(node, lambda part: replace_calls(part, name, change))
    return change(node) if node.kind == "call" and node.name == name else node


def matrix(rows: Iterable[Iterable[Node]]) -> Node:
    return seq("matrix", [seq("row", row) for row in rows])


def matrix_sum(a: Node, b: Node) -> Node:
    """Add two nodes, matrices cell by cell."""
    if not (is_matrix(a) or is_matrix(b)):
        return add(a, b)
    left = _cells(a)
    right = _cells(b)
    if [len(row) for row in left] != [len(row) for row in right]:
        raise NotMathError("matrices of different shapes")
    return matrix(map(add, r, s) for r, s in zip(left, right, strict=True))


def matrix_product(a: Node, b: Node) -> Node:
    """Multiply two nodes, either of which may be a matrix."""
    if not (is_matrix(a) or is_matrix(b)):
        return mul(a, b)
    if not is_matrix(a) or not is_matrix(b):
        scale, cells = (b, a) if is_matrix(a) else (a, b)
        return matrix([mul(scale, cell) for cell in row] for row in _cells(cells))
    left = _cells(a)
    right = _cells(b)
    columns = list(zip(*right, strict=True))
    is_large = len(left) * len(right) * len(columns) > MAX_CELLS
    if is_large or any(len(row) != len(right) for row in left):
        raise NotMathError("matrices that cannot be multiplied")
    return matrix([add(*map(mul, row, column)) for column in columns] for row in left)


def matrix_negative(node: Node) -> Node:
    return matrix_product(MINUS_ONE, node) if is_matrix(node) else negative(node)


def determinant(rows: Sequence[Sequence[Node]]) -> Node:
    """Compute the determinant that bars around a table mean."""
    if not rows or len(rows) > MAX_DETERMINANT or any(len(row) != len(rows) for row in rows):
        raise NotMathError("not a determinant")
    if len(rows) == 1:
        return rows[0][0]
    terms = []
    for column, cell in enumerate(rows[0]):
        minor = determinant([[*row[:column], *row[column + 1 :]] for row in rows[1:]])
        terms.append(mul(make_number((-1) ** column), cell, minor))
    return add(*terms)


def is_matrix(node: Node) -> bool:
    return node.kind == "seq" and node.name == "matrix"


def _cells(node: Node) -> list[tuple[Node, ...]]:
    if not is_matrix(node):
        raise NotMathError("a matrix and something else")
    return [row.args for row in node.args]


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


def _is_power_of_ten(node: Node) -> bool:
    """Whether a number is a power of ten, possibly negative or with a negative exponent."""
    top = abs(node.value.numerator)
    bottom = node.value.denominator
    longer = max(top, bottom)
    if min(top, bottom) != 1 or longer.bit_length() >= MAX_BITS:
        return False
    return str(longer).strip("0") == "1"


def _check_operand(node: Node) -> None:
    if node.kind == "relation":
        raise NotMathError("an equation in a sum or product")


def _check(value: Fraction) -> None:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise NotMathError("a number too long to compute with")
