"""Questions about numbered graphs, as GraphWiz and NLGraph ask them: payloads, answers, draws, and
the grade of a response.

Payload: `{"kind": ..., "nodes": n, "edges": [[a, b], ...]}`. An edge has a third number if it has a
weight or a capacity. Further fields by kind: `"pair": [a, b]` (connectivity, shortest, flow),
`"weights"` of nodes (triplet), `"pattern": {"nodes", "edges"}` (substructure), `"embeddings"` and
`"layers"` (gnn). In a matching, `"nodes"` counts the applicants, `"jobs"` the jobs, and edges are
wishes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import NamedTuple

from whet.errors import DataError
from whet.tasks.graphs.instance import IntPair
from whet.tasks.graphs.paths import (
    bitsets,
    hamiltonian_path,
    lightest_path,
    max_matching,
    members,
)
from whet.tasks.graphs.sources import Payload
from whet.types import Json, Score, Verdict

MAX_NODES = 10_000

SPANS: dict[str, tuple[IntPair, IntPair, IntPair, IntPair, IntPair]] = {
    "wide": ((4, 9), (10, 19), (20, 39), (40, 69), (70, 100)),
    "flow": ((4, 7), (8, 14), (15, 24), (25, 36), (37, 50)),
    "topology": ((4, 7), (8, 14), (15, 24), (25, 36), (37, 50)),
    "triplet": ((4, 7), (8, 11), (12, 15), (16, 20), (21, 25)),
    "hamilton": ((4, 6), (7, 9), (10, 12), (13, 15), (16, 18)),
    "substructure": ((5, 7), (8, 11), (12, 16), (17, 22), (23, 30)),
    "matching": ((4, 6), (7, 9), (10, 13), (14, 17), (18, 22)),
    "gnn": ((4, 5), (6, 7), (8, 9), (10, 11), (12, 14)),
}
"""Numbers of nodes for each fifth of the level; kinds that are not listed are "wide"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphQuestion:
    """A parsed payload; fields that a kind does not use are empty or 0."""

    kind: str
    n: int
    edges: tuple[tuple[int, ...], ...]
    pair: tuple[int, int]
    weights: tuple[int, ...]
    pattern_n: int
    pattern: tuple[tuple[int, int], ...]
    jobs: int
    embeddings: tuple[tuple[int, int], ...]
    layers: int

    @staticmethod
    def from_payload(payload: Mapping[str, Json]) -> "GraphQuestion":
        inner = payload.get("pattern")
        pattern = inner if isinstance(inner, dict) else {}
        n = _count(payload, "nodes")
        jobs = _count(payload, "jobs")
        pattern_n = _count(pattern, "nodes")
        right = jobs if payload.get("kind") == "matching" else n
        pairs = _rows(payload, "pair") or [(0, 0)]
        embeddings = _rows(payload, "embeddings")
        return GraphQuestion(
            kind=str(payload.get("kind")),
            n=n,
            edges=tuple(_within(row, n, right) for row in _rows(payload, "edges")),
            pair=_two(_within(pairs[0], n, n)) if n else (0, 0),
            weights=(*next(iter(_rows(payload, "weights")), ()), *[0] * n)[:n],
            pattern_n=pattern_n,
            pattern=tuple(
                _two(_within(row, pattern_n, pattern_n)) for row in _rows(pattern, "edges")
            ),
            jobs=jobs,
            embeddings=tuple(_two(row) for row in embeddings) or ((0, 0),) * n,
            layers=min(_count(payload, "layers"), 8),
        )

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(edge[0], edge[1]) for edge in self.edges]

    @property
    def weighted_edges(self) -> list[tuple[int, int, int]]:
        """Edges with their weights; one without a weight has 1."""
        return [(edge[0], edge[1], edge[2] if len(edge) > 2 else 1) for edge in self.edges]


