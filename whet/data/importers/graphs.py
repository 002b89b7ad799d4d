"""Graph problems: GraphArena, NPG-Muse's rows of it in node-link form, GraphWiz, NLGraph and G1.

GraphWiz and NLGraph describe graphs in words; `whet/tasks/graphs/questions.py` has the payload.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

from whet.data.importers import qa
from whet.data.importers.base import (
    BOXED,
    Fields,
    ParsedRow,
    Reader,
    check_name,
    parse_json,
    show,
    user,
)
from whet.errors import DataError
from whet.tasks.graphs.instance import GRAPH_SIZES, MOLECULE_SIZES, PATH_SIZES, TOUR_SIZES, Sizes
from whet.tasks.graphs.task import GraphTask
from whet.tasks.registry import build_default_task
from whet.types import Json, read_integer

_YES_NO = {"yes": True, "true": True, "no": False, "false": False}
GRAPH_ARENA_TASKS = {
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
SIZES_BY_TASK: dict[str, Sizes] = {
    "tsp": TOUR_SIZES,
    "ged": MOLECULE_SIZES,
    "mcs": MOLECULE_SIZES,
    "neighbor": PATH_SIZES,
    "distance": PATH_SIZES,
}
LEADS = {
    "tsp": "Find the shortest closed tour that visits every airport once. Answer [A, B, ..., A].",
    "ged": "Map the atoms of molecule A onto those of molecule B at the least cost of edits. "
    "Answer [b0, b1, ...].",
    "mcp": "Find a largest set of people who all know each other. Answer [A, B, ...].",
    "mis": "Find a largest set of people of whom no two know each other. Answer [A, B, ...].",
    "mvc": "Find a smallest set of people such that every connection has one of them. "
    "Answer [A, B, ...].",
    "mcs": "Find a largest common induced subgraph of the two molecules. "
    "Answer [atoms of A], [atoms of B].",
    "neighbor": "List all common neighbors of {pair}. Answer [A, B, ...].",
    "distance": "Find a shortest path between {pair}. Answer [A, ..., B].",
    "connected": "Name one member of every connected component. Answer [A, B, ...].",
    "diameter": "Find two entities that are furthest apart, and a shortest path between them. "
    "Answer [A, ..., B].",
}
_FIRST = ("connectivity", "cycle", "bipartite", "shortest", "topology", "triplet")
_NEXT = ("flow", "hamilton", "substructure", "matching")
GRAPH_KINDS = {kind: kind for kind in _FIRST + _NEXT} | {"shortest_path": "shortest", "GNN": "gnn"}
"""The tasks of GraphWiz and NLGraph, by their names in the payload."""
GRAPH_WORDS = {
    "gnn": r"embedding",
    "matching": r"applicant",
    "substructure": r"numbered from a to",
    "flow": r"maximum flow|capacity",
    "hamilton": r"hamilton|every node exactly once",
    "triplet": r"three (?:connected )?nodes|three interconnected",
    "bipartite": r"bipartite",
    "topology": r"topolog|should be visited before",
    "shortest": r"shortest path",
    "cycle": r"cycle",
    "connectivity": r"path between|connected",
}
"""Words that distinguish a kind of question from the kinds listed after it."""
LAYERS = {"one": 1, "two": 2, "three": 3}

_EDGE = re.compile(r"\(\s*(\d+)\s*(?:,|->)\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_LETTERS = re.compile(r"\(\s*([a-z])\s*->\s*([a-z])\s*\)")
_WEIGHT = re.compile(r"\[\s*(\d+)\s*,\s*(\d+)\s*\]")
_EDGE_IN_WORDS = re.compile(
    r"an edge (?:between|from) node (\d+) (?:and|to) node (\d+) with (?:weight|capacity) (\d+)"
)
_BEFORE = re.compile(r"node (\d+) should be visited before node (\d+)")
_INTEREST = re.compile(r"Applicant (\d+) is interested in job (\d+)")
_LAST = re.compile(r"numbered from 0 to (\d+)")
_PAIR = re.compile(r"(?:between|from) node (\d+) (?:and|to) node (\d+)")
_EMBEDDING = re.compile(r"node (\d+): \[(\d+),\s*(\d+)\]")
_STEPS = re.compile(r"after (\w+) layers?")
_LEVELS = {"easy": 0.1, "medium": 0.5, "hard": 0.9}
_LEG = re.compile(r"^\W*(\S+) to (\S+): ([0-9]+)\W*$", re.MULTILINE)


def grapharena(row: Fields) -> ParsedRow:
    """Read a problem. The statement of a worked example ends with the answer, which is cut off."""
    task = GRAPH_ARENA_TASKS[check_name("graph task", row.text("task"), GRAPH_ARENA_TASKS)]
    if "problem_text" in row:
        return read_node_link(task, row)
    graph = row.table("graph")
    row.number("optimal_value")
    if row.get("prompt") is None:
        pair = " and ".join(str(name) for name in graph.entries("pair")) if "pair" in graph else ""
        prompt = user(
            row.text("statement").rstrip().rpartition("\n")[0], LEADS[task].format(pair=pair)
        )
    else:
        prompt = user(row.text("prompt"))
    return ParsedRow(
        task=task,
        prompt=prompt,
        answer=_write_list(row.entries("one_optimal_answer")),
        payload={**graph, "optimum": row["optimal_value"]},
        level=level(task, graph),
    )


def read_node_link(task: str, row: Fields) -> ParsedRow:
    """Read GraphArena's own columns; a problem without a known best value is solved here."""
    payload = node_link(task, row)
    if row.get("exact_answer") is not None:
        best = row.amount("exact_answer")
        payload["optimum"] = int(best) if best.is_integer() else best
    else:
        payload |= _find_optimum(task, payload)
    return ParsedRow(
        task=task,
        prompt=user(row.text("problem_text")),
        answer=None,
        payload=payload,
        level=level(task, payload),
    )


