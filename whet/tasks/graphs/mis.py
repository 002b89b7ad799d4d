"""Maximum independent set: the largest group of users of whom no two are friends."""

from collections.abc import Mapping
from random import Random
from typing import Literal

from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import GRAPH_SIZES, Graph
from whet.tasks.graphs.named import NamedTask, as_mask, repeated
from whet.tasks.graphs.prompts import friendship
from whet.tasks.graphs.solvers.clique import max_independent_set
from whet.tasks.graphs.solvers.found import Found
from whet.tasks.graphs.sources import Payload, friends
from whet.types import Json


class MisConfig(GraphConfig):
    name: Literal["mis"] = "mis"


class Mis(NamedTask):
    name = "mis"
    has_one_answer = False
    goal = "max"
    spans = GRAPH_SIZES

    def __init__(self, config: MisConfig | None = None) -> None:
        super().__init__(config or MisConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload:
        return friends(rng, size)

    def question(self, payload: Mapping[str, Json]) -> str:
        return friendship(payload, "Find a largest group of users of whom no two are friends.")

    def best(self, payload: Mapping[str, Json]) -> Found:
        return max_independent_set(Graph.from_payload(payload).neighbours)

    def worth(
        self, graph: Graph, nodes: tuple[int, ...], payload: Mapping[str, Json]
    ) -> float | str:
        group = as_mask(nodes)
        for node in nodes:
            if group & graph.neighbours[node]:
                return f"{graph.names[node]} is a friend of someone else listed"
        return repeated(graph, nodes) or len(nodes)
