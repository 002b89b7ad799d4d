"""Eight problems on graphs with names: how to draw, ask, solve, read and value each.

Friendships: `mis`, `mvc`, `connected`. Co-authors: `mcp`, `neighbor`. Entities and their relations:
`distance`, `diameter`. Airports: `tsp`. The two problems on molecules are in `molecules`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from random import Random
from typing import Any, Generic, Literal, TypeVar

from whet.errors import DataError
from whet.tasks.graphs.instance import GRAPH_SIZES, PATH_SIZES, TOUR_SIZES, Graph, Sizes
from whet.tasks.graphs.node_lists import NodeListReply, read_names
from whet.tasks.graphs.paths import (
    Solution,
    components,
    diameter,
    distance,
    layers,
    members,
    shortest_path,
    shortest_tour,
    tour_length,
)
from whet.tasks.graphs.sources import Payload, authors, facts, flights, friends
from whet.tasks.graphs.subgraphs import max_clique, max_independent_set, min_vertex_cover
from whet.types import Json

T = TypeVar("T")
Goal = Literal["max", "min"]
Nodes = tuple[int, ...]
GraphValue = float | str
"""The value of an answer, or one line that says why it has none."""
ValueOf = Callable[[Graph, Nodes], GraphValue]
Given = Mapping[str, Json]
"""The payload of a problem, drawn or from a file."""

CLOSING = (
    "Think it through, then give the answer in square brackets on the last line and use no "
    "brackets elsewhere"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProblem(Generic[T]):
    """The functions and facts of a graph problem; all but `draw` take the parsed payload."""

    goal: Goal
    sizes: Sizes
    has_one_answer: bool = False
    num_lists: int = 1
    """How many lists an answer has."""
    draw: Callable[[Random, int], Payload | None]
    """Draw a payload of a size; None if the draw is unusable."""
    parse: Callable[[Given], T]
    ask: Callable[[T], str]
    best: Callable[[T], Solution]
    """Solve to the optimum, or to the node limit."""
    read: Callable[[T, str], NodeListReply | None]
    write: Callable[[T, Solution], str]
    """Write a solution in the form of an answer."""
    value: Callable[..., GraphValue]
    """Compute the value of an answer's lists, which follow the parsed payload."""


_on_graph = partial(
    GraphProblem,
    parse=Graph.from_payload,
    read=lambda graph, text: read_names(text, graph.names),
    write=lambda graph, solution: graph.write(solution.lists[0]),
)


def _about_people(task: str, *, nodes: str, edges: str, form: str) -> Callable[[Graph], str]:
    def ask(graph: Graph) -> str:
        names = ", ".join(graph.names)
        pairs = ", ".join(f"{graph.names[a]} and {graph.names[b]}" for a, b in graph.edges)
        lists = f"- {nodes}: {names}.\n- {edges}: {pairs}."
        return f"{_fill_pair(task, graph)}\n\n{lists}\n\n{CLOSING}: {form}"

    return ask


_about_friends = partial(
    _about_people, nodes="Users", edges="Friendships", form="[UserA, UserB, ...]"
)
_about_authors = partial(
    _about_people, nodes="Authors", edges="Collaborations", form="[AuthorA, AuthorB, ...]"
)


def _about_entities(task: str) -> Callable[[Graph], str]:
    def ask(graph: Graph) -> str:
        lines = [f"- Entities: {', '.join(graph.names)}.", "- Relations:"]
        for (a, b), relation in zip(graph.edges, graph.values, strict=True):
            end = "" if relation is None else f": {relation}"
            lines.append(f"{graph.names[a]} and {graph.names[b]}{end}")
        form = "[Entity1, Entity2, ..., EntityN]"
        return "\n".join([_fill_pair(task, graph), "", *lines, "", f"{CLOSING}: {form}"])

    return ask


def _fill_pair(task: str, graph: Graph) -> str:
    if "{0}" not in task:
        return task
    a, b = graph.pair
    return task.format(graph.names[a], graph.names[b])


def _value_each(is_wrong: Callable[[Graph, int, int], object], fault: str) -> ValueOf:
    """Count the nodes of a list, unless one is wrong given the group, a bitset of all of them."""

    def value(graph: Graph, nodes: Nodes) -> GraphValue:
        group = _mask(nodes)
        for node in nodes:
            if is_wrong(graph, node, group):
                return f"{graph.names[node]} {fault}"
        return _repetition(graph, nodes) or len(nodes)

    return value


