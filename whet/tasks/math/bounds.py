"""Bounds on one unknown, and unions of sets, as intervals: x < 1 or x >= 2 as (-∞, 1) ∪ [2, ∞)."""

import math
from itertools import pairwise

from whet.tasks.math import tree
from whet.tasks.math.numeric import to_float
from whet.tasks.math.tree import INFINITY, Node, is_name

DIFFERENCE = "difference"
"""A set without another where neither is known."""
_NEGATIVE_INFINITY = tree.negative(INFINITY)
_REALS = (tree.symbol("field R"), tree.symbol("R"), tree.seq("()", (_NEGATIVE_INFINITY, INFINITY)))


def solution_set(relation: Node) -> Node | None:
    """Turn bounds on one unknown, or on its absolute value, into an interval or union."""
    if relation.name == "!=":
        unknown, point = relation.args
        if unknown.kind != "symbol" or tree.symbols(point):
            return None
        below = tree.seq("()", (_NEGATIVE_INFINITY, point))
        return tree.call("union", below, tree.seq("()", (point, INFINITY)))
    parts = relation.args
    signs = relation.name.split()
    if all(sign in (">", ">=") for sign in signs):
        parts = parts[::-1]
        signs = [sign.replace(">", "<") for sign in reversed(signs)]
    if len(parts) == 2 and _is_bounded(parts[0]):
        parts = (_NEGATIVE_INFINITY, *parts)
        signs.insert(0, "<")
    elif len(parts) == 2:
        parts = (*parts, INFINITY)
        signs.append("<")
    is_chain = len(parts) == 3 and set(signs) <= {"<", "<="} and _is_bounded(parts[1])
    if not is_chain or tree.symbols(parts[0]) or tree.symbols(parts[2]):
        return None
    low, middle, high = parts
    right = _interval(low, signs[0], high, signs[1])
    if middle.kind != "call":
        return right
    if low == _NEGATIVE_INFINITY:
        return _interval(tree.negative(high), signs[1], high, signs[1])
    left = _interval(tree.negative(high), signs[1], tree.negative(low), signs[0])
    return tree.call("union", left, right)


def _is_bounded(node: Node) -> bool:
    if node.kind == "call" and node.name == "abs":
        node = node.args[0]
    if node.kind == "mul":  # g(x)
        return is_name(node) and any(part.name in ("f", "g", "h") for part in node.args)
    return node.kind == "symbol" and node.name not in tree.CONSTANTS


def _interval(low: Node, low_sign: str, high: Node, high_sign: str) -> Node:
    brackets = ("[" if low_sign == "<=" else "(") + ("]" if high_sign == "<=" else ")")
    return tree.seq(brackets, (low, high))


def join_bounds(node: Node) -> Node | None:
    """Turn bounds on one unknown into a set: x < 1, x > 2 a union, and x > 1, x < 2 an interval."""
    if node.kind != "seq" or node.name or len(node.args) < 2 or find_variable(node) is None:
        return None
    sides = []
    for part in node.args:
        side = solution_set(part) if part.kind == "relation" else None
        if side is None or side.kind != "seq":
            return None
        sides.append(side)
    sides.sort(key=lambda side: _location(side.args[0]))
    if all(_location(a.args[1]) <= _location(b.args[0]) for a, b in pairwise(sides)):
        return tree.call("union", *sides)
    low = sides[0]
    high = sides[-1]
    if len(sides) > 2 or low.args[0] != _NEGATIVE_INFINITY or high.args[1] != INFINITY:
        return None
    return tree.seq(high.name[0] + low.name[1], (high.args[0], low.args[1]))


def _location(end: Node) -> float:
    """Say where the end of an interval lies; NaN, neither before nor behind, if that is unknown."""
    if end in (INFINITY, _NEGATIVE_INFINITY):
        return math.inf if end == INFINITY else -math.inf
    return to_float(end)


def list_components(node: Node) -> list[Node]:
    """List the parts of a union, single points by themselves; anything else is its only part.

    The reals without some numbers are the intervals between those.
    """
    if node.kind == "call" and node.name == "without":
        whole, points = node.args
        is_known = points.name == "{}" and all(part.kind == "number" for part in points.args)
        if whole not in _REALS or not is_known:
            return [node._replace(name=DIFFERENCE)]
        numbers = sorted(set(points.args), key=lambda part: part.value)
        ends = pairwise([_NEGATIVE_INFINITY, *numbers, INFINITY])
        return [tree.seq("()", pair) for pair in ends]
    parts: list[Node] = []
    for part in node.args if is_union(node) else (node,):
        is_set = part.kind == "seq" and part.name == "{}"
        parts += [tree.seq("{}", (item,)) for item in part.args] if is_set else [part]
    return parts


def find_variable(relation: Node) -> str | None:
    """Find the one unknown of a relation."""
    names = tree.symbols(relation)
    return next(iter(names)) if len(names) == 1 else None


def is_union(node: Node) -> bool:
    return node.kind == "call" and node.name in ("union", "without")