def graphwiz(row: Fields) -> ParsedRow:
    """Prefer the answer of an independent solver, because some published ones are wrong."""
    answer = row.optional_text("checked_answer") or row.text("answer").removeprefix("###").strip()
    return _numbered_graph("graphwiz", row.text("input_prompt"), row, answer)


def nlgraph(row: Fields) -> ParsedRow:
    difficulty = check_name("difficulty", row.text("difficulty"), _LEVELS)
    parsed = _numbered_graph("nlgraph", row.text("question"), row, row.text("answer"))
    return replace(parsed, level=_LEVELS[difficulty])


def node_link(task: str, extra: Fields) -> dict[str, Json]:
    """Read NPG-Muse's graph of a task; distances and queried pairs are only in the text."""
    value = parse_json(extra.get("graph"))
    problem = extra.text("problem_text")
    if task in ("ged", "mcs"):
        if not isinstance(value, list) or len(value) != 2:
            raise DataError(f"extra_info.graph should be two graphs for {task}, not {show(value)}")
        first, second = (_molecule(part, has_labels=task == "ged") for part in value)
        return {"A": first, "B": second}
    if not isinstance(value, dict):
        raise DataError(f"extra_info.graph should be a graph in node-link form, not {show(value)}")
    if task == "tsp":
        legs = _LEG.findall(problem.rpartition("**Problem to Solve**")[2])
        nodes = list(dict.fromkeys(name for a, b, _ in legs for name in (a, b)))
        return {"nodes": list[Json](nodes), "edges": [[a, b, int(d)] for a, b, d in legs]}
    names = {show(_part(node, "id")): _name(node) for node in Fields(value).entries("nodes")}
    reason = "a link of extra_info.graph should join two of its nodes"
    edges = _links(Fields(value), names, reason)
    graph: dict[str, Json] = {"nodes": list[Json](names.values()), "edges": edges}
    if task in ("neighbor", "distance"):
        graph["pair"] = list[Json](pair_in(problem, list(names.values())))
    return graph


def _find_optimum(task: str, payload: dict[str, Json]) -> dict[str, Json]:
    """Solve a problem whose row lacks the best value."""
    solver = build_default_task(task)
    assert isinstance(solver, GraphTask), "graph tasks know their optima"
    best = solver.best(payload)
    return {"optimum": best.value, "proven": best.is_proven}


