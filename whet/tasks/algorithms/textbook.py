"""Textbook algorithms on small inputs, with the conventions of CLRS-Text.

Each returns its final output, and some a trace. Nodes are visited in ascending order, and a node
without a parent is its own parent.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise

Array = list[float]
Matrix = list[list[float]]
"""An adjacency matrix; 0 means no edge."""
Point = tuple[float, float]


def insertion_sort_trace(key: Array) -> list[Array]:
    """List the initial array and the array after each insertion."""
    return [sorted(key[: end + 1]) + key[end + 1 :] for end in range(len(key))]


def bubble_sort_trace(key: Array) -> list[Array]:
    """List the initial array and the array after each comparison, from back to front."""
    array = list(key)
    states = [key]
    for front in range(len(array) - 1):
        for i in range(len(array) - 1, front, -1):
            if array[i] < array[i - 1]:
                array[i - 1], array[i] = array[i], array[i - 1]
            states.append(list(array))
    return states


def minimum(key: Array) -> int:
    return key.index(min(key))


def minimum_trace(key: Array) -> list[int]:
    """List the index of the smallest key so far."""
    return [minimum(key[: end + 1]) for end in range(len(key))]


def binary_search(key: Array, target: float) -> int:
    """Find the first index whose key is not below the target; the last index if all are below."""
    return next((i for i, value in enumerate(key) if value >= target), len(key) - 1)


def median(key: Array) -> int:
    """Find the index of the median, the upper one of two."""
    return key.index(sorted(key)[len(key) // 2])


def maximum_subarray(key: Array) -> tuple[int, int]:
    spans = [(a, b) for a in range(len(key)) for b in range(a, len(key))]
    return max(
        spans, key=lambda span: (round(sum(key[span[0] : span[1] + 1]), 9), -span[0], -span[1])
    )


def activity_selector(start: Array, finish: Array) -> list[int]:
    """Choose activities that do not overlap, by earliest finish."""
    chosen = [0] * len(start)
    free = float("-inf")
    for i in sorted(range(len(start)), key=finish.__getitem__):
        if start[i] >= free:
            chosen[i] = 1
            free = finish[i]
    return chosen


def string_match(string: Sequence[int], key: Sequence[int]) -> int:
    """Find the keys marked 1 within those marked 0; if they do not occur, the number of keys marked
    0."""
    text = [k for mark, k in zip(string, key, strict=True) if not mark]
    pattern = [k for mark, k in zip(string, key, strict=True) if mark]
    starts = range(len(text) - len(pattern) + 1)
    return next((i for i in starts if text[i : i + len(pattern)] == pattern), len(text))


def breadth_first(source: int, adjacency: Matrix) -> list[int]:
    """Return each node's parent: the lowest node that is one step nearer to the source."""
    size = len(adjacency)
    parents = list(range(size))
    reached = [source]
    seen = {source}
    while reached:
        fringe: set[int] = set()
        for parent in reached:
            new = {b for b in range(size) if adjacency[parent][b]} - seen - fringe
            for node in new:
                parents[node] = parent
            fringe |= new
        reached = sorted(fringe)
        seen |= fringe
    return parents


def spanning_tree(source: int, adjacency: Matrix) -> list[int]:
    """Return each node's parent in the lightest spanning tree from the source (Prim)."""
    return find_shortest_paths(source, adjacency, is_cumulative=False)[0]


def shortest_path_tree(source: int, adjacency: Matrix) -> list[int]:
    """Return each node's parent on the shortest path from the source (Dijkstra)."""
    return find_shortest_paths(source, adjacency)[0]


def find_shortest_paths(
    source: int, adjacency: Matrix, *, is_cumulative: bool = True
) -> tuple[list[int], list[float]]:
    """Return each node's parent on the shortest path from the source, and its distance.

    Without `is_cumulative`, each node joins the nearest node of the tree instead.
    """
    size = len(adjacency)
    parents = list(range(size))
    cost = [float("inf")] * size
    cost[source] = 0.0
    todo = set(range(size))
    while todo and min(cost[node] for node in todo) < float("inf"):
        node = min(todo, key=lambda node: (cost[node], node))
        todo.remove(node)
        for other in todo:
            weight = adjacency[node][other]
            new = weight + cost[node] if is_cumulative else weight
            if weight and new < cost[other]:
                cost[other] = new
                parents[other] = node
    return parents, cost


def matrix_chain(p: Array) -> list[list[int]]:
    """Return the best position at which to split each product of matrices."""
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


def lcs_table(string: Sequence[int], key: Sequence[int]) -> list[list[int]]:
    """Return the origin of the longest common subsequence of each pair of prefixes.

    The two sequences are the keys marked 0 and 1, and the table has a row and a column for each key
    of both: 0 means both prefixes one shorter, 1 the first one shorter, 2 the second.
    """
    split = list(string).count(0)
    size = len(key)
    length = [[0] * (size - split + 1) for _ in range(split + 1)]
    table = [[-1] * size for _ in range(size)]
    for a in range(split):
        for b in range(size - split):
            shorter = length[a][b + 1]
            other = length[a + 1][b]
            if key[a] == key[split + b]:
                length[a + 1][b + 1] = length[a][b] + 1
                table[a][split + b] = 0
            else:
                length[a + 1][b + 1] = max(shorter, other)
                table[a][split + b] = 1 if shorter >= other else 2
    return table


