"""Least edit costs between two labelled graphs of equal size, by branch and bound over pairings.

A pairing costs 1 for every atom whose label changes and 1 for every bond that is in one graph only.
The bound solves an assignment problem over the atoms left: the exact cost of a pair against the
atoms already paired, and half the difference of the bonds that lead to atoms not yet paired.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whet.tasks.graphs.solvers.base import NODE_LIMIT, Solution, members

Matrix = NDArray[np.int64]
LabelledGraph = tuple[Sequence[str], Sequence[int]]
"""The label of every atom, and its neighbours as a bitset."""


def min_edit(a: LabelledGraph, b: LabelledGraph, *, limit: int = NODE_LIMIT) -> Solution:
    """Pair every atom of A with one of B at the least cost.

    >>> min_edit((["C", "O"], [0b10, 0b01]), (["O", "C"], [0b10, 0b01])).lists
    ((1, 0),)
    """
    # Imported here: it takes a third of a second, for this search alone.
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    bonds_a = _matrix(a[1])
    bonds_b = _matrix(b[1])
    n = len(bonds_a)
    order = np.array(sorted(range(n), key=lambda atom: -a[1][atom].bit_count()), dtype=np.int64)
    best = list(range(n))
    best_cost = edit_cost(best, a, b)
    nodes = 0

    def visit(
        chosen: list[int], cost: int, free: Matrix, fixed: Matrix, ends_a: Matrix, ends_b: Matrix
    ) -> None:
        """Try the partners of the next atom of A.

        `fixed` is twice the cost of each pair so far, `ends` each atom's bonds to atoms left.
        """
        nonlocal best, best_cost, nodes
        nodes += 1
        rows = order[len(chosen) :]
        if not len(rows):
            return
        costs = fixed[np.ix_(rows, free)] + np.abs(ends_a[rows][:, None] - ends_b[free])
        left, right = linear_sum_assignment(costs)
        if cost + (int(costs[left, right].sum()) + 1) // 2 >= best_cost:
            return
        partners = [*chosen, *(int(v) for v in free[right])]
        pairing = [partner for _, partner in sorted(zip(order.tolist(), partners, strict=True))]
        if (paired_cost := edit_cost(pairing, a, b)) < best_cost:
            best = pairing
            best_cost = paired_cost
        atom = int(rows[0])
        rest = int(costs[1:].min(1).sum())  # the other atoms with the best partner each
        for column in np.argsort(costs[0], kind="stable"):
            partner = int(free[column])
            step = int(fixed[atom, partner]) // 2
            bound = cost + (int(costs[0, column]) + rest + 1) // 2
            if bound >= best_cost or nodes >= limit:
                break
            visit(
                [*chosen, partner],
                cost + step,
                np.delete(free, column),
                fixed + 2 * (bonds_a[atom][:, None] != bonds_b[partner]),
                ends_a - bonds_a[atom],
                ends_b - bonds_b[partner],
            )

    differs = np.array([[2 * (x != y) for y in b[0]] for x in a[0]], dtype=np.int64)
    visit([], 0, np.arange(n), differs.reshape(n, n), bonds_a.sum(1), bonds_b.sum(1))
    return Solution(lists=(tuple(best),), value=best_cost, nodes=nodes, is_proven=nodes < limit)


def edit_cost(pairing: Sequence[int], a: LabelledGraph, b: LabelledGraph) -> int:
    """Count the label changes and the bonds in one graph only."""
    labels_a, masks_a = a
    labels_b, masks_b = b
    cost = sum(labels_a[i] != labels_b[j] for i, j in enumerate(pairing))
    moved = [sum(1 << pairing[k] for k in members(mask)) for mask in masks_a]
    ends = sum((mask ^ masks_b[j]).bit_count() for mask, j in zip(moved, pairing, strict=True))
    return cost + ends // 2


def _matrix(masks: Sequence[int]) -> Matrix:
    n = len(masks)
    rows = [[mask >> k & 1 for k in range(n)] for mask in masks]
    return np.array(rows, dtype=np.int64).reshape(n, n)
