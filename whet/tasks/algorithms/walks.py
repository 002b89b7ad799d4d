"""Textbook algorithms that walk a graph depth first, or join its edges, with the conventions of
CLRS-Text.

Nodes are taken up in rising order, and a node without a parent is its own parent.
"""

from collections.abc import Iterator
from itertools import combinations, pairwise

from whet.tasks.algorithms.runs import Matrix


def depth_first(adjacency: Matrix) -> list[int]:
    """Give each node's parent in the forest that a depth-first search grows."""
    return _Walk(adjacency, range(len(adjacency))).parents


def topological_sort(adjacency: Matrix) -> tuple[list[int], int]:
    """Give each node the one after it in the order (the last has itself), and the first node."""
    order = _Walk(adjacency, range(len(adjacency))).finished[::-1]
    after = list(range(len(adjacency)))
    for node, following in pairwise(order):
        after[node] = following
    return after, order[0]


def strong_components(adjacency: Matrix) -> list[int]:
    """Give each node a node that stands for its strong component: the one reached first of it, by
    latest finish."""
    size = len(adjacency)
    order = _Walk(adjacency, range(size)).finished[::-1]
    turned = [[adjacency[b][a] for b in range(size)] for a in range(size)]
    parents = _Walk(turned, order).parents
    return [_root(parents, node) for node in range(size)]


def articulation_points(adjacency: Matrix) -> list[int]:
    """Mark the nodes without which more parts would be unconnected."""
    size = len(adjacency)
    whole = _num_parts(adjacency, set(range(size)))
    return [
        int(
            _num_parts(adjacency, set(range(size)) - {node})
            > whole - (not _around(adjacency, node))
        )
        for node in range(size)
    ]


def bridges(adjacency: Matrix) -> list[list[int]]:
    """Mark the edges without which more parts would be unconnected: 1 and 0, and -1 where there is
    no edge."""
    size = len(adjacency)
    nodes = set(range(size))
    marks = [[0 if a == b or adjacency[a][b] else -1 for b in range(size)] for a in range(size)]
    whole = _num_parts(adjacency, nodes)
    for a, b in combinations(range(size), 2):
        if adjacency[a][b]:
            cut = [list(row) for row in adjacency]
            cut[a][b] = cut[b][a] = 0
            marks[a][b] = marks[b][a] = int(_num_parts(cut, nodes) > whole)
    return marks


def kruskal(adjacency: Matrix) -> list[list[int]]:
    """Mark the edges of the lightest spanning forest, both ways."""
    size = len(adjacency)
    parents = list(range(size))
    marks = [[0] * size for _ in range(size)]
    edges = [(adjacency[a][b], a, b) for a, b in combinations(range(size), 2) if adjacency[a][b]]
    for _, a, b in sorted(edges):
        if _root(parents, a) != _root(parents, b):
            parents[_root(parents, a)] = _root(parents, b)
            marks[a][b] = marks[b][a] = 1
    return marks


def floyd_warshall(adjacency: Matrix) -> list[list[int]]:
    """Give, for each two nodes, the last node before the second on the shortest way from the first.

    A node with an edge to itself is as far from itself as that edge is long.
    """
    size = len(adjacency)
    far = float("inf")
    away = [[adjacency[a][b] or (0.0 if a == b else far) for b in range(size)] for a in range(size)]
    before = [[a] * size for a in range(size)]
    for k in range(size):
        for a in range(size):
            for b in range(size):
                if away[a][k] + away[k][b] < away[a][b]:
                    away[a][b] = away[a][k] + away[k][b]
                    before[a][b] = before[k][b]
    return before


class _Walk:
    """A depth-first search from each node of an order that is still unseen."""

    def __init__(self, adjacency: Matrix, order: "range | list[int]") -> None:
        self.parents = list(range(len(adjacency)))
        self.finished: list[int] = []
        self._seen: set[int] = set()
        for node in order:
            if node not in self._seen:
                self._visit(adjacency, node)

    def _visit(self, adjacency: Matrix, node: int) -> None:
        self._seen.add(node)
        for other in range(len(adjacency)):
            if adjacency[node][other] and other not in self._seen:
                self.parents[other] = node
                self._visit(adjacency, other)
        self.finished.append(node)


def _root(parents: list[int], node: int) -> int:
    while parents[node] != node:
        node = parents[node]
    return node


def _around(adjacency: Matrix, node: int) -> list[int]:
    return [other for other in range(len(adjacency)) if other != node and adjacency[node][other]]


def _num_parts(adjacency: Matrix, nodes: set[int]) -> int:
    return sum(1 for _ in _parts(adjacency, nodes))


def _parts(adjacency: Matrix, nodes: set[int]) -> Iterator[set[int]]:
    """Take the connected parts of some of the nodes."""
    left = set(nodes)
    while left:
        todo = [left.pop()]
        part = set(todo)
        while todo:
            found = [other for other in _around(adjacency, todo.pop()) if other in left]
            left -= set(found)
            part |= set(found)
            todo += found
        yield part
