"""Orders, lightest paths, flows and matchings; edges are (from, to) or (from, to, weight)."""

from collections import defaultdict, deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

Edge = tuple[int, int]
Weighted = tuple[int, int, int]


def topological_order(n: int, edges: Sequence[Edge]) -> list[int] | None:
    """Order the nodes so that every edge leads forward, the lowest free number first.

    None where there is a cycle.

    >>> topological_order(3, [(2, 0), (0, 1)])
    [2, 0, 1]
    """
    after: dict[int, list[int]] = defaultdict(list)
    waits = [0] * n
    for a, b in edges:
        after[a].append(b)
        waits[b] += 1
    ready = [node for node in range(n) if not waits[node]]
    heapify(ready)
    order = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for other in after[node]:
            waits[other] -= 1
            if not waits[other]:
                heappush(ready, other)
    return order if len(order) == n else None


def lightest_path(
    n: int, edges: Sequence[Weighted], start: int, end: int
) -> tuple[int, list[int]] | None:
    """Find a path of least weight, both ways along edges (Dijkstra); None where there is none."""
    around: dict[int, list[Edge]] = defaultdict(list)
    for a, b, weight in edges:
        around[a].append((b, weight))
        around[b].append((a, weight))
    best = {start: 0}
    before = {start: start}
    queue = [(0, start)]
    while queue:
        cost, node = heappop(queue)
        if node == end:
            path = [end]
            while path[-1] != start:
                path.append(before[path[-1]])
            return cost, path[::-1]
        if cost > best[node]:
            continue
        for other, weight in around[node]:
            if other not in best or cost + weight < best[other]:
                best[other] = cost + weight
                before[other] = node
                heappush(queue, (best[other], other))
    return None


def max_flow(edges: Sequence[Weighted], source: int, sink: int) -> int:
    """Push flow along shortest paths until none is left (Edmonds and Karp).

    >>> max_flow([(0, 1, 3), (1, 2, 2), (0, 2, 4)], 0, 2)
    6
    """
    room: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for a, b, capacity in edges:
        room[a][b] += capacity
        room[b][a] += 0
    flow = 0
    while True:
        before = {source: source}
        queue = deque([source])
        while queue and sink not in before:
            node = queue.popleft()
            for other, left in room[node].items():
                if left and other not in before:
                    before[other] = node
                    queue.append(other)
        if sink not in before:
            return flow
        way = [sink]
        while way[-1] != source:
            way.append(before[way[-1]])
        steps = list(zip(way[1:], way, strict=False))
        pushed = min(room[a][b] for a, b in steps)
        for a, b in steps:
            room[a][b] -= pushed
            room[b][a] += pushed
        flow += pushed


def max_matching(wishes: Sequence[Edge]) -> dict[int, int]:
    """Give as many left nodes as possible a right node of their own (augmenting paths)."""
    around: dict[int, list[int]] = defaultdict(list)
    for a, b in wishes:
        around[a].append(b)
    taken: dict[int, int] = {}
    for start in sorted(around):
        before: dict[int, int] = {}
        queue = deque([start])
        end = None
        while queue and end is None:
            node = queue.popleft()
            for job in around[node]:
                if job in before:
                    continue
                before[job] = node
                if job not in taken:
                    end = job
                    break
                queue.append(taken[job])
        while end is not None:
            node = before[end]
            previous = next((job for job, owner in taken.items() if owner == node), None)
            taken[end] = node
            end = previous
    return {node: job for job, node in taken.items()}