def _value_cover(graph: Graph, nodes: Nodes) -> GraphValue:
    group = set(nodes)
    for a, b in graph.edges:
        if a not in group and b not in group:
            return f"the friendship of {graph.names[a]} and {graph.names[b]} is not covered"
    return _repetition(graph, nodes) or len(nodes)


def _find_circles(graph: Graph) -> Solution:
    circles = components(graph.neighbours)
    nodes = tuple(members(circle)[0] for circle in circles)
    visited = len(graph.names) + len(graph.edges)
    return Solution(lists=(nodes,), value=len(circles), nodes=visited, is_proven=True)


def _value_circles(graph: Graph, nodes: Nodes) -> GraphValue:
    group = _mask(nodes)
    for circle in components(graph.neighbours):
        both = members(circle & group)[:2]
        if len(both) == 2:
            return f"{graph.names[both[0]]} and {graph.names[both[1]]} are of the same circle"
    return _repetition(graph, nodes) or len(nodes)


def _draw_neighbours(rng: Random, size: int) -> Payload | None:
    payload = authors(rng, size)
    graph = Graph.from_payload(payload)
    near = graph.neighbours
    pairs = [(a, b) for a, b in combinations(range(size), 2) if near[a] & near[b]]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    return {**payload, "pair": [graph.names[a], graph.names[b]]}


def _find_neighbours(graph: Graph) -> Solution:
    a, b = graph.pair
    common = members(graph.neighbours[a] & graph.neighbours[b])
    return Solution(lists=(common,), value=len(common), nodes=len(graph.edges), is_proven=True)


def _is_no_neighbour(graph: Graph, node: int, _: int) -> bool:
    return node not in _find_neighbours(graph).lists[0]


def _draw_distance(rng: Random, size: int) -> Payload | None:
    """Draw a graph and two entities at least two steps apart."""
    payload = facts(rng, size)
    graph = Graph.from_payload(payload)
    start = rng.randrange(size)
    far = [node for layer in layers(graph.neighbours, start)[2:] for node in members(layer)]
    if not far:
        return None
    return {**payload, "pair": [graph.names[start], graph.names[rng.choice(far)]]}


def _find_path(graph: Graph) -> Solution:
    path = shortest_path(graph.neighbours, *graph.pair)
    if path is None:
        two = "two nodes with a path between them"
        raise DataError(f"payload.pair should name {two}, not {graph.asked!r}")
    return path


def _value_path(graph: Graph, nodes: Nodes) -> GraphValue:
    a, b = graph.pair
    if (nodes[0], nodes[-1]) != (a, b):
        return f"the path does not lead from {graph.names[a]} to {graph.names[b]}"
    return _break_in_path(graph, nodes) or len(nodes) - 1


def _value_diameter(graph: Graph, nodes: Nodes) -> GraphValue:
    fault = _break_in_path(graph, nodes)
    if fault:
        return fault
    start = nodes[0]
    end = nodes[-1]
    if distance(graph.neighbours, start, end) != len(nodes) - 1:
        return f"there is a shorter path from {graph.names[start]} to {graph.names[end]}"
    return len(nodes) - 1


def _ask_tour(graph: Graph) -> str:
    rows = zip(graph.edges, graph.values, strict=True)
    lines = "\n".join(
        f"{graph.names[a]} to {graph.names[b]}: {km:g}"
        for (a, b), km in rows
        if isinstance(km, int | float)
    )
    return (
        "Find a shortest tour that visits every airport once and returns to where it began."
        f"\n\n- Airports: {', '.join(graph.names)}.\n- Distances in kilometres:\n{lines}\n\n"
        f"{CLOSING}, the first airport again at the end: [AirportA, AirportB, ..., AirportA]"
    )


def _value_tour(graph: Graph, nodes: Nodes) -> GraphValue:
    if nodes[0] != nodes[-1]:
        return "the tour does not return to its first airport"
    missing = set(range(len(graph.names))) - set(nodes)
    if missing:
        return f"the tour leaves out {graph.names[min(missing)]}"
    return _repetition(graph, nodes[1:]) or tour_length(nodes, _distances(graph))


