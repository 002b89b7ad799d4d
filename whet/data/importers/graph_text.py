"""Numbered graphs out of the words of a question, as GraphWiz and NLGraph write them.

The payload is that of the tasks `graphwiz` and `nlgraph`, which `whet/tasks/graphs/questions.py`
describes.
"""

import re

from whet.errors import DataError
from whet.types import Json

KINDS = {
    "connectivity": "connectivity",
    "cycle": "cycle",
    "bipartite": "bipartite",
    "shortest": "shortest",
    "shortest_path": "shortest",
    "topology": "topology",
    "triplet": "triplet",
    "flow": "flow",
    "hamilton": "hamilton",
    "substructure": "substructure",
    "matching": "matching",
    "GNN": "gnn",
}
LAYERS = {"one": 1, "two": 2, "three": 3}

_EDGE = re.compile(r"\(\s*(\d+)\s*(?:,|->)\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_LETTERS = re.compile(r"\(\s*([a-z])\s*->\s*([a-z])\s*\)")
_WEIGHT = re.compile(r"\[\s*(\d+)\s*,\s*(\d+)\s*\]")
_SAID_EDGE = re.compile(
    r"an edge (?:between|from) node (\d+) (?:and|to) node (\d+) with (?:weight|capacity) (\d+)"
)
_BEFORE = re.compile(r"node (\d+) should be visited before node (\d+)")
_WISH = re.compile(r"Applicant (\d+) is interested in job (\d+)")
_LAST = re.compile(r"numbered from 0 to (\d+)")
_PAIR = re.compile(r"(?:between|from) node (\d+) (?:and|to) node (\d+)")
_EMBEDDING = re.compile(r"node (\d+): \[(\d+),\s*(\d+)\]")
_STEPS = re.compile(r"after (\w+) layers?")


def graph_in(kind: str, question: str) -> dict[str, Json]:
    """Read the graph that a question is about.

    >>> graph_in("cycle", "The nodes are numbered from 0 to 2, and the edges are: (0, 1) (1,2). Is there a cycle?")
    {'kind': 'cycle', 'nodes': 3, 'edges': [[0, 1], [1, 2]]}
    """
    asked = question.rpartition("Q: The nodes")[2] if "Q: The nodes" in question else question
    if kind == "matching":
        return _matching(asked)
    if kind == "substructure":
        return _substructure(asked)
    edges = [[int(part) for part in found if part] for found in _EDGE.findall(asked)]
    edges += [
        [int(part) for part in found]
        for found in (*_SAID_EDGE.findall(asked), *_BEFORE.findall(asked))
    ]
    last = _LAST.search(asked)
    largest = max((node for edge in edges for node in edge[:2]), default=-1)
    weights = {int(a): int(b) for a, b in _WEIGHT.findall(asked)} if kind == "triplet" else {}
    nodes = max(int(last[1]) if last else 0, largest, *weights, 0) + 1
    payload: dict[str, Json] = {
        "kind": kind,
        "nodes": nodes,
        "edges": [list[Json](edge) for edge in edges],
    }
    if kind in ("connectivity", "shortest", "flow"):
        payload["pair"] = _pair(asked)
    if kind == "triplet":
        payload["weights"] = [weights.get(node, 0) for node in range(nodes)]
    if kind == "gnn":
        payload |= _convolution(asked, nodes)
    return payload


def _pair(asked: str) -> Json:
    found = _PAIR.findall(asked)
    if not found:
        raise DataError("the question should name the two nodes it asks about")
    return [int(node) for node in found[-1]]


def _matching(asked: str) -> dict[str, Json]:
    lasts = [int(last) for last in _LAST.findall(asked)]
    if len(lasts) != 2:
        raise DataError("a matching question should say how many applicants and jobs there are")
    edges: list[Json] = [[int(a), int(b)] for a, b in _WISH.findall(asked)]
    return {"kind": "matching", "nodes": lasts[0] + 1, "jobs": lasts[1] + 1, "edges": edges}


def _substructure(asked: str) -> dict[str, Json]:
    edges = [(int(a), int(b)) for a, b, _ in _EDGE.findall(asked)]
    letters = [(ord(a) - ord("a"), ord(b) - ord("a")) for a, b in _LETTERS.findall(asked)]
    last = re.search(r"numbered from a to ([a-z])", asked)
    nodes = (
        max(
            [int(last[1]) for last in _LAST.finditer(asked)]
            + [node for edge in edges for node in edge]
            + [0]
        )
        + 1
    )
    size = max([ord(last[1]) - ord("a")] if last else [0], default=0) + 1
    pattern: Json = {"nodes": size, "edges": [[a, b] for a, b in letters]}
    return {
        "kind": "substructure",
        "nodes": nodes,
        "edges": [[a, b] for a, b in edges],
        "pattern": pattern,
    }


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
