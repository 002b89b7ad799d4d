"""Common neighbours: everyone who has written with both of two authors."""

from collections.abc import Mapping
from itertools import combinations
from random import Random
from typing import Literal

from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import PATH_SIZES, Graph
from whet.tasks.graphs.named import NamedTask, repeated
from whet.tasks.graphs.prompts import authorship
from whet.tasks.graphs.solvers.found import Found, members
from whet.tasks.graphs.sources import Payload, authors
from whet.types import Json


class NeighborConfig(GraphConfig):
    name: Literal["neighbor"] = "neighbor"


class Neighbor(NamedTask):
    name = "neighbor"
    goal = "max"
    spans = PATH_SIZES

    def __init__(self, config: NeighborConfig | None = None) -> None:
        super().__init__(config or NeighborConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload | None:
        payload = authors(rng, size)
        graph = Graph.from_payload(payload)
        pairs = [
            (a, b)
            for a, b in combinations(range(size), 2)
            if graph.neighbours[a] & graph.neighbours[b]
        ]
        if not pairs:
            return None
        a, b = rng.choice(pairs)
        return {**payload, "pair": [graph.names[a], graph.names[b]]}

    def question(self, payload: Mapping[str, Json]) -> str:
        graph = Graph.from_payload(payload)
        a, b = (graph.names[node] for node in graph.pair(payload))
        return authorship(payload, f"Find all authors who have worked with {a} and also with {b}.")

    def best(self, payload: Mapping[str, Json]) -> Found:
        graph = Graph.from_payload(payload)
        a, b = graph.pair(payload)
        common = graph.neighbours[a] & graph.neighbours[b]
        return Found(
            lists=(members(common),),
            value=common.bit_count(),
            nodes=len(graph.edges),
            is_proven=True,
        )

    def worth(
        self, graph: Graph, nodes: tuple[int, ...], payload: Mapping[str, Json]
    ) -> float | str:
        a, b = graph.pair(payload)
        for node in nodes:
            if not (graph.neighbours[a] & graph.neighbours[b]) >> node & 1:
                return f"{graph.names[node]} has not worked with both"
        return repeated(graph, nodes) or len(nodes)
