"""Graph problems: GraphArena's ten tasks, NPG-Muse's rows of them in node-link form, GraphWiz and
NLGraph."""

import re
from dataclasses import replace
from itertools import permutations

from whet.data.importers.base import (
    Draft,
    Fields,
    Format,
    items,
    layout,
    one_of,
    optional_text,
    parsed,
    row_id,
    shown,
    table,
    text,
    user,
)
from whet.data.importers.graph_text import KINDS, graph_in
from whet.errors import DataError
from whet.tasks.graphs.instance import GRAPH_SIZES, MOLECULE_SIZES, PATH_SIZES, TOUR_SIZES, Sizes
from whet.tasks.graphs.task import GraphTask
from whet.tasks.registry import make_task
from whet.types import Json

TASKS = {
    "TSP": "tsp",
    "GED": "ged",
    "MCP": "mcp",
    "MIS": "mis",
    "MVC": "mvc",
    "MCS": "mcs",
    "Neighbor": "neighbor",
    "Distance": "distance",
    "Connected": "connected",
    "Component": "connected",
    "Diameter": "diameter",
}
SIZES: dict[str, Sizes] = {
    "tsp": TOUR_SIZES,
    "ged": MOLECULE_SIZES,
    "mcs": MOLECULE_SIZES,
    "neighbor": PATH_SIZES,
    "distance": PATH_SIZES,
}
LEADS = {
    "tsp": "Find the shortest closed tour that visits every airport once. Answer [A, B, ..., A].",
    "ged": "Map the atoms of molecule A onto those of molecule B at the least cost of edits. Answer [b0, b1, ...].",
    "mcp": "Find a largest set of people who all know each other. Answer [A, B, ...].",
    "mis": "Find a largest set of people of whom no two know each other. Answer [A, B, ...].",
    "mvc": "Find a smallest set of people such that every connection has one of them. Answer [A, B, ...].",
    "mcs": "Find a largest common induced subgraph of the two molecules. Answer [atoms of A], [atoms of B].",
    "neighbor": "List all common neighbors of {pair}. Answer [A, B, ...].",
    "distance": "Find a shortest path between {pair}. Answer [A, ..., B].",
    "connected": "Name one member of every connected component. Answer [A, B, ...].",
    "diameter": "Find two entities that are furthest apart, and a shortest path between them. Answer [A, ..., B].",
}
LEVELS = ("easy", "medium", "hard")
_LEG = re.compile(r"^\W*(\S+) to (\S+): ([0-9]+)\W*$", re.MULTILINE)


def grapharena(row: Fields) -> Draft:
    """A worked example has no prompt of its own; its statement ends with the answer, which is left
    out."""
    task = TASKS[one_of("graph task", text(row, "task"), TASKS)]
    graph = table(row, "graph")
    value = row.get("optimal_value")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"field 'optimal_value' should be a number, not {shown(value)}")
    if row.get("prompt") is None:
        pair = " and ".join(str(name) for name in items(graph, "pair")) if "pair" in graph else ""
        prompt = user(
            text(row, "statement").rstrip().rpartition("\n")[0], LEADS[task].format(pair=pair)
        )
    else:
        prompt = user(text(row, "prompt"))
    return Draft(
        task=task,
        prompt=prompt,
        answer=_listed(items(row, "one_optimal_answer")),
        payload={**graph, "optimum": value},
        level=level(task, graph),
        source_id=row_id(row, "id"),
    )


def graphwiz(row: Fields) -> Draft:
    """Where the row has an answer of an independent solver, that one counts: some of the published
    ones are wrong."""
    answer = optional_text(row, "checked_answer") or text(row, "answer").removeprefix("###").strip()
    return _numbered("graphwiz", text(row, "input_prompt"), row, answer)


def nlgraph(row: Fields) -> Draft:
    middle = {"easy": 0.1, "medium": 0.5, "hard": 0.9}[
        one_of("difficulty", text(row, "difficulty"), LEVELS)
    ]
    return replace(
        _numbered("nlgraph", text(row, "question"), row, text(row, "answer")), level=middle
    )


