"""Largest cliques by branch and bound over bitsets, bounded by greedy colouring.

The bound is that of Tomita and Seki (2003). Independent sets are cliques of the complement; vertex
covers are what an independent set leaves out.
"""

from collections.abc import Sequence
from dataclasses import replace

from whet.tasks.graphs.solvers.base import NODE_LIMIT, Solution, members


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
    """Find a largest set of nodes of which no two are joined."""
    everyone = (1 << len(neighbours)) - 1
    complement = [everyone & ~mask & ~(1 << node) for node, mask in enumerate(neighbours)]
    return max_clique(complement, limit=limit)


def min_vertex_cover(neighbours: Sequence[int], *, limit: int = NODE_LIMIT) -> Solution:
    """Find a smallest set of nodes that touches every edge."""
    solution = max_independent_set(neighbours, limit=limit)
    cover = tuple(node for node in range(len(neighbours)) if node not in solution.lists[0])
    return replace(solution, lists=(cover,), value=len(cover))


def _colour_greedily(neighbours: Sequence[int], candidates: int) -> tuple[list[int], list[int]]:
    """Colour so that neighbours differ: a clique has at most as many nodes as its last colour."""
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
