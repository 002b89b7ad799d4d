"""Connected components: one user of each."""

from collections.abc import Mapping
from random import Random
from typing import Literal

from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import GRAPH_SIZES, Graph
from whet.tasks.graphs.named import NamedTask, as_mask, repeated
from whet.tasks.graphs.prompts import friendship
from whet.tasks.graphs.solvers.found import Found, members
from whet.tasks.graphs.solvers.paths import components
from whet.tasks.graphs.sources import Payload, friends
from whet.types import Json


class ConnectedConfig(GraphConfig):
    name: Literal["connected"] = "connected"


class Connected(NamedTask):
    name = "connected"
    goal = "max"
    spans = GRAPH_SIZES

    def __init__(self, config: ConnectedConfig | None = None) -> None:
        super().__init__(config or ConnectedConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload:
        return friends(rng, size, components=rng.randint(1, 1 + size // 4))

    def question(self, payload: Mapping[str, Json]) -> str:
        task = (
            "Friends of friends, however far, are one circle. Name exactly one user of each circle."
        )
        return friendship(payload, task)

    def best(self, payload: Mapping[str, Json]) -> Found:
        graph = Graph.from_payload(payload)
        circles = components(graph.neighbours)
        visited = len(graph.names) + len(graph.edges)
        nodes = tuple(members(circle)[0] for circle in circles)
        return Found(lists=(nodes,), value=len(circles), nodes=visited, is_proven=True)

    def worth(
        self, graph: Graph, nodes: tuple[int, ...], payload: Mapping[str, Json]
    ) -> float | str:
        listed = as_mask(nodes)
        for circle in components(graph.neighbours):
            both = members(circle & listed)[:2]
            if len(both) == 2:
                return f"{graph.names[both[0]]} and {graph.names[both[1]]} are of the same circle"
        return repeated(graph, nodes) or len(nodes)
