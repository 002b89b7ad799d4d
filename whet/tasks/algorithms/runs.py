"""Textbook algorithms on small inputs, with the conventions of CLRS-Text: each gives its final
output, some a trace.

An input is numbers and arrays by name; a node without a parent is its own parent.
"""

from collections.abc import Sequence

Array = list[float]
Matrix = list[list[float]]
"""An adjacency matrix: 0 is no edge."""


def sorted_keys(key: Array) -> Array:
    return sorted(key)


def insertion_sort_trace(key: Array) -> list[Array]:
    """List the array after each insertion."""
    return [sorted(key[: end + 1]) + key[end + 1 :] for end in range(1, len(key))]


def bubble_sort_trace(key: Array) -> list[Array]:
    """List the array after each comparison, from the end to the front."""
    array = list(key)
    states = []
    for front in range(len(array) - 1):
        for place in range(len(array) - 1, front, -1):
            if array[place] < array[place - 1]:
                array[place], array[place - 1] = array[place - 1], array[place]
            states.append(list(array))
    return states


def minimum(key: Array) -> int:
    return key.index(min(key))


def minimum_trace(key: Array) -> list[int]:
    """List the place of the smallest so far."""
    return [minimum(key[: end + 1]) for end in range(1, len(key))]


def binary_search(key: Array, target: float) -> int:
    """Find the first place whose key is not below the target; the last place where all are."""
    return next((place for place, value in enumerate(key) if value >= target), len(key) - 1)


def median(key: Array) -> int:
    """Find the place of the median, the upper one of two."""
    return key.index(sorted(key)[len(key) // 2])


def maximum_subarray(key: Array) -> tuple[int, int]:
    spans = [(a, b) for a in range(len(key)) for b in range(a, len(key))]
    return max(
        spans, key=lambda span: (round(sum(key[span[0] : span[1] + 1]), 9), -span[0], -span[1])
    )


def activity_selector(start: Array, finish: Array) -> list[int]:
    """Choose, by the earliest finish, activities that do not meet."""
    chosen = [0] * len(start)
    free = float("-inf")
    for place in sorted(range(len(start)), key=lambda place: finish[place]):
        if start[place] >= free:
            chosen[place] = 1
            free = finish[place]
    return chosen


def string_match(string: Sequence[int], key: Sequence[int]) -> int:
    """Find where the second part of the keys (marked 1) first occurs in the first; its length where
    it does not."""
    text = [k for mark, k in zip(string, key, strict=True) if not mark]
    pattern = [k for mark, k in zip(string, key, strict=True) if mark]
    starts = range(len(text) - len(pattern) + 1)
    return next((at for at in starts if text[at : at + len(pattern)] == pattern), len(text))


def breadth_first(source: int, adjacency: Matrix) -> list[int]:
    """Give each node's parent: the lowest of those one step nearer to the source."""
    size = len(adjacency)
    parents = list(range(size))
    reached = [source]
    seen = {source}
    while reached:
        found = [
            (b, a)
            for a in sorted(reached)
            for b in range(size)
            if adjacency[a][b] and b not in seen
        ]
        for node, parent in reversed(found):
            parents[node] = parent
        reached = sorted({node for node, _ in found})
        seen |= set(reached)
    return parents


def shortest_path_tree(source: int, adjacency: Matrix) -> list[int]:
    """Give each node's parent on the shortest way from the source."""
    size = len(adjacency)
    parents = list(range(size))
    distance = [float("inf")] * size
    distance[source] = 0.0
    todo = set(range(size))
    while todo:
        node = min(todo, key=lambda node: (distance[node], node))
        todo.remove(node)
        for other in range(size):
            weight = adjacency[node][other]
            if weight and distance[node] + weight < distance[other]:
                distance[other] = distance[node] + weight
                parents[other] = node
    return parents


def spanning_tree(source: int, adjacency: Matrix) -> list[int]:
    """Give each node's parent in the tree that Prim grows from the source."""
    size = len(adjacency)
    parents = list(range(size))
    cost = [float("inf")] * size
    todo = set(range(size))
    cost[source] = 0.0
    while todo and min(cost[node] for node in todo) < float("inf"):
        node = min(todo, key=lambda node: (cost[node], node))
        todo.remove(node)
        for other in todo:
            if adjacency[node][other] and adjacency[node][other] < cost[other]:
                cost[other] = adjacency[node][other]
                parents[other] = node
    return parents


def matrix_chain(p: Array) -> list[list[int]]:
    """Give the best place to split each product of matrices."""
    size = len(p)
    cost = [[0.0] * size for _ in p]
    split = [[0] * size for _ in p]
    for length in range(2, size):
        for a in range(1, size - length + 1):
            b = a + length - 1
            best = min(
                range(a, b), key=lambda k: cost[a][k] + cost[k + 1][b] + p[a - 1] * p[k] * p[b]
            )
            split[a][b] = best
            cost[a][b] = cost[a][best] + cost[best + 1][b] + p[a - 1] * p[best] * p[b]
    return split