def node_link(task: str, extra: Fields) -> dict[str, Json]:
    """Read NPG-Muse's graph of a task; distances and query pairs stand only in the problem's
    text."""
    value = parsed(extra.get("graph"))
    problem = text(extra, "problem_text")
    if task in ("ged", "mcs"):
        if not isinstance(value, list) or len(value) != 2:
            raise DataError(f"extra_info.graph should be two graphs for {task}, not {shown(value)}")
        return {
            key: _molecule(part, has_labels=task == "ged")
            for key, part in zip("AB", value, strict=True)
        }
    if not isinstance(value, dict):
        raise DataError(f"extra_info.graph should be a graph in node-link form, not {shown(value)}")
    if task == "tsp":
        legs = [
            (a, b, int(d))
            for a, b, d in _LEG.findall(problem.rpartition("**Problem to Solve**")[2])
        ]
        nodes = list(dict.fromkeys(name for a, b, _ in legs for name in (a, b)))
        return {"nodes": list[Json](nodes), "edges": [[a, b, d] for a, b, d in legs]}
    names = {shown(_part(node, "id")): _name(node) for node in items(value, "nodes")}
    edges: list[Json] = []
    for link in items(value, "links"):
        ends = [names.get(shown(_part(link, end))) for end in ("source", "target")]
        if None in ends:
            raise DataError(
                f"a link of extra_info.graph should join two of its nodes, not {shown(link)}"
            )
        edges.append(list[Json](ends))
    graph: dict[str, Json] = {"nodes": list[Json](names.values()), "edges": edges}
    if task in ("neighbor", "distance"):
        graph["pair"] = list[Json](pair_in(problem, list(names.values())))
    return graph


def optimum(task: str, payload: dict[str, Json]) -> dict[str, Json]:
    """Solve a problem whose row does not say how good the best answer is."""
    solver = make_task(task)
    assert isinstance(solver, GraphTask), "graph tasks know their optima"
    found = solver.best(payload)
    return {"optimum": found.value, "proven": found.is_proven}


def pair_in(problem: str, names: list[str]) -> list[str]:
    """Find the two nodes that the last sentences ask about, as `A and B`."""
    tail = problem.rstrip().rpartition("lease")[2]
    best: tuple[str, str] | None = None
    for a, b in permutations(names, 2):
        is_asked = f"of {a} and {b}" in tail or f"between {a} and {b}" in tail
        if is_asked and (best is None or len(a + b) > len("".join(best))):
            best = a, b
    if best is None:
        raise DataError(
            f"extra_info.problem_text should end with a question about two nodes, not {shown(tail[-80:])}"
        )
    return [*best]


def _numbered(task: str, question: str, row: Fields, answer: str) -> Draft:
    kind = KINDS[one_of(f"{task} task", text(row, "task"), KINDS)]
    payload = graph_in(kind, question)
    return Draft(
        task=task,
        prompt=user(question),
        answer=answer,
        payload=payload,
        level=level("", {"nodes": [0] * int(str(payload["nodes"]))}),
        source_id=row_id(row, "id"),
    )


def _molecule(value: Json, *, has_labels: bool) -> Json:
    if not isinstance(value, dict):
        raise DataError(f"a molecule should be a graph in node-link form, not {shown(value)}")
    nodes = items(value, "nodes")
    place = {shown(_part(node, "id")): index for index, node in enumerate(nodes)}
    bonds: list[Json] = []
    for link in items(value, "links"):
        ends = [place.get(shown(_part(link, end))) for end in ("source", "target")]
        if None in ends:
            raise DataError(f"a bond should join two atoms of the molecule, not {shown(link)}")
        bonds.append(list[Json](ends))
    return (
        {"labels": [_name(node) for node in nodes], "bonds": bonds}
        if has_labels
        else {"n": len(nodes), "bonds": bonds}
    )


def _part(value: Json, name: str) -> Json:
    if not isinstance(value, dict) or name not in value:
        raise DataError(f"a node or link of a graph should have {name!r}: {shown(value)}")
    return value[name]


def _name(node: Json) -> str:
    assert isinstance(node, dict), "its id was read before"
    return str(node.get("name", node.get("label", node["id"])))


def level(task: str, graph: Fields) -> float:
    """Grade a graph by its size, as the task grades its own."""
    size = len(items(graph, "nodes")) if "nodes" in graph else _atoms(graph)
    return SIZES.get(task, GRAPH_SIZES).level(size)


def _atoms(graph: Fields) -> int:
    sizes = [
        len(items(part, "labels")) if "labels" in part else int(str(part.get("n", 0)))
        for part in (table(graph, "A"), table(graph, "B"))
    ]
    return max(sizes)


def _listed(answer: list[Json]) -> str:
    """Write an answer in square brackets; one for two molecules is two lists."""
    if answer and all(isinstance(part, list) for part in answer):
        return ", ".join(_listed(part) for part in answer if isinstance(part, list))
    return f"[{', '.join(str(part) for part in answer)}]"


FORMATS: dict[str, Format] = {
    "grapharena_problems": layout(
        "GraphArena's ten tasks",
        grapharena,
        "task statement graph optimal_value one_optimal_answer",
        "id kind objective prompt upstream_answer",
    ),
    "graphwiz": layout(
        "GraphWiz's nine tasks",
        graphwiz,
        "task input_prompt answer",
        "id index node_range edge_range origin rationale checked_answer answer_agrees",
    ),
    "nlgraph": layout(
        "NLGraph's eight tasks", nlgraph, "task question answer difficulty", "id answer_checked"
    ),
}
