"""Least edit costs between two labelled graphs of equal size, by branch and bound over pairings.

A pairing costs 1 for every atom whose label changes and 1 for every bond that is in one graph only.
The bound solves an assignment problem over the atoms left: the exact cost of a pair against the
atoms already paired, and half the difference of the bonds that lead to atoms not yet paired.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whet.tasks.graphs.solvers.found import NODE_LIMIT, Found

Matrix = NDArray[np.int64]


def min_edit(
    labels_a: Sequence[str],
    a: Sequence[int],
    labels_b: Sequence[str],
    b: Sequence[int],
    *,
    limit: int = NODE_LIMIT,
) -> Found:
    """Pair every atom of A with one of B at the least cost; graphs are given as one bitset an atom.

    >>> min_edit(["C", "O"], [0b10, 0b01], ["O", "C"], [0b10, 0b01]).lists
    ((1, 0),)
    """
    search = _Search(labels_a, a, labels_b, b, limit)
    search.run()
    value = search.best_cost
    return Found(
        lists=(search.best,), value=value, nodes=search.nodes, is_proven=search.nodes < limit
    )


def edit_cost(
    pairing: Sequence[int],
    labels_a: Sequence[str],
    a: Sequence[int],
    labels_b: Sequence[str],
    b: Sequence[int],
) -> int:
    """Count the label changes and the bonds in one graph only."""
    changed = sum(labels_a[i] != labels_b[j] for i, j in enumerate(pairing))
    moved = [sum(1 << pairing[k] for k in range(len(a)) if mask >> k & 1) for mask in a]
    return (
        changed
        + sum((mask ^ b[j]).bit_count() for mask, j in zip(moved, pairing, strict=True)) // 2
    )


class _Search:
    def __init__(
        self,
        labels_a: Sequence[str],
        a: Sequence[int],
        labels_b: Sequence[str],
        b: Sequence[int],
        limit: int,
    ) -> None:
        n = len(a)
        self._labels = labels_a, labels_b
        self._masks = a, b
        self._bonds = _matrix(a), _matrix(b)
        self._limit = limit
        self._order = np.array(
            sorted(range(n), key=lambda atom: -a[atom].bit_count()), dtype=np.int64
        )
        self.nodes = 0
        self.best: tuple[int, ...] = tuple(range(n))
        self.best_cost = self._cost(self.best)

    def run(self) -> None:
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - a third of a second, for this search alone

        self._assign = linear_sum_assignment
        bonds_a, bonds_b = self._bonds
        differs = np.array(
            [[2 * (x != y) for y in self._labels[1]] for x in self._labels[0]], dtype=np.int64
        )
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
        """Try the partners of the next atom of A. `fixed` is twice a pair's cost so far, `ends`
        bonds to atoms left."""
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
        for place in np.argsort(costs[0], kind="stable"):
            partner = int(free[place])
            step = int(fixed[atom, partner]) // 2
            if (
                cost + (int(costs[0, place]) + rest + 1) // 2 >= self.best_cost
                or self.nodes >= self._limit
            ):
                break
            self._visit(
                [*chosen, partner],
                cost + step,
                np.delete(free, place),
                fixed + 2 * (bonds_a[atom][:, None] != bonds_b[partner]),
                ends_a - bonds_a[atom],
                ends_b - bonds_b[partner],
            )

    def _offer(self, partners: list[int]) -> None:
        pairing = [0] * len(partners)
        for atom, partner in zip(self._order.tolist(), partners, strict=True):
            pairing[atom] = partner
        cost = self._cost(pairing)
        if cost < self.best_cost:
            self.best = tuple(pairing)
            self.best_cost = cost

    def _cost(self, pairing: Sequence[int]) -> int:
        return edit_cost(pairing, self._labels[0], self._masks[0], self._labels[1], self._masks[1])


def _matrix(masks: Sequence[int]) -> Matrix:
    n = len(masks)
    return np.array([[mask >> k & 1 for k in range(n)] for mask in masks], dtype=np.int64).reshape(
        n, n
    )
