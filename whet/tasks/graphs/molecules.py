"""Two problems on a pair of molecules: edit distance (`ged`) and common subgraph (`mcs`).

Payload: `{"A": {"labels": [...], "bonds": [[0, 1], ...]}, "B": ...}`, with `"n"` in place of
`labels` if all atoms are alike.

Least edit costs are found by branch and bound over pairings. A pairing costs 1 for every atom whose
label changes and 1 for every bond that is in one graph only. The bound solves an assignment problem
over the remaining atoms: a pair costs its exact cost against the atoms already paired, plus half
the difference in bonds to atoms not yet paired.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataError
from whet.tasks.graphs.instance import MOLECULE_SIZES, IntPair
from whet.tasks.graphs.node_lists import read_final_list, read_two
from whet.tasks.graphs.paths import NODE_LIMIT, Solution, bitsets, members
from whet.tasks.graphs.problems import CLOSING, GraphProblem, GraphValue, Nodes
from whet.tasks.graphs.sources import Payload
from whet.tasks.graphs.subgraphs import are_isomorphic, induce, max_common_subgraph
from whet.types import Json

_Ints = NDArray[np.int64]


class Molecule(NamedTuple):
    """The label of every atom, the bonds, and the neighbours of every atom as a bitset."""

    labels: Sequence[str]
    bonds: Sequence[IntPair]
    neighbours: Sequence[int]


Molecules = tuple[Molecule, Molecule]


def make_molecule(labels: Sequence[str], bonds: Sequence[IntPair]) -> Molecule:
    return Molecule(labels, bonds, bitsets(len(labels), bonds))


def min_edit(a: Molecule, b: Molecule, *, limit: int = NODE_LIMIT) -> Solution:
    """Pair every atom of A with one of B at the least cost.

    >>> min_edit(make_molecule(["C", "O"], [(0, 1)]), make_molecule(["O", "C"], [(0, 1)])).lists
    ((1, 0),)
    """
    # Imported here: it takes a third of a second, for this search alone.
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    bonds_a = _matrix(a.neighbours)
    bonds_b = _matrix(b.neighbours)
    n = len(bonds_a)
    order = np.argsort(-bonds_a.sum(1), kind="stable")
    best = list(range(n))
    best_cost = edit_cost(best, a, b)
    nodes = 0

    def visit(
        chosen: list[int], cost: int, free: _Ints, fixed: _Ints, ends_a: _Ints, ends_b: _Ints
    ) -> None:
        """Try the partners of the next atom of A.

        `fixed` is twice the cost of each pair so far, `ends_a` and `ends_b` count each atom's bonds
        to unpaired atoms.
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

    differs = np.array([[2 * (x != y) for y in b.labels] for x in a.labels], dtype=np.int64)
    visit([], 0, np.arange(n), differs.reshape(n, n), bonds_a.sum(1), bonds_b.sum(1))
    return Solution(lists=(tuple(best),), value=best_cost, nodes=nodes, is_proven=nodes < limit)


def edit_cost(pairing: Sequence[int], a: Molecule, b: Molecule) -> int:
    """Count the label changes and the bonds that are in one graph only."""
    cost = sum(a.labels[i] != b.labels[j] for i, j in enumerate(pairing))
    moved = [sum(1 << pairing[k] for k in members(mask)) for mask in a.neighbours]
    ends = sum((mask ^ b.neighbours[j]).bit_count() for mask, j in zip(moved, pairing, strict=True))
    return cost + ends // 2


def _matrix(masks: Sequence[int]) -> _Ints:
    n = len(masks)
    rows = [[mask >> k & 1 for k in range(n)] for mask in masks]
    return np.array(rows, dtype=np.int64).reshape(n, n)


def _read_molecule(payload: Mapping[str, Json], key: str) -> Molecule:
    row = payload.get(key)
    fields = row if isinstance(row, dict) else {}
    labels = fields.get("labels")
    bonds = fields.get("bonds")
    n = fields.get("n")
    if labels is None and isinstance(n, int):
        labels = [""] * min(n, 1 << 16)
    if not isinstance(labels, list) or not isinstance(bonds, list):
        needs = "a molecule with `labels` (or `n`) and `bonds`"
        raise DataError(f"payload.{key} should be {needs}, not {row!r}")
    pairs = []
    for bond in bonds:
        ends = [end for end in bond if isinstance(end, int)] if isinstance(bond, list) else []
        if len(ends) != 2 or not all(0 <= end < len(labels) for end in ends):
            joins = f"joins two of {len(labels)} atoms"
            raise DataError(f"a bond of payload.{key} {joins}, not {bond!r}")
        pairs.append((ends[0], ends[1]))
    return make_molecule([str(label) for label in labels], pairs)


_ELEMENTS = {
    "C": (4, 58),
    "N": (3, 12),
    "O": (2, 15),
    "F": (1, 5),
    "S": (2, 4),
    "Cl": (1, 4),
    "Br": (1, 1),
    "P": (3, 1),
}
"""How many bonds an atom can have, and how often in a hundred it is drawn."""


