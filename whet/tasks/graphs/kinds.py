"""Kinds of questions about numbered graphs, as GraphWiz and NLGraph ask them, and their answers.

Payload: `{"kind": ..., "nodes": n, "edges": [[a, b], ...]}`, edges with a third number where they
have a weight or a capacity. Beside it, by kind: `"pair": [a, b]` (connectivity, shortest, flow),
`"weights"` of nodes (triplet), `"pattern": {"nodes", "edges"}` (substructure), `"embeddings"` and
`"layers"` (gnn). In a matching `"nodes"` counts the applicants, `"jobs"` the jobs, and edges are
wishes.
"""

from collections.abc import Callable

from whet.errors import DataError
from whet.tasks.graphs.instance import bitsets
from whet.tasks.graphs.solvers.directed import (
    lightest_path,
    max_flow,
    max_matching,
    topological_order,
)
from whet.tasks.graphs.solvers.found import members
from whet.tasks.graphs.solvers.paths import components, distance
from whet.tasks.graphs.solvers.search import contains, hamiltonian_path
from whet.tasks.graphs.table import Table


def solution(table: Table) -> tuple[str, int]:
    """Answer a question in the form `verdicts` reads, and count the states or the nodes and edges
    looked at.

    Yes or No; a number; a list of nodes; a list with its weight (shortest); one line a pair or node
    (matching, gnn).
    """
    if table.kind == "hamilton":
        path, visited = hamiltonian_path(bitsets(table.n, table.pairs))
        return (f"Yes, {path}" if path else "No"), visited
    if table.kind not in _SOLVED:
        raise DataError(
            f"payload.kind should be one of {', '.join(sorted([*_SOLVED, 'hamilton']))}, not {table.kind!r}"
        )
    return _SOLVED[table.kind](table), table.n + len(table.edges)


def best_triplet(table: Table) -> int:
    """Sum the weights of the heaviest triangle; 0 where there is none."""
    around = bitsets(table.n, table.pairs)
    sums = [
        table.weights[a] + table.weights[b] + table.weights[c]
        for a, b in set(table.pairs)
        for c in members(around[a] & around[b])
    ]
    return max(sums, default=0)


def convolved(table: Table) -> list[tuple[int, int]]:
    """Replace every embedding by the sum of its neighbours', once a layer."""
    around = bitsets(table.n, table.pairs)
    rows = list(table.embeddings)
    for _ in range(table.layers):
        near = [[rows[other] for other in members(mask)] for mask in around]
        rows = [(sum(x for x, _ in others), sum(y for _, y in others)) for others in near]
    return rows


def _yes_no(holds: bool) -> str:
    return "Yes" if holds else "No"


def _connected(table: Table) -> bool:
    return distance(bitsets(table.n, table.pairs), *table.pair) is not None


def _has_cycle(table: Table) -> bool:
    distinct = {(min(a, b), max(a, b)) for a, b in table.pairs}
    return len(distinct) > table.n - len(components(bitsets(table.n, table.pairs)))


def _shortest(table: Table) -> str:
    found = lightest_path(table.n, table.weighted, *table.pair)
    return f"{found[1]} with a total weight of {found[0]}" if found else "No"


def _order(table: Table) -> str:
    order = topological_order(table.n, table.pairs)
    return str(order) if order else "No"


def _matched(table: Table) -> str:
    return "\n".join(
        f"applicant {a}: job {b}" for a, b in sorted(max_matching(table.pairs).items())
    )


def _is_bipartite(table: Table) -> bool:
    around = bitsets(table.n, table.pairs)
    colour: dict[int, int] = {}
    for start in range(len(around)):
        stack = [] if start in colour else [start]
        colour.setdefault(start, 0)
        while stack:
            node = stack.pop()
            for other in members(around[node]):
                if other not in colour:
                    colour[other] = 1 - colour[node]
                    stack.append(other)
                elif colour[other] == colour[node]:
                    return False
    return True


_SOLVED: dict[str, Callable[[Table], str]] = {
    "connectivity": lambda table: _yes_no(_connected(table)),
    "cycle": lambda table: _yes_no(_has_cycle(table)),
    "bipartite": lambda table: _yes_no(_is_bipartite(table)),
    "substructure": lambda table: _yes_no(
        contains(table.n, table.pairs, table.pattern_n, table.pattern)
    ),
    "shortest": _shortest,
    "flow": lambda table: str(max_flow(table.weighted, *table.pair)),
    "topology": _order,
    "triplet": lambda table: str(best_triplet(table)),
    "matching": _matched,
    "gnn": lambda table: "\n".join(
        f"node {k}: {list(row)}" for k, row in enumerate(convolved(table))
    ),
}