def optimal_search_tree(p: Sequence[float], q: Sequence[float]) -> list[list[int]]:
    """Return the root of the best search tree over each range of keys, by weights of keys and
    gaps."""
    size = len(q)
    cost = [[0.0] * size for _ in range(size)]
    weight = [[0.0] * size for _ in range(size)]
    root = [[0] * size for _ in range(size)]
    for a in range(size):
        cost[a][a] = weight[a][a] = q[a]
    for span in range(1, size):
        for a in range(size - span):
            b = a + span
            weight[a][b] = weight[a][b - 1] + p[b - 1] + q[b]
            root[a][b] = min(range(a, b), key=lambda k: (cost[a][k] + cost[k + 1][b], k))
            cost[a][b] = cost[a][root[a][b]] + cost[root[a][b] + 1][b] + weight[a][b]
    return root


def task_scheduling(deadline: Sequence[int], penalty: Array) -> list[int]:
    """Choose tasks of one day each, greatest penalty first, if there is still time before the
    deadline."""
    chosen = [0] * len(deadline)
    day = 0
    for task in sorted(range(len(deadline)), key=lambda task: -penalty[task]):
        if day < deadline[task]:
            chosen[task] = 1
            day += 1
    return chosen


def hull(x: Array, y: Array) -> list[int]:
    """Mark the points that are corners of the convex hull; no three points are on one line."""
    points = list(zip(x, y, strict=True))
    marks = [0] * len(points)
    for a, b in combinations(range(len(points)), 2):
        sides = [
            turn(points[a], points[b], points[c]) for c in range(len(points)) if c not in (a, b)
        ]
        if all(side > 0 for side in sides) or all(side < 0 for side in sides):
            marks[a] = marks[b] = 1
    return marks


def segments_meet(x: Array, y: Array) -> int:
    """Whether the segments of the first two and the last two points meet; touching counts."""
    a, b, c, d = zip(x, y, strict=True)
    crosses = turn(a, b, c) * turn(a, b, d) <= 0 and turn(c, d, a) * turn(c, d, b) <= 0
    overlaps = (
        max(min(p, q), min(r, s)) <= min(max(p, q), max(r, s))
        for p, q, r, s in zip(a, b, c, d, strict=True)
    )
    return int(crosses and all(overlaps))  # the boxes decide for four points on one line


def turn(a: Point, b: Point, c: Point) -> int:
    """Return which way three points turn, exact to three decimals: positive is left, 0 is
    straight."""
    (ax, ay), (bx, by), (cx, cy) = ((round(1000 * x), round(1000 * y)) for x, y in (a, b, c))
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)


def depth_first(adjacency: Matrix) -> list[int]:
    """Return each node's parent in the forest of a depth-first search."""
    return _search_depth_first(adjacency, range(len(adjacency)))[0]


def topological_sort(adjacency: Matrix) -> tuple[list[int], int]:
    """Return each node's successor in the order (the last has itself), and the first node."""
    order = _search_depth_first(adjacency, range(len(adjacency)))[1][::-1]
    after = list(range(len(adjacency)))
    for node, following in pairwise(order):
        after[node] = following
    return after, order[0]


def strong_components(adjacency: Matrix) -> list[int]:
    """Return the root of each node's strong component: its first node by latest finish."""
    size = len(adjacency)
    order = _search_depth_first(adjacency, range(size))[1][::-1]
    turned = [[adjacency[b][a] for b in range(size)] for a in range(size)]
    parents = _search_depth_first(turned, order)[0]
    return [_root(parents, node) for node in range(size)]


def articulation_points(adjacency: Matrix) -> list[int]:
    """Mark the nodes without which the graph would have more components."""
    size = len(adjacency)
    whole = _num_components(adjacency)
    rests = [[k for k in range(size) if k != node] for node in range(size)]
    cuts = [[[adjacency[a][b] for b in rest] for a in rest] for rest in rests]
    return [int(_num_components(cut) > whole) for cut in cuts]


def bridges(adjacency: Matrix) -> list[list[int]]:
    """Mark with 1 the edges whose removal would disconnect a component; -1 means no edge."""
    size = len(adjacency)
    marks = [[0 if a == b or adjacency[a][b] else -1 for b in range(size)] for a in range(size)]
    whole = _num_components(adjacency)
    for a, b in combinations(range(size), 2):
        if adjacency[a][b]:
            cut = [list(row) for row in adjacency]
            cut[a][b] = cut[b][a] = 0
            marks[a][b] = marks[b][a] = int(_num_components(cut) > whole)
    return marks


def kruskal(adjacency: Matrix) -> list[list[int]]:
    """Mark the edges of the lightest spanning forest, in both directions."""
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
    """Return, for each pair of nodes, the last node before the second on their shortest path.

    The distance of a node to itself is the length of its own edge, if it has one.
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


def _search_depth_first(adjacency: Matrix, order: Iterable[int]) -> tuple[list[int], list[int]]:
    """Search from each unseen node of an order.

    Returns each node's parent, and the nodes in the order in which they finish.
    """
    parents = list(range(len(adjacency)))
    finished: list[int] = []
    seen: set[int] = set()

    def visit(node: int) -> None:
        seen.add(node)
        for other in range(len(adjacency)):
            if adjacency[node][other] and other not in seen:
                parents[other] = node
                visit(other)
        finished.append(node)

    for start in order:
        if start not in seen:
            visit(start)
    return parents, finished


def _root(parents: list[int], node: int) -> int:
    while parents[node] != node:
        node = parents[node]
    return node


def _num_components(adjacency: Matrix) -> int:
    """Count the connected components: the trees of a depth-first search."""
    parents = depth_first(adjacency)
    return sum(parent == node for node, parent in enumerate(parents))
