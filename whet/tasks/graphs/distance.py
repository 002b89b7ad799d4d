"""Shortest path: the fewest steps from one entity to another."""

from collections.abc import Mapping
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import PATH_SIZES, Graph
from whet.tasks.graphs.named import NamedTask, broken_path
from whet.tasks.graphs.prompts import knowledge
from whet.tasks.graphs.solvers.found import Found, members
from whet.tasks.graphs.solvers.paths import layers, shortest_path
from whet.tasks.graphs.sources import Payload, facts
from whet.types import Json


class DistanceConfig(GraphConfig):
    name: Literal["distance"] = "distance"


class Distance(NamedTask):
    name = "distance"
    goal = "min"
    spans = PATH_SIZES

    def __init__(self, config: DistanceConfig | None = None) -> None:
        super().__init__(config or DistanceConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload | None:
        """Draw a graph and two entities at least two steps apart."""
        payload = facts(rng, size)
        graph = Graph.from_payload(payload)
        start = rng.randrange(size)
        far = [node for layer in layers(graph.neighbours, start)[2:] for node in members(layer)]
        return (
            {**payload, "pair": [graph.names[start], graph.names[rng.choice(far)]]} if far else None
        )

    def question(self, payload: Mapping[str, Json]) -> str:
        graph = Graph.from_payload(payload)
        a, b = (graph.names[node] for node in graph.pair(payload))
        task = f"Find a path from {a} to {b} with the fewest steps; relations can be followed both ways."
        return knowledge(payload, task)

    def best(self, payload: Mapping[str, Json]) -> Found:
        graph = Graph.from_payload(payload)
        found = shortest_path(graph.neighbours, *graph.pair(payload))
        if found is None:
            raise DataError(
                f"payload.pair should name two nodes with a path between them, not {payload['pair']!r}"
            )
        return found

    def worth(
        self, graph: Graph, nodes: tuple[int, ...], payload: Mapping[str, Json]
    ) -> float | str:
        a, b = graph.pair(payload)
        if (nodes[0], nodes[-1]) != (a, b):
            return f"the path does not lead from {graph.names[a]} to {graph.names[b]}"
        return broken_path(graph, nodes) or len(nodes) - 1
