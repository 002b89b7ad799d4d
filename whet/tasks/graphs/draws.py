"""Draw questions about numbered graphs, yes and no about equally often. See `kinds` for the
payload."""

from itertools import combinations
from random import Random

from whet.tasks.graphs.instance import Span
from whet.tasks.graphs.sources import Payload
from whet.types import Json

SPANS: dict[str, tuple[Span, Span, Span, Span, Span]] = {
    "wide": ((4, 9), (10, 19), (20, 39), (40, 69), (70, 100)),
    "flow": ((4, 7), (8, 14), (15, 24), (25, 36), (37, 50)),
    "topology": ((4, 7), (8, 14), (15, 24), (25, 36), (37, 50)),
    "triplet": ((4, 7), (8, 11), (12, 15), (16, 20), (21, 25)),
    "hamilton": ((4, 6), (7, 9), (10, 12), (13, 15), (16, 18)),
    "substructure": ((5, 7), (8, 11), (12, 16), (17, 22), (23, 30)),
    "matching": ((4, 6), (7, 9), (10, 13), (14, 17), (18, 22)),
    "gnn": ((4, 5), (6, 7), (8, 9), (10, 11), (12, 14)),
}
"""Nodes by fifth of the level; kinds not named here are wide."""


def draw(rng: Random, kind: str, size: int) -> Payload:
    """Draw a question of a kind about a graph of this size."""
    if kind in ("connectivity", "shortest", "flow"):
        return _between_two(rng, kind, size)
    if kind == "substructure":
        return _substructure(rng, size)
    if kind == "matching":
        jobs = max(2, size + rng.randint(-2, 2))
        wishes: list[Json] = [
            [a, b] for a in range(size) for b in sorted(rng.sample(range(jobs), rng.randint(1, 2)))
        ]
        return {"kind": kind, "nodes": size, "jobs": jobs, "edges": wishes}
    edges = {"cycle": _forest, "bipartite": _two_sides, "topology": _forward}.get(kind, _loose)(
        rng, size
    )
    payload: Payload = {"kind": kind, "nodes": size, "edges": [list(edge) for edge in edges]}
    if kind == "triplet":
        payload["weights"] = [rng.randint(1, 10) for _ in range(size)]
    if kind == "gnn":
        payload |= {
            "embeddings": [[rng.randint(0, 1), rng.randint(0, 1)] for _ in range(size)],
            "layers": 2,
        }
    return payload


def _between_two(rng: Random, kind: str, size: int) -> Payload:
    edges = _forest(rng, size, extra=rng.randint(0, size // 2) if kind != "flow" else 2 * size)
    a, b = rng.sample(range(size), 2)
    if kind == "connectivity":
        return {
            "kind": kind,
            "nodes": size,
            "edges": [list(edge) for edge in _parted(rng, edges)],
            "pair": [a, b],
        }
    turned = [edge if kind == "shortest" or rng.random() < 0.5 else edge[::-1] for edge in edges]
    return {
        "kind": kind,
        "nodes": size,
        "edges": [[*edge, rng.randint(1, 10)] for edge in turned],
        "pair": [a, b],
    }


def _forest(rng: Random, size: int, *, extra: int | None = None) -> list[Span]:
    """Draw a tree on shuffled numbers; half of the time with one edge more, or with as many as
    asked."""
    order = rng.sample(range(size), size)
    edges = {_sorted(order[rng.randrange(k)], order[k]) for k in range(1, size)}
    if extra is None:
        edges.discard(rng.choice(sorted(edges)))
    for _ in range(rng.randint(0, 2) if extra is None else extra):
        a, b = rng.sample(range(size), 2)
        edges.add(_sorted(a, b))
    return _shuffled(rng, edges)


def _parted(rng: Random, edges: list[Span]) -> list[Span]:
    """Half of the time leave out edges, so that some nodes cannot be reached."""
    return [edge for edge in edges if rng.random() < 0.6] if rng.random() < 0.7 else edges


def _two_sides(rng: Random, size: int) -> list[Span]:
    """Draw edges between two sides; half of the time one edge within a side too."""
    order = rng.sample(range(size), size)
    edges = {
        _sorted(order[k - 1 - 2 * rng.randrange((k + 1) // 2)], order[k]) for k in range(1, size)
    }
    edges |= {_sorted(order[a], order[b]) for a, b in (_odd(rng, size) for _ in range(size // 3))}
    if rng.random() < 0.5:
        a = rng.randrange(size - 2)
        edges.add(_sorted(order[a], order[a + 2]))
    return _shuffled(rng, edges)


def _odd(rng: Random, size: int) -> Span:
    a = rng.randrange(size - 1)
    return a, a + 1 + 2 * rng.randrange((size - a) // 2)


def _forward(rng: Random, size: int) -> list[Span]:
    order = rng.sample(range(size), size)
    edges = {
        (order[a], order[b])
        for a, b in (sorted(rng.sample(range(size), 2)) for _ in range(2 * size))
    }
    return _shuffled(rng, edges)


def _loose(rng: Random, size: int) -> list[Span]:
    """Draw edges at random, 1.1 to 2 a node, where there is room for so many."""
    wanted = min(int(size * rng.uniform(1.1, 2.0)), size * (size - 1) // 2)
    edges: set[Span] = set()
    while len(edges) < wanted:
        a, b = rng.sample(range(size), 2)
        edges.add(_sorted(a, b))
    return _shuffled(rng, edges)


def _substructure(rng: Random, size: int) -> Payload:
    turned = [edge if rng.random() < 0.8 else edge[::-1] for edge in _loose(rng, size)]
    count = rng.randint(3, 5)
    pattern = [
        (a, b) if rng.random() < 0.8 else (b, a)
        for a, b in combinations(range(count), 2)
        if rng.random() < 0.6
    ]
    return {
        "kind": "substructure",
        "nodes": size,
        "edges": [list(edge) for edge in turned],
        "pattern": {"nodes": count, "edges": [list(edge) for edge in pattern or [(0, 1)]]},
    }


def _sorted(a: int, b: int) -> Span:
    return (a, b) if a < b else (b, a)


def _shuffled(rng: Random, edges: set[Span]) -> list[Span]:
    return rng.sample(sorted(edges), len(edges))