def _distances(graph: Graph) -> list[list[float]]:
    n = len(graph.names)
    table: list[list[float]] = [[0] * n for _ in range(n)]
    known = set()
    for (a, b), length in zip(graph.edges, graph.values, strict=True):
        if isinstance(length, int | float):
            table[a][b] = table[b][a] = length
            known.add((min(a, b), max(a, b)))
    if len(known) != n * (n - 1) // 2:
        needs = f"the distance of every pair of {n} airports"
        raise DataError(f"a tour needs {needs}, and {len(known)} are given")
    return table


def _repetition(graph: Graph, nodes: Nodes) -> str | None:
    """Say which node is listed more than once, if any is."""
    seen: set[int] = set()
    for node in nodes:
        if node in seen:
            return f"{graph.names[node]} is listed more than once"
        seen.add(node)
    return None


def _break_in_path(graph: Graph, nodes: Nodes) -> str | None:
    """Explain why a list is not a path: a repeated node, or neighbours that are not joined."""
    for a, b in pairwise(nodes):
        if not graph.neighbours[a] >> b & 1:
            return f"{graph.names[a]} and {graph.names[b]} are not joined"
    return _repetition(graph, nodes)


def _mask(nodes: Nodes) -> int:
    return sum(1 << node for node in set(nodes))


GRAPH_PROBLEMS: dict[str, GraphProblem[Any]] = {
    "tsp": _on_graph(
        goal="min",
        sizes=TOUR_SIZES,
        draw=flights,
        ask=_ask_tour,
        best=lambda graph: shortest_tour(_distances(graph)),
        value=_value_tour,
    ),
    "mcp": _on_graph(
        goal="max",
        sizes=GRAPH_SIZES,
        draw=lambda rng, size: authors(rng, size, density=0.5),
        ask=_about_authors(
            "Find a largest group of authors in which every two have worked together."
        ),
        best=lambda graph: max_clique(graph.neighbours),
        value=_value_each(
            lambda graph, node, group: group & ~graph.neighbours[node] & ~(1 << node),
            "has not worked with everyone listed",
        ),
    ),
    "mis": _on_graph(
        goal="max",
        sizes=GRAPH_SIZES,
        draw=friends,
        ask=_about_friends("Find a largest group of users of whom no two are friends."),
        best=lambda graph: max_independent_set(graph.neighbours),
        value=_value_each(
            lambda graph, node, group: group & graph.neighbours[node],
            "is a friend of someone else listed",
        ),
    ),
    "mvc": _on_graph(
        goal="min",
        sizes=GRAPH_SIZES,
        draw=friends,
        ask=_about_friends(
            "Find a smallest group of users such that every friendship has one of them in it."
        ),
        best=lambda graph: min_vertex_cover(graph.neighbours),
        value=_value_cover,
    ),
    "neighbor": _on_graph(
        goal="max",
        sizes=PATH_SIZES,
        draw=_draw_neighbours,
        ask=_about_authors("Find all authors who have worked with {0} and also with {1}."),
        best=_find_neighbours,
        value=_value_each(_is_no_neighbour, "has not worked with both"),
        has_one_answer=True,
    ),
    "distance": _on_graph(
        goal="min",
        sizes=PATH_SIZES,
        draw=_draw_distance,
        ask=_about_entities(
            "Find a path from {0} to {1} with the fewest steps; relations can be followed both "
            "ways."
        ),
        best=_find_path,
        value=_value_path,
        has_one_answer=True,
    ),
    "connected": _on_graph(
        goal="max",
        sizes=GRAPH_SIZES,
        draw=lambda rng, size: friends(rng, size, components=rng.randint(1, 1 + size // 4)),
        ask=_about_friends(
            "Friends of friends, however far, are one circle. Name exactly one user of each circle."
        ),
        best=_find_circles,
        value=_value_circles,
        has_one_answer=True,
    ),
    "diameter": _on_graph(
        goal="max",
        sizes=GRAPH_SIZES,
        draw=facts,
        ask=_about_entities(
            "The distance of two entities is the fewest steps from one to the other; relations can "
            "be followed both ways. Find two entities that are farthest apart, and write a "
            "shortest path between them."
        ),
        best=lambda graph: diameter(graph.neighbours),
        value=_value_diameter,
        has_one_answer=True,
    ),
}
