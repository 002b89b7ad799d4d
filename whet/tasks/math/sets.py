"""What a tree is: a name, an assignment, a collection; and the sets that inequalities and unions
stand for."""

import math
from itertools import pairwise

from whet.tasks.math import tree
from whet.tasks.math.tree import INFINITY, Node
from whet.tasks.math.values import NoValueError, constant

_NEGATIVE_INFINITY = tree.negative(INFINITY)
_REALS = frozenset({"field R", "R"})


def is_name(node: Node) -> bool:
    """Whether a side of an equation only names what is asked: x, a_n, f(x), f(2), (p, q), |AB|,
    A:B."""
    if node.kind == "symbol":
        return node.name not in tree.CONSTANTS
    if node.kind == "pow":  # an inverse function
        return (
            node.args[0].kind == "symbol"
            and is_name(node.args[0])
            and node.args[1] == tree.MINUS_ONE
        )
    if node.kind in ("mul", "seq"):
        return bool(node.args) and all(is_name(part) for part in node.args)
    if node.kind == "call" and node.name not in (
        "sin",
        "cos",
        "tan",
        "ln",
        "log",
        "factorial",
        "union",
    ):
        is_short = len(node.name) == 1
        return bool(node.args) and all(
            is_name(part) or (is_short and part.kind == "number") for part in node.args
        )
    return False


def is_assignment(node: Node) -> bool:
    return node.kind == "relation" and set(node.name.split()) == {"="} and is_name(node.args[0])


def is_collection(node: Node) -> bool:
    return node.kind == "seq" or is_union(node) or node == tree.symbol("∅")


def is_union(node: Node) -> bool:
    return node.kind == "call" and node.name in ("union", "without")


def components(node: Node) -> tuple[Node, ...]:
    """List the parts of a union; a thing that is none is its own only part."""
    if node.kind == "call" and node.name == "without":
        split = _punctured(*node.args)
        return (node,) if split is None else split
    parts = node.args if is_union(node) else (node,)
    return tuple(single for part in parts for single in _singles(part))


def _singles(part: Node) -> tuple[Node, ...]:
    if part.kind == "seq" and part.name == "{}":
        return tuple(tree.seq("{}", (item,)) for item in part.args)
    return (part,)


def variable(relation: Node) -> str | None:
    """Find the one unknown of a relation."""
    names = tree.symbols(relation)
    return next(iter(names)) if len(names) == 1 else None


def solution_set(relation: Node) -> Node | None:
    """Turn bounds on one unknown, or on its absolute value, into an interval or union; None for
    other relations."""
    if relation.name == "!=":
        return _excluded(relation)
    bounds = _bounds(relation)
    if bounds is None:
        return None
    middle, low, low_sign, high, high_sign = bounds
    if middle.kind == "symbol":
        return _interval(low, low_sign, high, high_sign)
    if low == _NEGATIVE_INFINITY:
        return _interval(tree.negative(high), high_sign, high, high_sign)
    right = _interval(low, low_sign, high, high_sign)
    left = _interval(tree.negative(high), high_sign, tree.negative(low), low_sign)
    return tree.call("union", left, right)


def joint_bounds(node: Node) -> Node | None:
    """Turn bounds on one unknown into a set: x < 1 or x > 2 into a union, x > 1 and x < 2 into an
    interval."""
    if (
        node.kind != "seq"
        or node.name
        or len(node.args) < 2
        or any(part.kind != "relation" for part in node.args)
    ):
        return None
    sides = [
        side
        for part in node.args
        if (side := solution_set(part)) is not None and side.kind == "seq"
    ]
    if variable(node) is None or len(sides) != len(node.args):
        return None
    sides.sort(key=lambda side: _place(side.args[0]))
    if all(_place(a.args[1]) <= _place(b.args[0]) for a, b in pairwise(sides)):
        return tree.call("union", *sides)
    low = sides[0]
    high = sides[-1]
    if len(sides) > 2 or low.args[0] != _NEGATIVE_INFINITY or high.args[1] != INFINITY:
        return None
    return tree.seq(high.name[0] + low.name[1], (high.args[0], low.args[1]))


def _place(end: Node) -> float:
    """Say where the end of an interval lies; nowhere, which is neither before nor behind, if that
    is unknown."""
    if end in (INFINITY, _NEGATIVE_INFINITY):
        return math.inf if end == INFINITY else -math.inf
    try:
        return float(constant(end).real)
    except (NoValueError, OverflowError):
        return math.nan


def _excluded(relation: Node) -> Node | None:
    """Turn x != a into the union of the two sides."""
    if relation.args[0].kind != "symbol" or tree.symbols(relation.args[1]):
        return None
    point = relation.args[1]
    return tree.call(
        "union", tree.seq("()", (_NEGATIVE_INFINITY, point)), tree.seq("()", (point, INFINITY))
    )


def _bounds(relation: Node) -> tuple[Node, Node, str, Node, str] | None:
    parts = list(relation.args)
    signs = relation.name.split()
    if signs and all(sign in (">", ">=") for sign in signs):
        parts.reverse()
        signs = [sign.replace(">", "<") for sign in reversed(signs)]
    if not signs or not all(sign in ("<", "<=") for sign in signs):
        return None
    if (
        len(parts) == 3
        and _is_bounded(parts[1])
        and not tree.symbols(parts[0])
        and not tree.symbols(parts[2])
    ):
        return parts[1], parts[0], signs[0], parts[2], signs[1]
    if len(parts) == 2 and _is_bounded(parts[0]) and not tree.symbols(parts[1]):
        return parts[0], _NEGATIVE_INFINITY, "<", parts[1], signs[0]
    if len(parts) == 2 and _is_bounded(parts[1]) and not tree.symbols(parts[0]):
        return parts[1], parts[0], signs[0], INFINITY, "<"
    return None


def _is_bounded(node: Node) -> bool:
    if node.kind == "call" and node.name == "abs":
        node = node.args[0]
    return node.kind == "symbol" and node.name not in tree.CONSTANTS


def _interval(low: Node, low_sign: str, high: Node, high_sign: str) -> Node:
    return tree.seq(
        ("[" if low_sign == "<=" else "(") + ("]" if high_sign == "<=" else ")"), (low, high)
    )


def _punctured(whole: Node, points: Node) -> tuple[Node, ...] | None:
    """Write the reals without some numbers as intervals."""
    is_real = (whole.kind == "symbol" and whole.name in _REALS) or whole == tree.seq(
        "()", (_NEGATIVE_INFINITY, INFINITY)
    )
    if not is_real or points.name != "{}" or any(part.kind != "number" for part in points.args):
        return None
    ends = [_NEGATIVE_INFINITY, *sorted(set(points.args), key=lambda part: part.value), INFINITY]
    return tuple(tree.seq("()", pair) for pair in pairwise(ends))
