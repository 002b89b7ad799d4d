"""Breadth-first search over bitsets: layers, shortest paths, components, the diameter. `nodes`
counts nodes visited."""

from collections.abc import Sequence

from whet.tasks.graphs.solvers.found import Found, members


def layers(neighbours: Sequence[int], start: int) -> list[int]:
    """List the nodes at distance 0, 1, 2, ... as bitsets.

    >>> layers([0b010, 0b101, 0b010], 0)
    [1, 2, 4]
    """
    found = [1 << start]
    seen = found[0]
    while True:
        around = 0
        for node in members(found[-1]):
            around |= neighbours[node]
        around &= ~seen
        if not around:
            return found
        seen |= around
        found.append(around)


def distance(neighbours: Sequence[int], start: int, end: int) -> int | None:
    """Count the edges of a shortest path; None where there is none."""
    return next(
        (steps for steps, layer in enumerate(layers(neighbours, start)) if layer >> end & 1), None
    )


def shortest_path(neighbours: Sequence[int], start: int, end: int) -> Found | None:
    """Find a shortest path from start to end."""
    rings = layers(neighbours, start)
    steps = next((number for number, ring in enumerate(rings) if ring >> end & 1), None)
    if steps is None:
        return None
    path = [end]
    for ring in reversed(rings[:steps]):
        near = ring & neighbours[path[-1]]
        path.append((near & -near).bit_length() - 1)
    visited = sum(ring.bit_count() for ring in rings[: steps + 1])
    return Found(lists=(tuple(reversed(path)),), value=steps, nodes=visited, is_proven=True)


def components(neighbours: Sequence[int]) -> list[int]:
    """List the connected components as bitsets, by their lowest node."""
    left = (1 << len(neighbours)) - 1
    found = []
    while left:
        found.append(sum(layers(neighbours, (left & -left).bit_length() - 1)))
        left &= ~found[-1]
    return found


def diameter(neighbours: Sequence[int]) -> Found:
    """Find a longest shortest path."""
    reach = [layers(neighbours, node) for node in range(len(neighbours))]
    start = max(range(len(reach)), key=lambda node: len(reach[node]))
    found = shortest_path(neighbours, start, members(reach[start][-1])[0])
    assert found is not None, "the last layer is reached from the start"
    visited = sum(ring.bit_count() for rings in reach for ring in rings)
    return Found(lists=found.lists, value=found.value, nodes=visited, is_proven=True)
