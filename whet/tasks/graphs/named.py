"""Graph tasks whose answer is one list of node names: how it is read and written."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from whet.rng import stream
from whet.tasks.graphs.instance import Graph
from whet.tasks.graphs.node_lists import Reply, read_names
from whet.tasks.graphs.solvers.found import Found
from whet.tasks.graphs.task import GraphTask
from whet.types import Json, Message, Problem


class NamedTask(GraphTask):
    """Read and write names; what a list is worth is for each task to say."""

    def read(self, payload: Mapping[str, Json], text: str) -> Reply | None:
        return read_names(text, Graph.from_payload(payload).names)

    def write(self, payload: Mapping[str, Json], found: Found) -> str:
        return Graph.from_payload(payload).listed(found.lists[0])

    def vary(self, problem: Problem, seed: int) -> Problem:
        """Ask a drawn problem with its nodes and edges in another order; one from a file is given
        back as it is."""
        nodes = problem.payload.get("nodes")
        edges = problem.payload.get("edges")
        if (
            problem.source != self.name
            or not isinstance(nodes, list)
            or not isinstance(edges, list)
        ):
            return problem
        rng = stream(seed, self.name, "vary", problem.id)
        payload: dict[str, Json] = {**problem.payload}
        payload |= {"nodes": rng.sample(nodes, len(nodes)), "edges": rng.sample(edges, len(edges))}
        return replace(
            problem, payload=payload, prompt=(Message(role="user", content=self.question(payload)),)
        )

    def value(self, payload: Mapping[str, Json], reply: Reply) -> float | str:
        return self.worth(Graph.from_payload(payload), reply.lists[0], payload)

    def worth(
        self, graph: Graph, nodes: tuple[int, ...], payload: Mapping[str, Json]
    ) -> float | str:
        """Value a list of nodes, or say why it is no answer."""
        raise NotImplementedError


def repeated(graph: Graph, nodes: tuple[int, ...]) -> str | None:
    """Say which node is listed more than once, if any is."""
    seen: set[int] = set()
    for node in nodes:
        if node in seen:
            return f"{graph.names[node]} is listed more than once"
        seen.add(node)
    return None


def broken_path(graph: Graph, nodes: tuple[int, ...]) -> str | None:
    """Say where a list is no path: a node again, or two in a row that are not joined."""
    for a, b in pairwise(nodes):
        if not graph.neighbours[a] >> b & 1:
            return f"{graph.names[a]} and {graph.names[b]} are not joined"
    return repeated(graph, nodes)


def as_mask(nodes: tuple[int, ...]) -> int:
    return sum(1 << node for node in set(nodes))