def solve_question(question: GraphQuestion) -> tuple[str, int]:
    """Answer a question, and count the search states, or the nodes and edges."""
    if question.kind == "hamilton":
        path, visited = hamiltonian_path(bitsets(question.n, question.pairs))
        return (f"Yes, {path}" if path else "No"), visited
    # Imported here because it takes a sixth of a second, and only these answers need it.
    import networkx as nx  # noqa: PLC0415

    directed = nx.DiGraph(question.pairs)
    directed.add_nodes_from(range(question.n))
    graph = nx.Graph(directed)
    answer: str | bool
    match question.kind:
        case "connectivity":
            answer = nx.has_path(graph, *question.pair)
        case "cycle":
            answer = graph.number_of_edges() > question.n - nx.number_connected_components(graph)
        case "bipartite":
            answer = nx.is_bipartite(nx.Graph([(a, b) for a, b in question.pairs if a != b]))
        case "substructure":
            pattern = nx.DiGraph(question.pattern)
            pattern.add_nodes_from(range(question.pattern_n))
            answer = nx.isomorphism.DiGraphMatcher(directed, pattern).subgraph_is_monomorphic()
        case "topology":
            is_acyclic = nx.is_directed_acyclic_graph(directed)
            order = list(nx.lexicographical_topological_sort(directed)) if is_acyclic else []
            answer = str(order or "No")
        case "flow":
            nx.set_edge_attributes(directed, 0, "capacity")
            for a, b, capacity in question.weighted_edges:
                directed[a][b]["capacity"] += capacity
            answer = str(nx.maximum_flow_value(directed, *question.pair))
        case "shortest":
            lightest = lightest_path(question.weighted_edges, *question.pair)
            answer = f"{lightest[1]} with a total weight of {lightest[0]}" if lightest else "No"
        case "triplet":
            answer = str(best_triplet(question))
        case "matching":
            pairs = sorted(max_matching(question.pairs).items())
            answer = "\n".join(f"applicant {a}: job {b}" for a, b in pairs)
        case "gnn":
            rows = enumerate(convolve(question))
            answer = "\n".join(f"node {k}: {list(row)}" for k, row in rows)
        case kind:
            raise DataError(f"payload.kind should name a kind of question, not {kind!r}")
    if isinstance(answer, bool):
        answer = "Yes" if answer else "No"
    return answer, question.n + len(question.edges)


def best_triplet(question: GraphQuestion) -> int:
    """Sum the weights of the heaviest triangle; 0 if there is none."""
    around = bitsets(question.n, question.pairs)
    sums = [
        question.weights[a] + question.weights[b] + question.weights[c]
        for a, b in set(question.pairs)
        for c in members(around[a] & around[b])
    ]
    return max(sums, default=0)


def convolve(question: GraphQuestion) -> list[tuple[int, int]]:
    """Replace every embedding with the sum of its neighbours', once per layer."""
    around = bitsets(question.n, question.pairs)
    rows = list(question.embeddings)
    for _ in range(question.layers):
        near = [[rows[other] for other in members(mask)] for mask in around]
        rows = [(sum(x for x, _ in others), sum(y for _, y in others)) for others in near]
    return rows


def draw_question(rng: Random, kind: str, size: int) -> Payload:
    """Draw a question about a graph of this size, with yes and no about equally likely."""
    if kind in ("connectivity", "shortest", "flow"):
        return {"kind": kind, "nodes": size, **_draw_between_two(rng, kind, size)}
    if kind == "substructure":
        return {"kind": kind, "nodes": size, **_draw_substructure(rng, size)}
    if kind == "matching":
        jobs = max(2, size + rng.randint(-2, 2))
        wishes = [(a, sorted(rng.sample(range(jobs), rng.randint(1, 2)))) for a in range(size)]
        edges: list[Json] = [[a, b] for a, wanted in wishes for b in wanted]
        return {"kind": kind, "nodes": size, "jobs": jobs, "edges": edges}
    draw_edges = {"cycle": _draw_forest, "bipartite": _draw_two_sides, "topology": _draw_forward}
    drawn = draw_edges.get(kind, _draw_loose)(rng, size)
    payload: Payload = {"kind": kind, "nodes": size, "edges": _to_rows(drawn)}
    if kind == "triplet":
        payload["weights"] = [rng.randint(1, 10) for _ in range(size)]
    if kind == "gnn":
        payload["embeddings"] = [[rng.randint(0, 1), rng.randint(0, 1)] for _ in range(size)]
        payload["layers"] = 2
    return payload