def pair_in(problem: str, names: list[str]) -> list[str]:
    """Find the two nodes that the last sentence asks about, as `A and B`."""
    tail = problem.rstrip().rpartition("lease")[2]
    best: tuple[str, str] | None = None
    for a, b in permutations(names, 2):
        is_asked = f"of {a} and {b}" in tail or f"between {a} and {b}" in tail
        if is_asked and (best is None or len(a + b) > len("".join(best))):
            best = a, b
    if best is None:
        raise DataError(
            "extra_info.problem_text should end with a question about two nodes, "
            f"not {show(tail[-80:])}"
        )
    return [*best]


def _numbered_graph(task: str, question: str, row: Fields, answer: str) -> ParsedRow:
    named = check_name(f"{task} task", row.text("task"), GRAPH_KINDS) if "task" in row else ""
    kind = GRAPH_KINDS[named] if named else kind_in(question)
    payload = graph_in(kind, question)
    return ParsedRow(
        task=task,
        prompt=user(question),
        answer=answer,
        payload=payload,
        level=level("", {"nodes": [0] * read_integer(payload["nodes"])}),
    )


def kind_in(question: str) -> str:
    """Return the kind of a question, by words that occur in no other kind."""
    for kind, words in GRAPH_WORDS.items():
        if re.search(words, question, re.IGNORECASE):
            return kind
    raise DataError(
        f"the question should ask for one of {', '.join(GRAPH_WORDS)}, not {show(question)}"
    )


def _molecule(value: Json, *, has_labels: bool) -> Json:
    if not isinstance(value, dict):
        raise DataError(f"a molecule should be a graph in node-link form, not {show(value)}")
    nodes = Fields(value).entries("nodes")
    indices = {show(_part(node, "id")): index for index, node in enumerate(nodes)}
    bonds = _links(Fields(value), indices, "a bond should join two atoms of the molecule")
    if has_labels:
        return {"labels": [_name(node) for node in nodes], "bonds": bonds}
    return {"n": len(nodes), "bonds": bonds}


def _links(graph: Fields, nodes: Mapping[str, Json], reason: str) -> list[Json]:
    """Read the two ends of every link, which must be nodes."""
    links: list[Json] = []
    for link in graph.entries("links"):
        ends = [nodes.get(show(_part(link, end))) for end in ("source", "target")]
        if None in ends:
            raise DataError(f"{reason}, not {show(link)}")
        links.append(list[Json](ends))
    return links


def _part(value: Json, name: str) -> Json:
    if not isinstance(value, dict) or name not in value:
        raise DataError(f"a node or link of a graph should have {name!r}: {show(value)}")
    return value[name]


def _name(node: Json) -> str:
    assert isinstance(node, dict), "its id was read before"
    return str(node.get("name", node.get("label", node["id"])))


def level(task: str, graph: Mapping[str, Json]) -> float:
    """Return the level of a graph by its size, as the task does."""
    fields = Fields(graph)
    if "nodes" in fields:
        size = len(fields.entries("nodes"))
    else:
        size = max(_num_atoms(fields.table("A")), _num_atoms(fields.table("B")))
    return SIZES_BY_TASK.get(task, GRAPH_SIZES).level(size)


def _num_atoms(molecule: Fields) -> int:
    if "labels" in molecule:
        return len(molecule.entries("labels"))
    return int(str(molecule.get("n", 0)))


def _write_list(answer: list[Json]) -> str:
    """Write an answer in square brackets; an answer for two molecules is two lists."""
    if answer and all(isinstance(part, list) for part in answer):
        return ", ".join(_write_list(part) for part in answer if isinstance(part, list))
    return f"[{', '.join(str(part) for part in answer)}]"


