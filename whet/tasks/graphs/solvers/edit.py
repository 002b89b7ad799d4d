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
    search = _Search(a, b, limit)
    search.run()
    return Solution(
        lists=(search.best,),
        value=search.best_cost,
        nodes=search.nodes,
        is_proven=search.nodes < limit,
    )


def edit_cost(pairing: Sequence[int], a: LabelledGraph, b: LabelledGraph) -> int:
    """Count the label changes and the bonds in one graph only."""
    labels_a, masks_a = a
    labels_b, masks_b = b
    cost = sum(labels_a[i] != labels_b[j] for i, j in enumerate(pairing))
    moved = [sum(1 << pairing[k] for k in members(mask)) for mask in masks_a]
    ends = sum((mask ^ masks_b[j]).bit_count() for mask, j in zip(moved, pairing, strict=True))
    return cost + ends // 2


class _Search:
    def __init__(self, a: LabelledGraph, b: LabelledGraph, limit: int) -> None:
        atoms = range(len(a[0]))
        self._graphs = a, b
        self._bonds = _matrix(a[1]), _matrix(b[1])
        self._limit = limit
        order = sorted(atoms, key=lambda atom: -a[1][atom].bit_count())
        self._order = np.array(order, dtype=np.int64)
        self.nodes = 0
        self.best = tuple(atoms)
        self.best_cost = edit_cost(self.best, a, b)

    def run(self) -> None:
        # Imported here: it takes a third of a second, for this search alone.
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

        self._assign = linear_sum_assignment
        (labels_a, _), (labels_b, _) = self._graphs
        bonds_a, bonds_b = self._bonds
        differs = np.array([[2 * (x != y) for y in labels_b] for x in labels_a], dtype=np.int64)
        n = len(bonds_a)
        everyone = np.arange(n)
        self._visit([], 0, everyone, differs.reshape(n, n), bonds_a.sum(1), bonds_b.sum(1))

    def _visit(
        self,
        chosen: list[int],
        cost: int,
        free: Matrix,
        fixed: Matrix,
        ends_a: Matrix,
        ends_b: Matrix,
    ) -> None:
        """Try the partners of the next atom of A.

        `fixed` is twice the cost of each pair so far, `ends` each atom's bonds to atoms left.
        """
        self.nodes += 1
        rows = self._order[len(chosen) :]
        if not len(rows):
            return
        costs = fixed[np.ix_(rows, free)] + np.abs(ends_a[rows][:, None] - ends_b[free])
        left, right = self._assign(costs)
        if cost + (int(costs[left, right].sum()) + 1) // 2 >= self.best_cost:
            return
        self._offer([*chosen, *(int(v) for v in free[right])])
        bonds_a, bonds_b = self._bonds
        atom = int(rows[0])
        rest = int(costs[1:].min(1).sum())  # the other atoms with the best partner each
        for column in np.argsort(costs[0], kind="stable"):
            partner = int(free[column])
            step = int(fixed[atom, partner]) // 2
            bound = cost + (int(costs[0, column]) + rest + 1) // 2
            if bound >= self.best_cost or self.nodes >= self._limit:
                break
            self._visit(
                [*chosen, partner],
                cost + step,
                np.delete(free, column),
                fixed + 2 * (bonds_a[atom][:, None] != bonds_b[partner]),
                ends_a - bonds_a[atom],
                ends_b - bonds_b[partner],
            )

    def _offer(self, partners: list[int]) -> None:
        pairing = [0] * len(partners)
        for atom, partner in zip(self._order.tolist(), partners, strict=True):
            pairing[atom] = partner
        cost = edit_cost(pairing, *self._graphs)
        if cost < self.best_cost:
            self.best = tuple(pairing)
            self.best_cost = cost


def _matrix(masks: Sequence[int]) -> Matrix:
    n = len(masks)
    rows = [[mask >> k & 1 for k in range(n)] for mask in masks]
    return np.array(rows, dtype=np.int64).reshape(n, n)
