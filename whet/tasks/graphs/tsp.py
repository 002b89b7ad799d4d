"""Travelling salesman: the shortest tour of all airports, back to the first."""

from collections.abc import Mapping
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import TOUR_SIZES, Graph
from whet.tasks.graphs.named import NamedTask, repeated
from whet.tasks.graphs.prompts import flight_network
from whet.tasks.graphs.solvers.found import Found
from whet.tasks.graphs.solvers.tour import shortest_tour, tour_length
from whet.tasks.graphs.sources import Payload, flights
from whet.types import Json


class TspConfig(GraphConfig):
    name: Literal["tsp"] = "tsp"


class Tsp(NamedTask):
    name = "tsp"
    has_one_answer = False
    goal = "min"
    spans = TOUR_SIZES

    def __init__(self, config: TspConfig | None = None) -> None:
        super().__init__(config or TspConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload:
        return flights(rng, size)

    def question(self, payload: Mapping[str, Json]) -> str:
        task = "Find a shortest tour that visits every airport once and returns to where it began."
        return flight_network(payload, task)

    def best(self, payload: Mapping[str, Json]) -> Found:
        return shortest_tour(_distances(Graph.from_payload(payload)))

    def worth(
        self, graph: Graph, nodes: tuple[int, ...], payload: Mapping[str, Json]
    ) -> float | str:
        if nodes[0] != nodes[-1]:
            return "the tour does not return to its first airport"
        missing = set(range(len(graph.names))) - set(nodes)
        if missing:
            return f"the tour leaves out {graph.names[min(missing)]}"
        return repeated(graph, nodes[1:]) or tour_length(nodes, _distances(graph))


def _distances(graph: Graph) -> list[list[float]]:
    n = len(graph.names)
    table: list[list[float]] = [[0] * n for _ in range(n)]
    known = set()
    for (a, b), weight in zip(graph.edges, graph.weights, strict=True):
        if weight is not None:
            table[a][b] = table[b][a] = weight
            known.add((min(a, b), max(a, b)))
    if len(known) != n * (n - 1) // 2:
        raise DataError(
            f"a tour needs the distance of every pair of {n} airports, and {len(known)} are given"
        )
    return table
