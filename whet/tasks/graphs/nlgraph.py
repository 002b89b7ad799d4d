"""NLGraph's eight kinds of questions: yes or no, a number, or something to show: an order, a path,
pairs, embeddings.

See `kinds` for the payload; NLGraph's own names `shortest_path` and `GNN` are the kinds `shortest`
and `gnn` here. What is shown is checked against the graph, so that every right one counts.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from whet.tasks.graphs.checks import Form
from whet.tasks.graphs.numbered import NumberedConfig, NumberedTask
from whet.tasks.graphs.table import Table

_ASKED = {
    "connectivity": "Is there a path between node {0} and node {1}? Say yes or no.",
    "cycle": "Is there a cycle? Say yes or no.",
    "topology": "Visit all nodes so that each comes after those it depends on. Write the order as numbers with commas.",
    "shortest": "Which path from node {0} to node {1} has the least weight? Write its nodes as numbers with commas.",
    "flow": "What is the maximum flow from node {0} to node {1}?",
    "matching": "Give jobs to as many applicants as possible: to each at most one job they want, and no job twice. "
    "Write one line for each who gets one, such as `applicant (number): job (number)`.",
    "hamilton": "Is there a path that visits every node exactly once? If so, write its nodes as numbers with commas; "
    "if not, say no.",
    "gnn": "In a layer every node's embedding becomes the sum of its neighbours' embeddings. What are they after "
    "{2} layers? Write one line a node, such as `node (number): [(number), (number)]`.",
}
_SAID = {
    "connectivity": "The answer is {0}.",
    "cycle": "{1}, there is {2} cycle in this graph.",
    "topology": "The solution is: {0}.",
    "shortest": "The lightest path is {0}",
    "flow": "The maximum flow is {0}.",
    "matching": "{0}",
    "gnn": "The answer is:\n{0}",
}


class NlgraphConfig(NumberedConfig):
    name: Literal["nlgraph"] = "nlgraph"


class Nlgraph(NumberedTask):
    name = "nlgraph"
    has_one_answer = False
    forms: ClassVar[Mapping[str, Form]] = {
        "connectivity": "shown",
        "cycle": "shown",
        "topology": "order",
        "shortest": "path",
        "flow": "number",
        "matching": "pairs",
        "hamilton": "tour",
        "gnn": "rows",
    }

    def __init__(self, config: NlgraphConfig | None = None) -> None:
        super().__init__(config or NlgraphConfig())

    def question(self, table: Table) -> str:
        return f"{_graph(table)}\nQ: {_ASKED[table.kind].format(*table.pair, table.layers)}"

    def response(self, table: Table, answer: str) -> str:
        text = (
            answer.replace("[", "").replace("]", "")
            if self.forms[table.kind] in ("order", "path", "tour")
            else answer
        )
        if table.kind == "hamilton":
            return text if text == "No" else f"Yes. The path can be: {text.removeprefix('Yes, ')}"
        return _SAID[table.kind].format(text, answer, "a" if answer == "Yes" else "no")


def _graph(table: Table) -> str:
    if table.kind == "matching":
        lines = "\n".join(f"Applicant {a} wants job {b}." for a, b in table.pairs)
        return (
            f"Applicants have the numbers 0 to {table.n - 1}, jobs 0 to {table.jobs - 1}.\n{lines}"
        )
    opening = f"A graph has the nodes 0 to {table.n - 1}."
    if table.kind == "topology":
        lines = "\n".join(f"Node {b} depends on node {a}." for a, b in table.pairs)
    elif table.kind in ("shortest", "flow"):
        words = (
            "{0} and {1}, weight {2}" if table.kind == "shortest" else "{0} to {1}, capacity {2}"
        )
        lines = "\n".join(f"Edge: {words.format(*edge)}." for edge in table.weighted)
    else:
        lines = "Edges, both ways: " + " ".join(f"({a},{b})" for a, b in table.pairs)
    if table.kind == "gnn":
        lines += "\n" + "\n".join(
            f"node {k}: [{x},{y}]" for k, (x, y) in enumerate(table.embeddings)
        )
    return f"{opening}\n{lines}"
