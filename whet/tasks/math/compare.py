"""Decide whether two trees are the same answer, down to their expressions.

Lists, sets, tuples, intervals, matrices, equations and inequalities are compared here. Where bounds
on an unknown meet intervals, both are compared as sets: x < 1 or x >= 2 is (-∞, 1) ∪ [2, ∞).
`numeric` compares the expressions.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from whet.tasks.math import tree
from whet.tasks.math.corners import has_jump
from whet.tasks.math.numeric import (
    MathConfig,
    is_rounding,
    ratio_sign,
    read_residue,
    same_scalar,
    same_value,
    to_float,
)
from whet.tasks.math.tree import INFINITY, Node, NotMathError, is_name

MAX_ITEMS = 64
MAX_JUMPING_ITEMS = 8
"""Floors of unknowns take up to a tenth of a second a pair, so that few are paired off."""

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "in": "in"}
_OPAQUE = ("lim", "sum", "prod", "int")
_EMPTY = tree.symbol("∅")
_BASIS = {letter: tree.symbol(f"vector {letter}") for letter in "ijk"}
_DIFFERENCE = "difference"
"""The name of a set difference that cannot be worked out."""
_NEGATIVE_INFINITY = tree.negative(INFINITY)
_REALS = (tree.symbol("field R"), tree.symbol("R"), tree.seq("()", (_NEGATIVE_INFINITY, INFINITY)))


def same_tree(gold: Node, answer: Node, rules: MathConfig) -> bool:
    """Compare two answers; if that cannot be decided, they are not the same."""
    try:
        return gold == answer or _same_by_kind(gold, answer, rules)
    except NotMathError:  # numbers beyond the limits, or a division by what turns out to be zero
        return False


def _same_by_kind(gold: Node, answer: Node, rules: MathConfig) -> bool:
    if gold.kind == "number" and answer.kind == "relation":
        answer = read_residue(answer)
    if gold.kind == "relation" or answer.kind == "relation":
        return any(
            _same_relation(one, other, rules)
            for one in _with_and_without_rounding(gold, answer)
            for other in _with_and_without_rounding(answer, gold)
        )
    if gold.name == answer.name == _DIFFERENCE:
        return _same_in_order(gold.args, answer.args, rules)
    gold, answer = _read_basis(gold, answer), _read_basis(answer, gold)
    gold, answer = _read_point(gold, answer), _read_point(answer, gold)
    if _is_collection(gold) or _is_collection(answer):
        return _same_collection(gold, answer, rules)
    return same_scalar(gold, answer, rules)


def _with_and_without_rounding(node: Node, other: Node) -> list[Node]:
    """List an equality chain with and without a final decimal: 6 pi = 18.85 also says 6 pi."""
    if node.kind != "relation" or other.kind != "relation" or set(node.name.split()) != {"="}:
        return [node]
    *parts, last = node.args
    if not is_rounding(parts[-1], last):
        return [node]
    if len(parts) == 1:
        return [node, parts[0]]
    return [node, node._replace(args=tuple(parts), name=" ".join(["="] * (len(parts) - 1)))]


def _read_point(node: Node, other: Node) -> Node:
    """Read M(3, 3) as a point if the other side is one, and y = 2, x = 3 in the order x, y, z."""
    if other.kind != "seq" or other.name not in ("()", "matrix"):
        return node
    if node.kind == "call" and len(node.name) == 1 and node.name.isupper():
        return tree.seq("()", node.args)
    if node.kind != "seq" or node.name or not all(_is_assignment(part) for part in node.args):
        return node
    names = [part.args[0].name for part in node.args]
    is_point = set(names) <= set("xyz") and len(set(names)) == len(names)
    return node._replace(args=tuple(sorted(node.args))) if is_point else node


def _read_basis(node: Node, other: Node) -> Node:
    """Read 2i + 3j as a vector if the other side is one, and as a tuple if the other side is a
    tuple."""
    if node.kind not in ("add", "mul", "symbol"):
        return node
    is_tuple = other.kind == "seq" and other.name in ("()", "matrix")
    names = tree.names(node)
    if "i" in names and names & {"j", "k"} and (is_tuple or _BASIS["i"].name in tree.names(other)):
        for letter, unit in _BASIS.items():
            node = tree.substitute(node, letter, unit)
    elif not is_tuple or names.isdisjoint(unit.name for unit in _BASIS.values()):
        return node
    num_cells = sum(len(part.args) if part.name == "row" else 1 for part in other.args)
    return _components_of(node, num_cells) if is_tuple else node


def _components_of(vector: Node, num_cells: int) -> Node:
    """Write a sum of i, j and k as a tuple; return anything else unchanged."""
    components = []
    for axis in _BASIS.values():
        component = vector
        for unit in _BASIS.values():
            component = tree.substitute(
                component, unit.name, tree.ONE if unit == axis else tree.ZERO
            )
        components.append(component)
    total = tree.add(*map(tree.mul, components, _BASIS.values()))
    size = 3 if num_cells != 2 or components[2] != tree.ZERO else 2
    return tree.seq("()", components[:size]) if same_value(total, vector) else vector


def _same_relation(gold: Node, answer: Node, rules: MathConfig) -> bool:
    if gold.kind != answer.kind:
        return _same_relation_and_value(gold, answer, rules)
    are_assignments = _is_assignment(gold) and _is_assignment(answer)
    if are_assignments and _names_agree(gold.args[0], answer.args[0]):
        return same_tree(gold.args[-1], answer.args[-1], rules)
    has_unknowns = tree.symbols(gold) and tree.symbols(answer)
    are_pairs = len(gold.args) == 2 and len(answer.args) == 2
    if has_unknowns and are_pairs and _same_pair(gold, answer):
        return True
    gold_set = _solution_set(gold)
    answer_set = _solution_set(answer)
    if gold_set is not None and answer_set is not None:
        return _find_variable(gold) == _find_variable(answer) and same_tree(
            gold_set, answer_set, rules
        )
    return _same_chain(gold, answer, rules)


def _names_agree(a: Node, b: Node) -> bool:
    """Whether two names can mean the same thing: the same name, or y and f(x)."""
    name, other = (a, b) if a.kind == "symbol" else (b, a)
    if a == b or other.kind != "mul" or len(other.args) != 2:
        return a == b
    is_y = name == tree.symbol("y") and tree.symbol("f") in other.args
    return is_y or (name.kind == "symbol" and name.name in "yuvw" and name in other.args)


def _same_pair(gold: Node, answer: Node) -> bool:
    """Compare two equations, or two inequalities, by their difference of sides."""
    left, right = (tree.add(side.args[0], tree.negative(side.args[1])) for side in (gold, answer))
    if _is_solved(gold) and not (same_value(left, right) or same_value(left, tree.negative(right))):
        return False  # x = 4 is not given by 6x = 24
    sign = ratio_sign(left, right)
    if gold.name == answer.name:
        return sign == 1 or (sign == -1 and gold.name in ("=", "!="))
    return sign == -1 and _FLIPPED[answer.name] == gold.name


def _is_solved(relation: Node) -> bool:
    """Whether a relation is between one unknown and a constant."""
    sides = [side for side in relation.args if tree.symbols(side)]
    return len(sides) == 1 and sides[0].kind == "symbol"


def _same_chain(gold: Node, answer: Node, rules: MathConfig) -> bool:
    """Compare two chains link by link, forwards or backwards."""
    signs = answer.name.split()
    if signs == gold.name.split():
        return _same_in_order(gold.args, answer.args, rules)
    if [_FLIPPED[sign] for sign in reversed(signs)] == gold.name.split():
        return _same_in_order(gold.args, answer.args[::-1], rules)
    return False


def _same_relation_and_value(gold: Node, answer: Node, rules: MathConfig) -> bool:
    relation, other = (gold, answer) if gold.kind == "relation" else (answer, gold)
    solutions = _solution_set(relation)
    if solutions is not None and _is_collection(other):
        is_list = other.kind == "seq" and other.name == ""
        return not is_list and same_tree(solutions, other, rules)
    stated = None if rules.names == "keep" else _stated_value(relation)
    if stated is None:
        return False
    values = [stated]
    if stated is relation.args[-1] and is_rounding(relation.args[-2], stated):
        values.append(relation.args[-2])  # 6 pi = 18.85 says 6 pi
    return any(
        same_tree(value, other, rules) if relation is gold else same_tree(other, value, rules)
        for value in values
    )


def _stated_value(relation: Node) -> Node | None:
    """Find the value that a chain of equalities gives; None if it is an equation.

    These give values: x = 2, 2 = x, 10^3 = 1000.
    """
    if set(relation.name.split()) != {"="}:
        return None
    first = relation.args[0]
    last = relation.args[-1]
    is_opaque = first.kind == "call" and first.name in _OPAQUE
    if is_name(first) or is_opaque or tree.is_applied(first, last):
        return last
    is_reversed = last.kind == "symbol" and is_name(last) and len(relation.args) == 2
    if is_reversed and last.name not in tree.symbols(first):
        return first
    return last if not (tree.symbols(first) or tree.symbols(last)) else None


def _same_collection(gold: Node, answer: Node, rules: MathConfig) -> bool:
    gold, answer = (_join_bounds(side) or side for side in (gold, answer))
    if _is_union(gold) or _is_union(answer):
        if not (_is_collection(gold) and _is_collection(answer)):
            return False
        return _same_in_any_order(
            _list_components(gold), _list_components(answer), rules, is_set=True
        )
    if gold.kind != "seq" or answer.kind != "seq":
        return _same_single(gold, answer, rules)
    return _same_sequence(gold, answer, rules)


def _same_sequence(gold: Node, answer: Node, rules: MathConfig) -> bool:
    names = {gold.name, answer.name}
    if "matrix" in names:
        return _same_matrix(gold, answer, rules)
    if gold.name == "" and answer.name == "{}" and rules.order == "fixed":
        return _same_in_order(gold.args, answer.args, rules)
    if names == {"{}"} or names == {"{}", ""}:
        return _same_in_any_order(gold.args, answer.args, rules, is_set=True)
    if names == {""} and rules.order == "free":
        has_groups = all(part.kind == "seq" for part in gold.args + answer.args)
        return _same_in_any_order(gold.args, answer.args, rules, is_set=has_groups)
    return not _has_other_brackets(gold, answer) and _same_in_order(gold.args, answer.args, rules)


def _has_other_brackets(gold: Node, answer: Node) -> bool:
    """Whether the brackets of two sequences, or their lack, mean different things."""
    names = {gold.name, answer.name}
    if len(names) == 1:
        return False
    if _has_one_name(gold) or _has_one_name(answer):
        return True  # x = 1 or x = 2 is not the point (1, 2)
    if not names.isdisjoint(("{}", "[)", "(]")):
        return True  # {1, 2} is not a point, and [1, 2) is only an interval
    if not len(gold.args) == len(answer.args) == 2:
        return False  # (1, 2, 3) and [1, 2, 3] are the same tuple
    if "" not in names:
        return True  # (1, 2) and [1, 2] are intervals
    return "[]" in names or _has_infinity(gold)  # bare ends are not an interval


def _has_infinity(node: Node) -> bool:
    return "∞" in tree.names(node)


def _has_one_name(side: Node) -> bool:
    """Whether a bare list gives one name several values."""
    if side.name or len(side.args) < 2 or not all(_is_assignment(part) for part in side.args):
        return False
    return len({part.args[0] for part in side.args}) == 1


def _same_single(gold: Node, answer: Node, rules: MathConfig) -> bool:
    """Compare a sequence with something else: equal if it is a bare list of just that."""
    many, one = (gold, answer) if gold.kind == "seq" else (answer, gold)
    if one == _EMPTY:
        return not many.args and many.name == "{}"
    if len(many.args) != 1 or many.name:
        return False
    return (
        same_tree(many.args[0], one, rules) if many is gold else same_tree(one, many.args[0], rules)
    )


def _same_matrix(gold: Node, answer: Node, rules: MathConfig) -> bool:
    if gold.name == answer.name:
        return _same_rows(gold, answer, rules)
    matrix, other = (gold, answer) if gold.name == "matrix" else (answer, gold)
    is_vector = len(matrix.args) == 1 or all(len(row.args) == 1 for row in matrix.args)
    if is_vector and other.name in ("()", "[]", ""):
        cells = [cell for row in matrix.args for cell in row.args]
        return _same_in_order(cells, other.args, rules)
    return other.name in ("()", "[]") and _same_rows(matrix, other, rules)


def _same_rows(a: Node, b: Node, rules: MathConfig) -> bool:
    """Compare row by row; rows may be in brackets: [[1, 2], [3, 4]]."""
    return len(a.args) == len(b.args) and all(
        row.kind == other.kind == "seq" and _same_in_order(row.args, other.args, rules)
        for row, other in zip(a.args, b.args, strict=True)
    )


def _same_in_order(gold: Sequence[Node], answer: Sequence[Node], rules: MathConfig) -> bool:
    return len(gold) == len(answer) and all(
        same_tree(g, a, rules) for g, a in zip(gold, answer, strict=True)
    )


def _same_in_any_order(
    gold: Sequence[Node], answer: Sequence[Node], rules: MathConfig, *, is_set: bool
) -> bool:
    """Pair the items off; in a set, an item written twice counts once."""
    jumps = any(has_jump(item) and tree.symbols(item) for item in (*gold, *answer))
    limit = MAX_JUMPING_ITEMS if jumps else MAX_ITEMS
    if max(len(gold), len(answer)) > limit:
        return _same_in_order(gold, answer, rules)
    if is_set:
        gold = _distinct(gold, rules)
        answer = _distinct(answer, rules)
    if len(gold) != len(answer):
        return False
    rest = list(answer)
    for item in gold:
        match = next(
            (index for index, other in enumerate(rest) if same_tree(item, other, rules)), None
        )
        if match is None:
            return False
        del rest[match]
    return True


def _distinct(items: Sequence[Node], rules: MathConfig) -> list[Node]:
    kept: list[Node] = []
    for item in items:
        if not any(same_tree(item, other, rules) for other in kept):
            kept.append(item)
    return kept


def _is_assignment(node: Node) -> bool:
    return node.kind == "relation" and set(node.name.split()) == {"="} and is_name(node.args[0])


def _is_collection(node: Node) -> bool:
    return node.kind == "seq" or _is_union(node) or node == _EMPTY


def _solution_set(relation: Node) -> Node | None:
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


def _join_bounds(node: Node) -> Node | None:
    """Turn bounds on one unknown into a set: x < 1, x > 2 into a union, x > 1, x < 2 into an
    interval."""
    if node.kind != "seq" or node.name or len(node.args) < 2 or _find_variable(node) is None:
        return None
    sides = []
    for part in node.args:
        side = _solution_set(part) if part.kind == "relation" else None
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
    """Return the position of an interval's end; NaN, which compares false, if it is unknown."""
    if end in (INFINITY, _NEGATIVE_INFINITY):
        return math.inf if end == INFINITY else -math.inf
    return to_float(end)


def _list_components(node: Node) -> list[Node]:
    """List the parts of a union, with single points by themselves; anything else is its only part.

    The reals without some numbers are the open intervals between those numbers.
    """
    if node.kind == "call" and node.name == "without":
        whole, points = node.args
        is_known = points.name == "{}" and all(part.kind == "number" for part in points.args)
        if whole not in _REALS or not is_known:
            return [node._replace(name=_DIFFERENCE)]
        numbers = sorted(set(points.args), key=lambda part: part.value)
        ends = pairwise([_NEGATIVE_INFINITY, *numbers, INFINITY])
        return [tree.seq("()", pair) for pair in ends]
    parts: list[Node] = []
    for part in node.args if _is_union(node) else (node,):
        is_set = part.kind == "seq" and part.name == "{}"
        parts += [tree.seq("{}", (item,)) for item in part.args] if is_set else [part]
    return parts


def _find_variable(relation: Node) -> str | None:
    """Find the one unknown of a relation."""
    names = tree.symbols(relation)
    return next(iter(names)) if len(names) == 1 else None


def _is_union(node: Node) -> bool:
    return node.kind == "call" and node.name in ("union", "without")
