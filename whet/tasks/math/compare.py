"""Whether two trees are the same answer: lists, sets, tuples, intervals and equations, down to
their expressions."""

from collections.abc import Sequence

from whet.tasks.math import sets, tree
from whet.tasks.math.policy import Policy
from whet.tasks.math.scalars import is_rounding, same_scalar
from whet.tasks.math.tree import Node
from whet.tasks.math.values import ratio_of

MAX_ITEMS = 64

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "in": "in"}
_OPAQUE = ("lim", "sum", "prod", "int")


def same(gold: Node, answer: Node, policy: Policy) -> bool:
    """Compare two answers; where it cannot be decided they are not the same."""
    if gold == answer:
        return True
    if gold.kind == "relation" or answer.kind == "relation":
        return _same_relation(gold, answer, policy)
    if sets.is_collection(gold) or sets.is_collection(answer):
        return _same_collection(gold, answer, policy)
    return same_scalar(gold, answer, policy)


def _same_relation(gold: Node, answer: Node, policy: Policy) -> bool:
    if gold.kind != answer.kind:
        return _same_relation_and_value(gold, answer, policy)
    if (
        sets.is_assignment(gold)
        and sets.is_assignment(answer)
        and _names_agree(gold.args[0], answer.args[0])
    ):
        return same(gold.args[-1], answer.args[-1], policy)
    if len(gold.args) == 2 and len(answer.args) == 2 and _same_pair(gold, answer):
        return True
    gold_set = sets.solution_set(gold)
    answer_set = sets.solution_set(answer)
    if gold_set is not None and answer_set is not None:
        return sets.variable(gold) == sets.variable(answer) and same(gold_set, answer_set, policy)
    return _same_chain(gold, answer, policy)


def _same_chain(gold: Node, answer: Node, policy: Policy) -> bool:
    """Compare two chains link by link, forwards or backwards."""
    signs = answer.name.split()
    if len(gold.args) != len(answer.args):
        return False
    if signs == gold.name.split():
        return all(same(g, a, policy) for g, a in zip(gold.args, answer.args, strict=True))
    if [_FLIPPED[sign] for sign in reversed(signs)] == gold.name.split():
        return all(
            same(g, a, policy) for g, a in zip(gold.args, reversed(answer.args), strict=True)
        )
    return False


def _same_relation_and_value(gold: Node, answer: Node, policy: Policy) -> bool:
    relation, other = (gold, answer) if gold.kind == "relation" else (answer, gold)
    solutions = sets.solution_set(relation)
    if solutions is not None and sets.is_collection(other):
        return same(solutions, other, policy)
    if policy.names == "keep":
        return False
    told = _told(relation)
    values = [] if told is None else [told]
    if told is relation.args[-1] and is_rounding(relation.args[-2], told):
        values.append(relation.args[-2])  # 6 pi = 18.85 says 6 pi
    return any(
        same(value, other, policy) if relation is gold else same(other, value, policy)
        for value in values
    )


def _told(relation: Node) -> Node | None:
    """Find the value that a chain of equalities gives: x = 2, 2 = x, 10^3 = 1000; None where it is
    an equation."""
    if set(relation.name.split()) != {"="}:
        return None
    first = relation.args[0]
    last = relation.args[-1]
    if sets.is_name(first) or (first.kind == "call" and first.name in _OPAQUE):
        return last
    if (
        last.kind == "symbol"
        and sets.is_name(last)
        and len(relation.args) == 2
        and last.name not in tree.symbols(first)
    ):
        return first
    return last if not (tree.symbols(first) or tree.symbols(last)) else None


def _names_agree(a: Node, b: Node) -> bool:
    """Whether two sides that are named may be one: the same name, or y against f(x)."""
    return a == b or any(
        one == tree.symbol("y") and other.kind == "mul" and tree.symbol("f") in other.args
        for one, other in ((a, b), (b, a))
    )


def _same_pair(gold: Node, answer: Node) -> bool:
    """Compare two equations, or two inequalities, by their difference of sides."""
    left, right = (tree.add(side.args[0], tree.negative(side.args[1])) for side in (gold, answer))
    sign = ratio_of(left, right)
    if gold.name == answer.name:
        return sign == 1 or (sign == -1 and gold.name in ("=", "!="))
    return sign == -1 and _FLIPPED[answer.name] == gold.name


