"""Minimum vertex cover: the smallest group of users such that every friendship has one of them in
it."""

from collections.abc import Mapping
from random import Random
from typing import Literal

from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import GRAPH_SIZES, Graph
from whet.tasks.graphs.named import NamedTask, as_mask, repeated
from whet.tasks.graphs.prompts import friendship
from whet.tasks.graphs.solvers.clique import min_vertex_cover
from whet.tasks.graphs.solvers.found import Found
from whet.tasks.graphs.sources import Payload, friends
from whet.types import Json


class MvcConfig(GraphConfig):
    name: Literal["mvc"] = "mvc"


class Mvc(NamedTask):
    name = "mvc"
    has_one_answer = False
    goal = "min"
    spans = GRAPH_SIZES

    def __init__(self, config: MvcConfig | None = None) -> None:
        super().__init__(config or MvcConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload:
        return friends(rng, size)

    def question(self, payload: Mapping[str, Json]) -> str:
        return friendship(
            payload,
            "Find a smallest group of users such that every friendship has one of them in it.",
        )

    def best(self, payload: Mapping[str, Json]) -> Found:
        return min_vertex_cover(Graph.from_payload(payload).neighbours)

    def worth(
        self, graph: Graph, nodes: tuple[int, ...], payload: Mapping[str, Json]
    ) -> float | str:
        group = as_mask(nodes)
        for a, b in graph.edges:
            if not group >> a & 1 and not group >> b & 1:
                return f"the friendship of {graph.names[a]} and {graph.names[b]} is not covered"
        return repeated(graph, nodes) or len(nodes)