def draw_molecule(rng: Random, size: int) -> tuple[list[str], list[IntPair]]:
    """Draw atoms and bonds: a tree within the valences, then some rings, numbered at random."""
    kinds = list(_ELEMENTS)
    odds = [often for _, often in _ELEMENTS.values()]
    bonds: list[IntPair] = []
    labels = ["C"]
    free = [3]
    while len(labels) < size:
        label = rng.choices(kinds, odds)[0]
        open_ends = [atom for atom, left in enumerate(free) if left]
        valence = _ELEMENTS[label][0]
        if len(open_ends) == 1 and free[open_ends[0]] == 1 and valence == 1:
            continue
        atom = rng.choice(open_ends[-4:])
        bonds.append((atom, len(labels)))
        free[atom] -= 1
        labels.append(label)
        free.append(min(valence, 3) - 1)
    for _ in range(rng.randrange(size // 5 + 2)):
        a, b = sorted(rng.sample(range(size), 2))
        if free[a] and free[b] and (a, b) not in bonds:
            bonds.append((a, b))
            free[a] -= 1
            free[b] -= 1
    order = list(range(size))
    rng.shuffle(order)
    pairs = [sorted((order.index(a), order.index(b))) for a, b in bonds]
    return [labels[atom] for atom in order], sorted((a, b) for a, b in pairs)


_on_molecules = partial(
    GraphProblem,
    sizes=MOLECULE_SIZES,
    parse=lambda payload: (_read_molecule(payload, "A"), _read_molecule(payload, "B")),
    write=lambda pair, solution: ", ".join(str(list(nodes)) for nodes in solution.lists),
)


def _ask(pair: Molecules, task: str, form: str, *, has_labels: bool) -> str:
    parts = [task]
    for key, molecule in zip("AB", pair, strict=True):
        bonds = ", ".join(f"{a}-{b}" for a, b in molecule.bonds)
        atoms = ", ".join(f"{label} (atom {n})" for n, label in enumerate(molecule.labels))
        opening = f" has {len(molecule.labels)} atoms, numbered from 0."
        if has_labels:
            opening = f":\n- Atoms: {atoms}."
        parts.append(f"Molecule {key}{opening}\n- Bonds: {bonds}.")
    return "\n\n".join([*parts, f"{CLOSING}: {form}"])


def _draw_pair(rng: Random, size: int, *, has_labels: bool) -> Payload:
    """Draw two molecules of equal size, or of nearly equal size without labels."""
    other = size if has_labels else max(4, size + rng.randint(-1, 1))
    payload: Payload = {}
    for key, count in (("A", size), ("B", other)):
        labels, bonds = draw_molecule(rng, count)
        atoms: Payload = {"labels": [*labels]} if has_labels else {"n": len(labels)}
        payload[key] = {**atoms, "bonds": [list(bond) for bond in bonds]}
    return payload


def _find_pairing(pair: Molecules) -> Solution:
    _check_same_size(pair)
    return min_edit(*pair)


def _value_pairing(pair: Molecules, pairing: Nodes) -> GraphValue:
    """Value a pairing by its cost; smaller is better."""
    _check_same_size(pair)
    n = len(pair[0].labels)
    if sorted(pairing) != list(range(n)):
        return f"the list does not name each atom from 0 to {n - 1} once"
    return edit_cost(pairing, *pair)


def _check_same_size(pair: Molecules) -> None:
    a, b = (len(molecule.labels) for molecule in pair)
    if a != b:
        raise DataError(f"the two molecules should be of one size, not {a} and {b} atoms")


def _value_common_subgraph(pair: Molecules, *lists: Nodes) -> GraphValue:
    """Count the atoms of a common subgraph.

    As in GraphArena, elements do not count, the atoms need not be connected, and each list is a
    set: the question does not ask which atom of A matches which of B, so any order is right.
    Missing bonds count as much as present ones (an induced subgraph).
    """
    for key, molecule, nodes in zip("AB", pair, lists, strict=True):
        outside = [node for node in nodes if node >= len(molecule.labels)]
        if outside:
            return f"molecule {key} has no atom {outside[0]}"
        if len(set(nodes)) != len(nodes):
            return f"an atom of molecule {key} is listed more than once"
    a, b = (induce(part.neighbours, nodes) for part, nodes in zip(pair, lists, strict=True))
    if len(a) != len(b):
        return f"{len(a)} atoms of A cannot match {len(b)} of B"
    if a != b and not are_isomorphic(a, b):
        return "the chosen atoms of A and B are not bonded in the same way"
    return len(a)


MOLECULE_PROBLEMS: dict[str, GraphProblem[Any]] = {
    "ged": _on_molecules(
        goal="min",
        draw=partial(_draw_pair, has_labels=True),
        ask=lambda pair: _ask(
            pair,
            "Pair every atom of molecule A with a different atom of molecule B so that the cost is "
            "least. An atom paired with one of another element costs 1, and so does every bond "
            "that has no counterpart in the other molecule.",
            "[partner of atom 0, partner of atom 1, ...], where partners are atom numbers of "
            "molecule B",
            has_labels=True,
        ),
        best=_find_pairing,
        read=lambda pair, text: read_final_list(text),
        value=_value_pairing,
    ),
    "mcs": _on_molecules(
        goal="max",
        num_lists=2,
        draw=partial(_draw_pair, has_labels=False),
        ask=lambda pair: _ask(
            pair,
            "Find the largest common subgraph of two molecules: as many atoms of A as of B, such "
            "that the bonds among the chosen atoms of A, and no others, are matched by those among "
            "the chosen atoms of B. Elements do not matter, and the atoms of each list may be in "
            "any order.",
            "[atom numbers of A], [atom numbers of B]",
            has_labels=False,
        ),
        best=lambda pair: max_common_subgraph(pair[0].neighbours, pair[1].neighbours),
        read=lambda pair, text: read_two(text),
        value=_value_common_subgraph,
    ),
}
