"""Whether two expressions are the same answer: by value, or as a decimal written out to enough
digits."""

from fractions import Fraction

from whet.tasks.math import tree
from whet.tasks.math.policy import Policy
from whet.tasks.math.tree import Node
from whet.tasks.math.values import NoValueError, constant, same_value, to_fraction

FLOAT_DIGITS = 15
"""A decimal this long is what a program printed: its last digits are noise."""
_CONSTANT = tree.symbol("C")
_SMALL = tree.symbol("c")
_FLOAT_NOISE = Fraction(1, 10**12)


def same_scalar(gold: Node, answer: Node, policy: Policy) -> bool:
    if gold.kind == "number" and answer.kind == "number" and gold.value == answer.value:
        return True
    if gold.kind == "call" and answer.kind == "call" and gold.name == answer.name == "ratio":
        return _same_ratio(gold, answer)
    if has_degrees(gold) or has_degrees(answer):
        bare_gold = without_degrees(gold)
        bare_answer = without_degrees(answer)
        if (bare_gold, bare_answer) != (gold, answer) and same_scalar(
            bare_gold, bare_answer, policy
        ):
            return True
        if not ("π" in _names(gold) or "π" in _names(answer)):
            return False
    gold, answer = _with_one_constant(gold, answer)
    if same_value(gold, answer) or same_value(_with_common_log(gold), _with_common_log(answer)):
        return True
    return _is_rounded(gold, answer, policy) or _is_near(gold, answer, policy)


def _with_one_constant(gold: Node, answer: Node) -> tuple[Node, Node]:
    """Spell the constant of integration one way: + c is + C."""
    for one, other in ((gold, answer), (answer, gold)):
        is_sum = one.kind == other.kind == "add" and _CONSTANT in one.args and _SMALL in other.args
        if is_sum and "c" not in _names(one) and "C" not in _names(other):
            return tree.with_symbol(gold, "c", _CONSTANT), tree.with_symbol(answer, "c", _CONSTANT)
    return gold, answer


def _with_common_log(node: Node) -> Node:
    """Read a logarithm without a base as one to base ten; `values` reads it as the natural one."""
    if not node.args:
        return node
    args = [_with_common_log(part) for part in node.args]
    return (
        tree.call("log10", *args)
        if node.kind == "call" and node.name == "log"
        else tree.rebuilt(node, args)
    )


def without_degrees(node: Node) -> Node:
    if node.kind == "call" and node.name == "degree":
        return without_degrees(node.args[0])
    return tree.rebuilt(node, [without_degrees(part) for part in node.args]) if node.args else node


def has_degrees(node: Node) -> bool:
    return any(part.kind == "call" and part.name == "degree" for part in tree.walk(node))


def _names(node: Node) -> set[str]:
    return {part.name for part in tree.walk(node) if part.kind == "symbol"}


def _same_ratio(gold: Node, answer: Node) -> bool:
    if len(gold.args) != len(answer.args):
        return False
    if tree.ZERO in gold.args + answer.args:
        return gold.args == answer.args
    first = (gold.args[0], answer.args[0])
    return all(
        same_value(tree.mul(g, first[1]), tree.mul(a, first[0])) is True
        for g, a in zip(gold.args, answer.args, strict=True)
    )


def _is_rounded(gold: Node, answer: Node, policy: Policy) -> bool:
    """Whether one side is a decimal that gives the other to all of its digits, and has enough of
    them."""
    if gold.digits and answer.digits:
        longest = max(gold.digits, answer.digits)
        size = max(abs(gold.value), abs(answer.value))
        return longest >= FLOAT_DIGITS and abs(gold.value - answer.value) <= size * _FLOAT_NOISE
    decimal, other = (gold, answer) if gold.digits else (answer, gold)
    if not policy.rounded_digits or decimal.digits < policy.rounded_digits:
        return False
    exact = _constant(other)
    if exact is None:
        return False
    off = exact - decimal.value
    last_place = _last_place(decimal)
    is_cut = abs(off) < last_place and (off > 0) == (exact > 0)
    is_noise = decimal.digits >= FLOAT_DIGITS and abs(off) <= abs(exact) * _FLOAT_NOISE
    return abs(off) <= last_place / 2 or is_cut or is_noise


def is_rounding(exact: Node, decimal: Node) -> bool:
    """Whether a decimal is a constant, rounded to the places it has."""
    if not decimal.digits or exact.digits:
        return False
    known = _constant(exact)
    return known is not None and abs(known - decimal.value) <= _last_place(decimal) / 2


def _is_near(gold: Node, answer: Node, policy: Policy) -> bool:
    """Whether the answer is within the tolerance that the problem or the settings allow."""
    if not policy.tolerance and not policy.error:
        return False
    left = _constant(gold)
    right = _constant(answer)
    if left is None or right is None:
        return False
    allowed = max(abs(left) * Fraction(policy.tolerance), Fraction(policy.error))
    return abs(left - right) <= allowed


def _constant(node: Node) -> Fraction | None:
    """Evaluate a real expression without unknowns, to about forty digits."""
    if node.kind == "number":
        return node.value
    try:
        found = constant(node)
    except NoValueError:
        return None
    if abs(found.imag) > abs(found.real) * 10**-30:
        return None
    return to_fraction(found)


def _last_place(decimal: Node) -> Fraction:
    size = abs(decimal.value)
    exponent = 0
    if not size:
        return Fraction(0)
    exponent = len(str(size.numerator)) - len(str(size.denominator))
    while Fraction(10) ** exponent > size:
        exponent -= 1
    while Fraction(10) ** (exponent + 1) <= size:
        exponent += 1
    return Fraction(10) ** (exponent + 1 - decimal.digits)
