"""Textbook algorithms of planning and of the plane, with the conventions of CLRS-Text: tables,
schedules, hulls."""

from collections.abc import Sequence
from itertools import combinations

from whet.tasks.algorithms.runs import Array

Point = tuple[float, float]


def lcs_table(string: Sequence[int], key: Sequence[int]) -> list[list[int]]:
    """Give where the longest common subsequence comes from, for each two prefixes of the parts
    marked 0 and 1.

    The table is as large as both parts together: 0 is from both one shorter, 1 from the first, 2
    from the second.
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
    """Give the root of the best search tree over each span of keys, from their weights and those of
    the gaps."""
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
    """Choose tasks of one day each, one after the other from the greatest penalty down, where there
    is still time."""
    chosen = [0] * len(deadline)
    day = 0
    for place in sorted(range(len(deadline)), key=lambda place: -penalty[place]):
        if day < deadline[place]:
            chosen[place] = 1
            day = day + 1
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
    """Tell whether the segment of the first two points meets that of the last two; touching
    counts."""
    a, b, c, d = zip(x, y, strict=True)
    crosses = turn(a, b, c) * turn(a, b, d) <= 0 and turn(c, d, a) * turn(c, d, b) <= 0
    return int(crosses and all(_overlap(a[k], b[k], c[k], d[k]) for k in range(2)))


def turn(a: Point, b: Point, c: Point) -> int:
    """Give which way three points of three decimals turn: positive is left, 0 a straight line.
    Exact."""
    (ax, ay), (bx, by), (cx, cy) = ((round(1000 * x), round(1000 * y)) for x, y in (a, b, c))
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)


def _overlap(a: float, b: float, c: float, d: float) -> bool:
    """Tell whether two spans meet, which decides where all four points are on one line."""
    return max(min(a, b), min(c, d)) <= min(max(a, b), max(c, d))
