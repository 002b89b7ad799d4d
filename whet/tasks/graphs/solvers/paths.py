"""Paths over bitsets: layers, shortest paths, components, the diameter, Hamiltonian paths."""

from collections.abc import Sequence
from dataclasses import replace

from whet.tasks.graphs.solvers.base import Solution, members


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
    """Count the edges of a shortest path; None where there is none."""
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
    """List the connected components as bitsets, by their lowest node."""
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
    """Find a path through every node, or None; also count the states, `limit` where it gave up.

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
    """List where to go from a node, the one with the fewest ways on last, to be taken first."""
    ways = members(neighbours[node] & ~seen)
    return sorted(ways, key=lambda other: -(neighbours[other] & ~seen).bit_count())
