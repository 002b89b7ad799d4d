"""GraphWiz's nine kinds of questions: yes or no, a number, or an order of the nodes, after `###`.

See `kinds` for the payload. Orders are checked against the edges, so that every right one counts.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from whet.tasks.graphs.checks import Form
from whet.tasks.graphs.numbered import NumberedConfig, NumberedTask
from whet.tasks.graphs.table import Table

_ASKED = {
    "connectivity": "Can one get from node {0} to node {1}? Answer Yes or No.",
    "cycle": "Does the graph have a cycle? Answer Yes or No.",
    "bipartite": "Leave directions aside. Is the graph bipartite? Answer Yes or No.",
    "hamilton": "Does some path visit every node exactly once? Answer Yes or No.",
    "substructure": "Can different nodes of G stand for the letters so that all edges of the pattern are there? "
    "Answer Yes or No.",
    "shortest": "What is the weight of the lightest path between node {0} and node {1}?",
    "flow": "What is the maximum flow from node {0} to node {1}?",
    "triplet": "Of all three nodes that are joined to each other, what is the largest sum of weights? "
    "If there are no such three, it is 0.",
    "topology": "Give an order of all nodes in which every edge leads forward.",
}
_DIRECTED = ("bipartite", "flow", "substructure", "topology")
_CLOSING = "End with a line that has ### and the answer, as in `### {}`."
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class GraphwizConfig(NumberedConfig):
    name: Literal["graphwiz"] = "graphwiz"


class Graphwiz(NumberedTask):
    name = "graphwiz"
    has_one_answer = False
    forms: ClassVar[Mapping[str, Form]] = {
        "connectivity": "yes_no",
        "cycle": "yes_no",
        "bipartite": "yes_no",
        "hamilton": "yes_no",
        "substructure": "yes_no",
        "shortest": "number",
        "flow": "number",
        "triplet": "number",
        "topology": "order",
    }

    def __init__(self, config: GraphwizConfig | None = None) -> None:
        super().__init__(config or GraphwizConfig())

    def question(self, table: Table) -> str:
        form = self.forms[table.kind]
        example = {
            "yes_no": "(Yes or No)",
            "number": "(number)",
            "order": "[first node, second node, ...]",
        }[form]
        asked = _ASKED[table.kind].format(*table.pair)
        return f"{_graph(table)}\n{asked}\n{_CLOSING.format(example)}"

    def response(self, table: Table, answer: str) -> str:
        return f"### {answer}"


def _graph(table: Table) -> str:
    arrow = "->" if table.kind in _DIRECTED else ", "
    joined = (
        "(i->j) is an edge from i to j"
        if table.kind in _DIRECTED
        else "(i, j) is an edge between i and j"
    )
    has_weights = table.kind in ("shortest", "flow")
    weight = (
        ", and the last number is its weight"
        if table.kind == "shortest"
        else ", and the last number its capacity"
    )
    edges = " ".join(
        f"({edge[0]}{arrow}{edge[1]}{f', {edge[2]}' if has_weights else ''})"
        for edge in table.edges
    )
    text = f"Graph G has the nodes 0 to {table.n - 1}; {joined}{weight if has_weights else ''}.\nEdges: {edges}."
    if table.kind == "triplet":
        weights = " ".join(f"[{node}, {number}]" for node, number in enumerate(table.weights))
        text += f"\nWeights of the nodes, [node, weight]: {weights}."
    if table.kind == "substructure":
        pattern = " ".join(f"({_LETTERS[a]}->{_LETTERS[b]})" for a, b in table.pattern)
        text += (
            f"\nA pattern has the nodes a to {_LETTERS[table.pattern_n - 1]}; its edges: {pattern}."
        )
    return text
