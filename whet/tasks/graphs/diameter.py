"""Diameter: a shortest path between two entities that are farthest apart."""

from collections.abc import Mapping
from random import Random
from typing import Literal

from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import GRAPH_SIZES, Graph
from whet.tasks.graphs.named import NamedTask, broken_path
from whet.tasks.graphs.prompts import knowledge
from whet.tasks.graphs.solvers.found import Found
from whet.tasks.graphs.solvers.paths import diameter, distance
from whet.tasks.graphs.sources import Payload, facts
from whet.types import Json


class DiameterConfig(GraphConfig):
    name: Literal["diameter"] = "diameter"


class Diameter(NamedTask):
    name = "diameter"
    goal = "max"
    spans = GRAPH_SIZES

    def __init__(self, config: DiameterConfig | None = None) -> None:
        super().__init__(config or DiameterConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload:
        return facts(rng, size)

    def question(self, payload: Mapping[str, Json]) -> str:
        task = (
            "The distance of two entities is the fewest steps from one to the other; relations can be followed both "
            "ways. Find two entities that are farthest apart, and write a shortest path between them."
        )
        return knowledge(payload, task)

    def best(self, payload: Mapping[str, Json]) -> Found:
        return diameter(Graph.from_payload(payload).neighbours)

    def worth(
        self, graph: Graph, nodes: tuple[int, ...], payload: Mapping[str, Json]
    ) -> float | str:
        fault = broken_path(graph, nodes)
        if fault:
            return fault
        if distance(graph.neighbours, nodes[0], nodes[-1]) != len(nodes) - 1:
            return (
                f"there is a shorter path from {graph.names[nodes[0]]} to {graph.names[nodes[-1]]}"
            )
        return len(nodes) - 1
