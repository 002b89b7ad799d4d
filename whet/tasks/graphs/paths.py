"""Sets of nodes as bit masks, and paths: shortest, lightest, Hamiltonian; tours; matchings.

Shortest tours are found by dynamic programming over sets of cities (Held and Karp 1962).
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Edge = tuple[int, int]

NODE_LIMIT = 20_000
"""Searches stop after this many nodes; their result is then unproven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best known solution, as lists of node numbers; `is_proven` if it is optimal."""

    lists: tuple[tuple[int, ...], ...]
    value: float
    nodes: int
    is_proven: bool


def members(mask: int) -> tuple[int, ...]:
    """List the bits of a set in ascending order.

    >>> members(0b1101)
    (0, 2, 3)
    """
    bits = []
    while mask:
        low = mask & -mask
        bits.append(low.bit_length() - 1)
        mask ^= low
    return tuple(bits)


def bitsets(n: int, edges: Sequence[Edge]) -> tuple[int, ...]:
    """Build the set of neighbours of every node; a node is not its own neighbour."""
    masks = [0] * n
    for a, b in edges:
        if a != b:
            masks[a] |= 1 << b
            masks[b] |= 1 << a
    return tuple(masks)


def layers(neighbours: Sequence[int], start: int) -> list[int]:
    """List the nodes at distance 0, 1, 2, ... as bitsets.

    >>> layers([0b010, 0b101, 0b010], 0)
    [1, 2, 4]
    """
    rings = [1 << start]
    seen = rings[0]
    while True:
        around = 0
        for node in members(rings[-1]):
            around |= neighbours[node]
        around &= ~seen
        if not around:
            return rings
        seen |= around
        rings.append(around)


def distance(neighbours: Sequence[int], start: int, end: int) -> int | None:
    """Count the edges of a shortest path; None if there is none."""
    rings = enumerate(layers(neighbours, start))
    return next((steps for steps, ring in rings if ring >> end & 1), None)


def shortest_path(neighbours: Sequence[int], start: int, end: int) -> Solution | None:
    """Find a shortest path from start to end; `nodes` counts nodes visited."""
    rings = layers(neighbours, start)
    steps = next((number for number, ring in enumerate(rings) if ring >> end & 1), None)
    if steps is None:
        return None
    path = [end]
    for ring in reversed(rings[:steps]):
        near = ring & neighbours[path[-1]]
        path.append((near & -near).bit_length() - 1)
    visited = sum(ring.bit_count() for ring in rings[: steps + 1])
    return Solution(lists=(tuple(reversed(path)),), value=steps, nodes=visited, is_proven=True)


def components(neighbours: Sequence[int]) -> list[int]:
    """List the connected components as bitsets, ordered by their lowest node."""
    left = (1 << len(neighbours)) - 1
    parts = []
    while left:
        parts.append(sum(layers(neighbours, (left & -left).bit_length() - 1)))
        left &= ~parts[-1]
    return parts


def diameter(neighbours: Sequence[int]) -> Solution:
    """Find a longest shortest path."""
    reach = [layers(neighbours, node) for node in range(len(neighbours))]
    start = max(range(len(reach)), key=lambda node: len(reach[node]))
    path = shortest_path(neighbours, start, members(reach[start][-1])[0])
    assert path is not None, "the last layer is reached from the start"
    return replace(path, nodes=sum(ring.bit_count() for rings in reach for ring in rings))


def hamiltonian_path(
    neighbours: Sequence[int], *, limit: int = 200_000
) -> tuple[list[int] | None, int]:
    """Find a path through every node, or None; also count the states, up to `limit` if it gave up.

    >>> hamiltonian_path([0b110, 0b001, 0b001])
    ([1, 0, 2], 3)
    """
    n = len(neighbours)
    everyone = (1 << n) - 1
    dead: set[tuple[int, int]] = set()
    for start in sorted(range(n), key=lambda node: neighbours[node].bit_count()):
        path = [start]
        choices = [_ways_on(neighbours, start, 1 << start)]
        seen = 1 << start
        while path and len(dead) < limit:
            if seen == everyone:
                return path, len(dead) + n
            while choices[-1] and (seen | 1 << choices[-1][-1], choices[-1][-1]) in dead:
                choices[-1].pop()
            if choices[-1]:
                node = choices[-1].pop()
                path.append(node)
                seen |= 1 << node
                choices.append(_ways_on(neighbours, node, seen))
            else:
                dead.add((seen, path[-1]))
                seen ^= 1 << path.pop()
                choices.pop()
    return None, len(dead)


def _ways_on(neighbours: Sequence[int], node: int, seen: int) -> list[int]:
    """List the next nodes from a node; the one with the fewest continuations is last, to be taken
    first."""
    ways = members(neighbours[node] & ~seen)
    return sorted(ways, key=lambda other: -(neighbours[other] & ~seen).bit_count())


def lightest_path(
    edges: Sequence[tuple[int, int, int]], start: int, end: int
) -> tuple[int, list[int]] | None:
    """Find a path of least weight in an undirected graph (Dijkstra); None if there is none."""
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


def max_matching(wishes: Sequence[Edge]) -> dict[int, int]:
    """Match as many left nodes as possible to right nodes of their own (augmenting paths)."""
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


MAX_CITIES = 20
"""With more cities, the table (80 MB at 20) is too large: a tour is improved by swaps, unproven."""

_CACHED_CITIES = 14

_Layer = tuple[NDArray[np.int32], NDArray[np.int32]]


def shortest_tour(distances: Sequence[Sequence[float]]) -> Solution:
    """Find a shortest closed tour from city 0; `nodes` counts the states of the table.

    >>> shortest_tour([[0, 1, 5, 2], [1, 0, 2, 5], [5, 2, 0, 1], [2, 5, 1, 0]]).value
    6
    """
    n = len(distances)
    if n < 2:
        return Solution(lists=((0, 0) if n else (),), value=0, nodes=1, is_proven=True)
    is_proven = n <= MAX_CITIES
    tour, states = _fill_table(np.asarray(distances)) if is_proven else (_swap(distances), 0)
    length = tour_length(tour, distances)
    return Solution(lists=(tuple(tour),), value=length, nodes=states, is_proven=is_proven)


def tour_length(tour: Sequence[int], distances: Sequence[Sequence[float]]) -> float:
    return sum(distances[a][b] for a, b in pairwise(tour))


def _fill_table(distances: NDArray[np.float64]) -> tuple[list[int], int]:
    """Fill best[set, last]: the shortest path from city 0 through the set that ends at `last`."""
    others = len(distances) - 1
    between = np.ascontiguousarray(distances[1:, 1:].T)
    high = distances.sum() + 1
    best = np.full((1 << others, others), high, dtype=distances.dtype)
    best[1 << np.arange(others), np.arange(others)] = distances[0, 1:]
    states = others
    for size in range(2, others + 1):
        sets, last = _layer(others, size) if others < _CACHED_CITIES else _make_layer(others, size)
        best[sets, last] = (best[sets ^ (1 << last)] + between[last]).min(axis=1)
        states += len(sets)
    tour = [0]
    left = (1 << others) - 1
    ways = best[left] + distances[1:, 0]
    while left:
        city = int(ways.argmin())
        tour.append(city + 1)
        left ^= 1 << city
        ways = best[left] + between[city]
    return [*tour, 0], states


def _make_layer(others: int, size: int) -> _Layer:
    """List the (set, last city) pairs of one set size."""
    sets = np.arange(1 << others, dtype=np.int32)
    sets = sets[np.bitwise_count(sets) == size]
    row, last = np.nonzero((sets[:, None] >> np.arange(others, dtype=np.int32)) & 1)
    return sets[row], last.astype(np.int32)


_layer = lru_cache(256)(_make_layer)


def _swap(distances: Sequence[Sequence[float]]) -> list[int]:
    """Build a tour by nearest neighbours, then reverse segments while that shortens it."""
    left = set(range(1, len(distances)))
    tour = [0]
    while left:
        here = distances[tour[-1]]
        tour.append(min(left, key=here.__getitem__))
        left.remove(tour[-1])
    tour.append(0)
    improved = True
    while improved:
        improved = False
        for start in range(1, len(tour) - 2):
            for end in range(start + 1, len(tour) - 1):
                a, b = tour[start - 1 : start + 1]
                c, d = tour[end : end + 2]
                if distances[a][c] + distances[b][d] < distances[a][b] + distances[c][d] - 1e-9:
                    tour[start : end + 1] = reversed(tour[start : end + 1])
                    improved = True
    return tour