def _draw_between_two(rng: Random, kind: str, size: int) -> Payload:
    edges = _draw_forest(rng, size, extra=rng.randint(0, size // 2) if kind != "flow" else 2 * size)
    pair: list[Json] = [*rng.sample(range(size), 2)]
    if kind == "connectivity":
        # Drop edges of most graphs, so that about half of the pairs are not connected.
        if rng.random() < 0.7:
            edges = [edge for edge in edges if rng.random() < 0.6]
        return {"edges": _to_rows(edges), "pair": pair}
    if kind == "flow":
        edges = [edge if rng.random() < 0.5 else edge[::-1] for edge in edges]
    return {"edges": [[*edge, rng.randint(1, 10)] for edge in edges], "pair": pair}


def _draw_forest(rng: Random, size: int, *, extra: int | None = None) -> list[IntPair]:
    """Draw a tree minus one edge plus up to two random edges; with `extra`, the whole tree plus
    that many."""
    order = rng.sample(range(size), size)
    edges = {_order_ends(order[rng.randrange(k)], order[k]) for k in range(1, size)}
    if extra is None:
        edges.discard(rng.choice(sorted(edges)))
    for _ in range(rng.randint(0, 2) if extra is None else extra):
        a, b = rng.sample(range(size), 2)
        edges.add(_order_ends(a, b))
    return _shuffle(rng, edges)


def _draw_two_sides(rng: Random, size: int) -> list[IntPair]:
    """Draw edges between two sides, and half of the time one edge within a side."""
    order = rng.sample(range(size), size)
    pairs = [(k - 1 - 2 * rng.randrange((k + 1) // 2), k) for k in range(1, size)]
    for _ in range(size // 3):
        a = rng.randrange(size - 1)
        pairs.append((a, a + 1 + 2 * rng.randrange((size - a) // 2)))
    edges = {_order_ends(order[a], order[b]) for a, b in pairs}
    if rng.random() < 0.5:
        a = rng.randrange(size - 2)
        edges.add(_order_ends(order[a], order[a + 2]))
    return _shuffle(rng, edges)


def _draw_forward(rng: Random, size: int) -> list[IntPair]:
    order = rng.sample(range(size), size)
    pairs = [sorted(rng.sample(range(size), 2)) for _ in range(2 * size)]
    return _shuffle(rng, {(order[a], order[b]) for a, b in pairs})


def _draw_loose(rng: Random, size: int) -> list[IntPair]:
    """Draw random edges, 1.1 to 2 per node if there are that many."""
    wanted = min(int(size * rng.uniform(1.1, 2.0)), size * (size - 1) // 2)
    edges: set[IntPair] = set()
    while len(edges) < wanted:
        a, b = rng.sample(range(size), 2)
        edges.add(_order_ends(a, b))
    return _shuffle(rng, edges)


def _draw_substructure(rng: Random, size: int) -> Payload:
    edges = [_turn(rng, edge) for edge in _draw_loose(rng, size)]
    count = rng.randint(3, 5)
    pairs = combinations(range(count), 2)
    pattern = [_turn(rng, pair) for pair in pairs if rng.random() < 0.6]
    shape: Payload = {"nodes": count, "edges": _to_rows(pattern or [(0, 1)])}
    return {"edges": _to_rows(edges), "pattern": shape}


def _turn(rng: Random, edge: IntPair) -> IntPair:
    return edge if rng.random() < 0.8 else edge[::-1]


def _to_rows(edges: Iterable[IntPair]) -> list[Json]:
    return [list(edge) for edge in edges]


def _order_ends(a: int, b: int) -> IntPair:
    return (a, b) if a < b else (b, a)


def _shuffle(rng: Random, edges: set[IntPair]) -> list[IntPair]:
    return rng.sample(sorted(edges), len(edges))


def _count(payload: Mapping[str, Json], key: str) -> int:
    number = payload.get(key, 0)
    if isinstance(number, int) and 0 <= number <= MAX_NODES:
        return number
    raise DataError(f"payload.{key} should be a whole number from 0 to {MAX_NODES}, not {number!r}")


def _rows(payload: Mapping[str, Json], key: str) -> list[tuple[int, ...]]:
    """Read a list of rows of whole numbers; a flat list counts as one row."""
    rows = payload.get(key) or []
    if isinstance(rows, list) and rows and not isinstance(rows[0], list):
        rows = [rows]
    numbers = []
    for row in rows if isinstance(rows, list) else [None]:
        whole = [part for part in row if isinstance(part, int)] if isinstance(row, list) else []
        if not isinstance(row, list) or len(whole) != len(row) or not whole:
            raise DataError(f"payload.{key} should hold rows of whole numbers, not {row!r}")
        numbers.append(tuple(whole))
    return numbers


def _within(row: tuple[int, ...], left: int, right: int) -> tuple[int, ...]:
    if len(row) not in (2, 3) or not (0 <= row[0] < left and 0 <= row[1] < right):
        two = f"two of {max(left, right)} nodes by number"
        raise DataError(f"an edge or pair names {two}, not {list(row)}")
    return row


def _two(row: tuple[int, ...]) -> tuple[int, int]:
    if len(row) != 2:
        raise DataError(f"expected two whole numbers, not {list(row)}")
    return row[0], row[1]


class Judgement(NamedTuple):
    """The answer read, whether it is feasible, whether it is right, and why."""

    answer: str | None
    note: str
    is_feasible: bool = False
    is_right: bool = False

    def to_score(self) -> Score:
        verdict = Verdict.CORRECT if self.is_right else Verdict.WRONG
        if self.answer is None:
            verdict = Verdict.NO_ANSWER
        parts = {"correct": float(self.is_right), "feasible": float(self.is_feasible)}
        return Score(verdict=verdict, parts=parts, answer=self.answer, note=self.note)


def report_missing(what: str) -> Judgement:
    """Report that a response gives no answer."""
    return Judgement(None, f"no final {what} could be read")


def compare_values(answer: str, value: float, best: float) -> Judgement:
    note = f"{value:g} is the optimum" if value == best else f"{value:g}, but {best:g} is possible"
    return Judgement(answer, note, is_feasible=True, is_right=value == best)
