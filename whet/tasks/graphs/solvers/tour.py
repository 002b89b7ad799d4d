"""Shortest tours by dynamic programming over sets of cities (Held and Karp 1962)."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from whet.tasks.graphs.solvers.base import Solution

MAX_CITIES = 20
"""Above this the table (80 MB at 20 cities) is too large: a tour is improved by swaps, unproven."""

_CACHED_CITIES = 14

Layer = tuple[NDArray[np.int32], NDArray[np.int32]]


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


def _make_layer(others: int, size: int) -> Layer:
    """List the (set, last city) pairs of one set size."""
    sets = np.arange(1 << others, dtype=np.int32)
    sets = sets[np.bitwise_count(sets) == size]
    row, last = np.nonzero((sets[:, None] >> np.arange(others, dtype=np.int32)) & 1)
    return sets[row], last.astype(np.int32)


_layer = lru_cache(256)(_make_layer)


def _swap(distances: Sequence[Sequence[float]]) -> list[int]:
    """Go to the nearest city each time, then reverse stretches while that shortens the tour."""
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
