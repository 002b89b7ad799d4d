"""Largest common induced subgraphs by partition refinement (McSplit: McCreesh, Prosser, Trimble
2017), and isomorphism.

A search state is a list of classes: nodes of A and of B that are joined to the pairs chosen so far
in the same way.
"""

from collections.abc import Sequence

from whet.tasks.graphs.solvers.found import NODE_LIMIT, Found, members

Classes = list[tuple[int, int]]


def max_common_subgraph(a: Sequence[int], b: Sequence[int], *, limit: int = NODE_LIMIT) -> Found:
    """Find a largest pairing of nodes of A with nodes of B that keeps both edges and non-edges; one
    bitset a node.

    >>> path, star = [0b0010, 0b0101, 0b1010, 0b0100], [0b0010, 0b1101, 0b0010, 0b0010]
    >>> max_common_subgraph(path, star).value
    3
    """
    best: tuple[tuple[int, int], ...] = ()
    nodes = 0
    most = min(len(a), len(b))
    stack: list[tuple[tuple[tuple[int, int], ...], Classes]] = [((), _whole(a, b))]
    while stack and nodes < limit and len(best) < most:
        pairs, classes = stack.pop()
        room = sum(min(left.bit_count(), right.bit_count()) for left, right in classes)
        if len(pairs) + room <= len(best):
            continue
        nodes += 1
        if len(pairs) > len(best):
            best = pairs
        if not classes:
            continue
        left, right = min(
            classes, key=lambda sides: max(sides[0].bit_count(), sides[1].bit_count())
        )
        node = max(members(left), key=lambda v: a[v].bit_count())
        if len(pairs) + room - (left.bit_count() <= right.bit_count()) > len(best):
            stack.append((pairs, _without(classes, (left, right), node)))
        for partner in sorted(
            members(right), key=lambda w: abs(b[w].bit_count() - a[node].bit_count()), reverse=True
        ):
            stack.append(((*pairs, (node, partner)), _split(classes, a, b, node, partner)))
    lists = tuple(v for v, _ in best), tuple(w for _, w in best)
    return Found(
        lists=lists, value=len(best), nodes=nodes, is_proven=nodes < limit or len(best) == most
    )


def are_isomorphic(
    a: Sequence[int], b: Sequence[int], *, limit: int = 10 * NODE_LIMIT
) -> bool | None:
    """Tell whether two graphs are the same but for the numbering; None where the search did not
    end."""
    if len(a) != len(b):
        return False
    nodes = 0
    stack = [_by_degree(a, b)]
    while stack:
        classes = stack.pop()
        nodes += 1
        if nodes > limit:
            return None
        if any(left.bit_count() != right.bit_count() for left, right in classes):
            continue
        if not classes:
            return True
        left, right = min(classes, key=lambda sides: sides[0].bit_count())
        node = max(members(left), key=lambda v: a[v].bit_count())
        stack.extend(
            _split(classes, a, b, node, partner, is_strict=True) for partner in members(right)
        )
    return False


def induced(neighbours: Sequence[int], nodes: Sequence[int]) -> list[int]:
    """Cut out the given nodes and the edges among them, numbered in the order given."""
    return [
        sum(1 << k for k, other in enumerate(nodes) if neighbours[node] >> other & 1)
        for node in nodes
    ]


def _whole(a: Sequence[int], b: Sequence[int]) -> Classes:
    return [((1 << len(a)) - 1, (1 << len(b)) - 1)] if a and b else []


def _without(classes: Classes, chosen: tuple[int, int], node: int) -> Classes:
    rest = [sides for sides in classes if sides != chosen]
    left = chosen[0] ^ 1 << node
    return [*rest, (left, chosen[1])] if left else rest


def _split(
    classes: Classes,
    a: Sequence[int],
    b: Sequence[int],
    node: int,
    partner: int,
    *,
    is_strict: bool = False,
) -> Classes:
    """Part every class by who is joined to the new pair. Strictly, a class with one empty side is
    kept as a misfit."""
    joined_a = a[node]
    joined_b = b[partner]
    apart_a = ~joined_a & ~(1 << node)
    apart_b = ~joined_b & ~(1 << partner)
    parts = []
    for left, right in classes:
        for sides in ((left & joined_a, right & joined_b), (left & apart_a, right & apart_b)):
            if (sides[0] or sides[1]) if is_strict else (sides[0] and sides[1]):
                parts.append(sides)
    return parts


def _by_degree(a: Sequence[int], b: Sequence[int]) -> Classes:
    degrees = {mask.bit_count() for mask in (*a, *b)}
    sides = [
        tuple(sum(1 << v for v, m in enumerate(g) if m.bit_count() == d) for g in (a, b))
        for d in degrees
    ]
    return [(left, right) for left, right in sides]
