"""Largest cliques, common induced subgraphs and isomorphism, each search bounded.

Cliques are found by branch and bound over bitsets, bounded by greedy colouring (Tomita and Seki
2003). Independent sets are cliques of the complement; a vertex cover is the complement of an
independent set. Common subgraphs and isomorphism refine partitions (McSplit: McCreesh, Prosser,
Trimble 2017): a search state is a list of classes, each with the nodes of A and of B that are
joined to the chosen pairs in the same way.
"""

from collections.abc import Sequence
from dataclasses import replace

from whet.tasks.graphs.paths import NODE_LIMIT, Edge, Solution, members


def max_clique(neighbours: Sequence[int], *, limit: int = NODE_LIMIT) -> Solution:
    """Find a largest set of nodes that are all joined; `neighbours` holds one bitset per node.

    >>> max_clique([0b0110, 0b0101, 0b1011, 0b0100]).lists
    ((0, 1, 2),)
    """
    best = 0
    nodes = 0
    stack = [(0, (1 << len(neighbours)) - 1, len(neighbours))]
    while stack and nodes < limit:
        chosen, candidates, bound = stack.pop()
        if bound <= best.bit_count():
            continue
        nodes += 1
        size = chosen.bit_count()
        if not candidates:
            best = chosen
            continue
        order, colours = _colour_greedily(neighbours, candidates)
        children = []
        for node, colour in zip(reversed(order), reversed(colours), strict=True):
            if size + colour <= best.bit_count():
                break
            children.append((chosen | 1 << node, candidates & neighbours[node], size + colour))
            candidates ^= 1 << node
        stack.extend(reversed(children))
    clique = members(best)
    return Solution(lists=(clique,), value=len(clique), nodes=nodes, is_proven=nodes < limit)


def max_independent_set(neighbours: Sequence[int], *, limit: int = NODE_LIMIT) -> Solution:
    """Find a largest set of nodes, no two of which are joined."""
    everyone = (1 << len(neighbours)) - 1
    complement = [everyone & ~mask & ~(1 << node) for node, mask in enumerate(neighbours)]
    return max_clique(complement, limit=limit)


def min_vertex_cover(neighbours: Sequence[int], *, limit: int = NODE_LIMIT) -> Solution:
    """Find a smallest set of nodes that touches every edge."""
    solution = max_independent_set(neighbours, limit=limit)
    cover = tuple(node for node in range(len(neighbours)) if node not in solution.lists[0])
    return replace(solution, lists=(cover,), value=len(cover))


def _colour_greedily(neighbours: Sequence[int], candidates: int) -> tuple[list[int], list[int]]:
    """Colour so that neighbours differ: a clique has at most as many nodes as its last node's
    colour."""
    order = []
    colours = []
    colour = 0
    while candidates:
        colour += 1
        free = candidates
        while free:
            low = free & -free
            node = low.bit_length() - 1
            candidates ^= low
            free &= ~(neighbours[node] | low)
            order.append(node)
            colours.append(colour)
    return order, colours


Classes = list[tuple[int, int]]


def max_common_subgraph(a: Sequence[int], b: Sequence[int], *, limit: int = NODE_LIMIT) -> Solution:
    """Find a largest pairing of nodes of A and B that preserves both edges and non-edges.

    >>> path, star = [0b0010, 0b0101, 0b1010, 0b0100], [0b0010, 0b1101, 0b0010, 0b0010]
    >>> max_common_subgraph(path, star).value
    3
    """
    best: tuple[Edge, ...] = ()
    nodes = 0
    most = min(len(a), len(b))
    everyone = [((1 << len(a)) - 1, (1 << len(b)) - 1)] if most else []
    stack: list[tuple[tuple[Edge, ...], Classes]] = [((), everyone)]
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
            rest = [sides for sides in classes if sides != (left, right)]
            others = left ^ 1 << node
            stack.append((pairs, [*rest, (others, right)] if others else rest))
        degree = a[node].bit_count()
        distance = {w: abs(b[w].bit_count() - degree) for w in members(right)}
        for partner in sorted(distance, key=distance.__getitem__, reverse=True):
            stack.append(((*pairs, (node, partner)), _split(classes, a, b, (node, partner))))
    lists = tuple(v for v, _ in best), tuple(w for _, w in best)
    is_proven = nodes < limit or len(best) == most
    return Solution(lists=lists, value=len(best), nodes=nodes, is_proven=is_proven)


def are_isomorphic(
    a: Sequence[int], b: Sequence[int], *, limit: int = 10 * NODE_LIMIT
) -> bool | None:
    """Whether two graphs differ only in numbering; None if the search reaches its limit."""
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
            _split(classes, a, b, (node, partner), is_strict=True) for partner in members(right)
        )
    return False


def induce(neighbours: Sequence[int], nodes: Sequence[int]) -> list[int]:
    """Return the subgraph induced by some nodes, numbered in the given order."""
    return [
        sum(1 << k for k, other in enumerate(nodes) if neighbours[node] >> other & 1)
        for node in nodes
    ]


def _split(
    classes: Classes, a: Sequence[int], b: Sequence[int], pair: Edge, *, is_strict: bool = False
) -> Classes:
    """Split classes by adjacency to a new pair; if strict, keep classes with only one side."""
    node, partner = pair
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
    def of_degree(masks: Sequence[int], degree: int) -> int:
        return sum(1 << node for node, mask in enumerate(masks) if mask.bit_count() == degree)

    degrees = {mask.bit_count() for mask in (*a, *b)}
    return [(of_degree(a, degree), of_degree(b, degree)) for degree in degrees]
