"""Maximum clique: the largest group of authors who have all written with each other."""

from collections.abc import Mapping
from random import Random
from typing import Literal

from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import GRAPH_SIZES, Graph
from whet.tasks.graphs.named import NamedTask, as_mask, repeated
from whet.tasks.graphs.prompts import authorship
from whet.tasks.graphs.solvers.clique import max_clique
from whet.tasks.graphs.solvers.found import Found
from whet.tasks.graphs.sources import Payload, authors
from whet.types import Json


class McpConfig(GraphConfig):
    name: Literal["mcp"] = "mcp"


class Mcp(NamedTask):
    name = "mcp"
    has_one_answer = False
    goal = "max"
    spans = GRAPH_SIZES

    def __init__(self, config: McpConfig | None = None) -> None:
        super().__init__(config or McpConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload:
        return authors(rng, size, density=0.5)

    def question(self, payload: Mapping[str, Json]) -> str:
        return authorship(
            payload, "Find a largest group of authors in which every two have worked together."
        )

    def best(self, payload: Mapping[str, Json]) -> Found:
        return max_clique(Graph.from_payload(payload).neighbours)

    def worth(
        self, graph: Graph, nodes: tuple[int, ...], payload: Mapping[str, Json]
    ) -> float | str:
        group = as_mask(nodes)
        for node in nodes:
            if group & ~graph.neighbours[node] & ~(1 << node):
                return f"{graph.names[node]} has not worked with everyone listed"
        return repeated(graph, nodes) or len(nodes)