def _same_collection(gold: Node, answer: Node, policy: Policy) -> bool:
    gold, answer = (sets.joint_bounds(side) or side for side in (gold, answer))
    if sets.is_union(gold) or sets.is_union(answer):
        return _unordered(sets.components(gold), sets.components(answer), policy, is_set=True)
    if gold.kind != "seq" or answer.kind != "seq":
        return _same_single(gold, answer, policy)
    return _same_sequence(gold, answer, policy)


def _same_sequence(gold: Node, answer: Node, policy: Policy) -> bool:
    names = {gold.name, answer.name}
    if "matrix" in names:
        return _same_matrix(gold, answer, policy)
    if names == {"{}"} or names == {"{}", ""}:
        return _unordered(gold.args, answer.args, policy, is_set=True)
    if names == {""} and policy.order == "free":
        has_groups = all(part.kind == "seq" for part in gold.args + answer.args)
        return _unordered(gold.args, answer.args, policy, is_set=has_groups)
    if len(names) > 1 and any(_is_of_one_name(side) for side in (gold, answer)):
        return False  # x = 1 or x = 2 is no point (1, 2)
    is_other_interval = len(names) > 1 and (
        bool(names & {"{}", "[)", "(]"}) or (len(gold.args) == 2 and "" not in names)
    )
    return not is_other_interval and _ordered(gold.args, answer.args, policy)


def _is_of_one_name(side: Node) -> bool:
    """Whether a bare list gives one name several values."""
    firsts = [
        part.args[0] for part in side.args if part.kind == "relation" and sets.is_assignment(part)
    ]
    return not side.name and len(firsts) == len(side.args) > 1 and len(set(firsts)) == 1


def _same_single(gold: Node, answer: Node, policy: Policy) -> bool:
    """Compare a sequence with a thing that is none: equal where it holds just that thing."""
    many, one = (gold, answer) if gold.kind == "seq" else (answer, gold)
    if one == tree.symbol("∅"):
        return not many.args and many.name == "{}"
    if len(many.args) != 1 or many.name:
        return False
    return same(many.args[0], one, policy) if many is gold else same(one, many.args[0], policy)


def _same_matrix(gold: Node, answer: Node, policy: Policy) -> bool:
    if gold.name == answer.name:
        shape, other = ([len(row.args) for row in side.args] for side in (gold, answer))
        return shape == other and all(
            _ordered(g.args, a.args, policy) for g, a in zip(gold.args, answer.args, strict=True)
        )
    matrix, row = (gold, answer) if gold.name == "matrix" else (answer, gold)
    if row.name not in ("()", "[]", "") or not (
        len(matrix.args) == 1 or len(matrix.args[0].args) == 1
    ):
        return _rows_agree(matrix, row, policy)
    flat = tuple(cell for line in matrix.args for cell in line.args)
    return _ordered(flat, row.args, policy)


def _rows_agree(matrix: Node, rows: Node, policy: Policy) -> bool:
    """Compare a matrix with rows in brackets: [[1, 2], [3, 4]]."""
    if rows.name not in ("()", "[]") or len(rows.args) != len(matrix.args):
        return False
    pairs = zip(matrix.args, rows.args, strict=True)
    return all(row.kind == "seq" and _ordered(line.args, row.args, policy) for line, row in pairs)


def _ordered(gold: Sequence[Node], answer: Sequence[Node], policy: Policy) -> bool:
    return len(gold) == len(answer) and all(
        same(g, a, policy) for g, a in zip(gold, answer, strict=True)
    )


def _unordered(
    gold: Sequence[Node], answer: Sequence[Node], policy: Policy, *, is_set: bool
) -> bool:
    """Pair the items off; in a set, an item written twice counts once."""
    if max(len(gold), len(answer)) > MAX_ITEMS:
        return _ordered(gold, answer, policy)
    if is_set:
        gold = _distinct(gold, policy)
        answer = _distinct(answer, policy)
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for item in gold:
        place = next((index for index, other in enumerate(left) if same(item, other, policy)), None)
        if place is None:
            return False
        del left[place]
    return True


def _distinct(items: Sequence[Node], policy: Policy) -> list[Node]:
    found: list[Node] = []
    for item in items:
        if not any(same(item, other, policy) for other in found):
            found.append(item)
    return found
