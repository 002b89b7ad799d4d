"""Hamiltonian paths and small graphs within larger ones, by search with dead ends remembered."""

from collections.abc import Sequence

from whet.tasks.graphs.solvers.found import members


def hamiltonian_path(
    neighbours: Sequence[int], *, limit: int = 200_000
) -> tuple[list[int] | None, int]:
    """Find a path through every node; None where there is none. Also the states visited, `limit`
    where it gave up.

    >>> hamiltonian_path([0b110, 0b001, 0b001])
    ([1, 0, 2], 3)
    """
    n = len(neighbours)
    everyone = (1 << n) - 1
    dead: set[tuple[int, int]] = set()
    for start in sorted(range(n), key=lambda node: neighbours[node].bit_count()):
        path = [start]
        choices = [_next(neighbours, start, 1 << start)]
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
                choices.append(_next(neighbours, node, seen))
            else:
                dead.add((seen, path[-1]))
                seen ^= 1 << path.pop()
                choices.pop()
    return None, len(dead)


def contains(
    n: int, edges: Sequence[tuple[int, int]], size: int, pattern: Sequence[tuple[int, int]]
) -> bool:
    """Tell whether distinct nodes can stand for those of the pattern so that all its directed edges
    are there."""
    out = [0] * n
    into = [0] * n
    for a, b in edges:
        out[a] |= 1 << b
        into[b] |= 1 << a
    before: list[list[tuple[int, bool]]] = [[] for _ in range(size)]
    order = _connected_order(size, pattern)
    place = {node: number for number, node in enumerate(order)}
    for a, b in pattern:
        later, earlier, is_out = (b, a, True) if place[b] > place[a] else (a, b, False)
        before[place[later]].append((place[earlier], is_out))
    stack: list[tuple[int, ...]] = [()]
    while stack:
        chosen = stack.pop()
        if len(chosen) == size:
            return True
        room = ((1 << n) - 1) & ~sum(1 << node for node in chosen)
        for earlier, is_out in before[len(chosen)]:
            room &= (out if is_out else into)[chosen[earlier]]
        stack.extend((*chosen, node) for node in members(room))
    return False


def _next(neighbours: Sequence[int], node: int, seen: int) -> list[int]:
    """List where to go from a node; the one with the fewest ways on comes last, and is taken
    first."""
    ways = members(neighbours[node] & ~seen)
    return sorted(ways, key=lambda other: -(neighbours[other] & ~seen).bit_count())


def _connected_order(size: int, pattern: Sequence[tuple[int, int]]) -> list[int]:
    order: list[int] = []
    while len(order) < size:
        near = [
            y for x, y in [*pattern, *((b, a) for a, b in pattern)] if x in order and y not in order
        ]
        order.append(near[0] if near else next(node for node in range(size) if node not in order))
    return order