def graph_in(kind: str, question: str) -> dict[str, Json]:
    """Read the graph that a question is about.

    >>> graph_in("cycle", "The nodes are numbered from 0 to 2, and the edges are: (0, 1) (1,2).")
    {'kind': 'cycle', 'nodes': 3, 'edges': [[0, 1], [1, 2]]}
    """
    asked = question.rpartition("Q: The nodes")[2] if "Q: The nodes" in question else question
    if kind == "matching":
        return _matching(asked)
    if kind == "substructure":
        return _substructure(asked)
    edges = []
    for pattern in (_EDGE, _EDGE_IN_WORDS, _BEFORE):
        edges += [[int(part) for part in match if part] for match in pattern.findall(asked)]
    last = _LAST.search(asked)
    if last is None and not edges:
        raise DataError(f"the question should name nodes or edges of a graph, not {show(question)}")
    largest = max((node for edge in edges for node in edge[:2]), default=-1)
    weights = {int(a): int(b) for a, b in _WEIGHT.findall(asked)} if kind == "triplet" else {}
    nodes = max(int(last[1]) if last else 0, largest, *weights, 0) + 1
    payload: dict[str, Json] = {
        "kind": kind,
        "nodes": nodes,
        "edges": [list[Json](edge) for edge in edges],
    }
    if kind in ("connectivity", "shortest", "flow"):
        pair = _pair(asked)
        payload |= {"pair": list[Json](pair), "nodes": max(nodes, *(node + 1 for node in pair))}
    if kind == "triplet":
        payload["weights"] = [weights.get(node, 0) for node in range(nodes)]
    if kind == "gnn":
        payload |= _convolution(asked, nodes)
    return payload


def _pair(asked: str) -> list[int]:
    pairs = _PAIR.findall(asked)
    if not pairs:
        raise DataError("the question should name the two nodes it asks about")
    return [int(node) for node in pairs[-1]]


def _matching(asked: str) -> dict[str, Json]:
    lasts = [int(last) for last in _LAST.findall(asked)]
    if len(lasts) != 2:
        raise DataError("a matching question should say how many applicants and jobs there are")
    edges: list[Json] = [[int(a), int(b)] for a, b in _INTEREST.findall(asked)]
    return {"kind": "matching", "nodes": lasts[0] + 1, "jobs": lasts[1] + 1, "edges": edges}


def _substructure(asked: str) -> dict[str, Json]:
    edges = [(int(a), int(b)) for a, b, _ in _EDGE.findall(asked)]
    letters = [(ord(a) - ord("a"), ord(b) - ord("a")) for a, b in _LETTERS.findall(asked)]
    last = re.search(r"numbered from a to ([a-z])", asked)
    numbers = [int(number) for number in _LAST.findall(asked)]
    nodes = max([*numbers, *(node for edge in edges for node in edge), 0]) + 1
    if not numbers and not edges:
        raise DataError(f"the question should name nodes or edges of a graph, not {show(asked)}")
    size = ord(last[1]) - ord("a") + 1 if last else 1
    pattern: Json = {"nodes": size, "edges": [[a, b] for a, b in letters]}
    graph: dict[str, Json] = {"nodes": nodes, "edges": [[a, b] for a, b in edges]}
    return {"kind": "substructure", **graph, "pattern": pattern}


def _convolution(asked: str, nodes: int) -> dict[str, Json]:
    rows = {int(node): (int(a), int(b)) for node, a, b in _EMBEDDING.findall(asked)}
    layers = _STEPS.search(asked)
    if rows.keys() != set(range(nodes)) or not layers or layers[1] not in LAYERS:
        raise DataError(
            "a convolution question should give every node's embedding and the number of layers"
        )
    return {
        "embeddings": [list[Json](rows[node]) for node in range(nodes)],
        "layers": LAYERS[layers[1]],
    }


def node_classification(row: Fields) -> ParsedRow:
    """Read G1's rows: the prompt describes the node and its neighbours, the answer is its label."""
    prompt = user(row.text("prompt"), BOXED)
    return ParsedRow(task="table", prompt=prompt, answer=row.text("answer").strip())


def link_prediction(row: Fields) -> ParsedRow:
    """Read G1's rows: whether two nodes are linked, yes or no."""
    answer = row.text("answer").strip().lower()
    return qa.yes_no(row.text("prompt"), _YES_NO[check_name("answer", answer, _YES_NO)])


READERS: dict[str, Reader] = {
    "node_classification": node_classification,
    "link_prediction": link_prediction,
    "grapharena_problems": grapharena,
    "graphwiz": graphwiz,
    "nlgraph": nlgraph,
}
