"""Graphs as problems carry them: named nodes and edges in the payload, bitsets inside; and how
large each level is.

Payloads: `{"nodes": [name, ...], "edges": [[name, name], ...]}`, an edge with a third part where it
has a distance (tsp) or a relation (distance, diameter), and `"pair": [name, name]` where two nodes
are asked about. Molecules come in twos: `{"A": {"labels": [...], "bonds": [[0, 1], ...]}, "B":
...}`, with `"n"` in place of `labels` where atoms are all alike. Beside them stand `"optimum"`, the
best value there is, and `"proven"`, false where a search ended early.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.errors import DataError
from whet.types import Json

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes by number, each with its name and its neighbours as a bitset."""

    names: tuple[str, ...]
    neighbours: tuple[int, ...]
    edges: tuple[Span, ...]
    weights: tuple[float | None, ...]

    @staticmethod
    def from_payload(payload: Mapping[str, Json]) -> "Graph":
        names = payload.get("nodes")
        rows = payload.get("edges")
        if not isinstance(names, list) or not isinstance(rows, list):
            raise DataError(
                f"a graph needs the lists payload.nodes and payload.edges, not {list(payload)}"
            )
        texts = tuple(str(name) for name in names)
        place = {name: number for number, name in enumerate(texts)}
        if len(place) != len(texts):
            raise DataError("a graph needs a different name for every node in payload.nodes")
        edges = []
        weights = []
        for row in rows:
            if (
                not isinstance(row, list)
                or len(row) not in (2, 3)
                or not {str(row[0]), str(row[1])} <= place.keys()
            ):
                raise DataError(
                    f"an edge names two of payload.nodes, with at most one value after them, not {row!r}"
                )
            edges.append((place[str(row[0])], place[str(row[1])]))
            weight = row[2] if len(row) == 3 else None
            weights.append(weight if isinstance(weight, int | float) else None)
        return Graph(
            names=texts,
            neighbours=bitsets(len(texts), edges),
            edges=tuple(edges),
            weights=tuple(weights),
        )

    def listed(self, nodes: Sequence[int]) -> str:
        """Write nodes as answers are written.

        >>> Graph(names=("A", "B"), neighbours=(2, 1), edges=((0, 1),), weights=(None,)).listed([1, 0])
        '[B, A]'
        """
        return f"[{', '.join(self.names[node] for node in nodes)}]"

    def pair(self, payload: Mapping[str, Json]) -> Span:
        """Find the two nodes asked about."""
        pair = payload.get("pair")
        if (
            isinstance(pair, list)
            and len(pair) == 2
            and {str(pair[0]), str(pair[1])} <= set(self.names)
        ):
            return self.names.index(str(pair[0])), self.names.index(str(pair[1]))
        raise DataError(f"payload.pair should name two of payload.nodes, not {pair!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Molecule:
    labels: tuple[str, ...]
    neighbours: tuple[int, ...]
    bonds: tuple[Span, ...]

    @staticmethod
    def from_payload(payload: Mapping[str, Json], key: str) -> "Molecule":
        row = payload.get(key)
        labels, bonds = (
            (row.get("labels"), row.get("bonds")) if isinstance(row, dict) else (None, None)
        )
        if isinstance(row, dict) and labels is None and isinstance(row.get("n"), int):
            labels = ["" for _ in range(min(int(str(row["n"])), 1 << 16))]
        if not isinstance(labels, list) or not isinstance(bonds, list):
            raise DataError(
                f"payload.{key} should be a molecule with `labels` (or `n`) and `bonds`, not {row!r}"
            )
        pairs = []
        for bond in bonds:
            ends = [end for end in bond if isinstance(end, int)] if isinstance(bond, list) else []
            if len(ends) != 2 or not all(0 <= end < len(labels) for end in ends):
                raise DataError(
                    f"a bond of payload.{key} joins two of {len(labels)} atoms, not {bond!r}"
                )
            pairs.append((ends[0], ends[1]))
        texts = tuple(str(label) for label in labels)
        return Molecule(labels=texts, neighbours=bitsets(len(texts), pairs), bonds=tuple(pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many nodes a problem has: one span for each fifth of the level, and GraphArena's two."""

    levels: tuple[Span, Span, Span, Span, Span]
    easy: Span
    hard: Span

    def at(self, level: float) -> int:
        """Turn a level from 0 to 1 into a number of nodes.

        >>> GRAPH_SIZES.at(0.0), GRAPH_SIZES.at(0.19), GRAPH_SIZES.at(0.2), GRAPH_SIZES.at(1.0)
        (4, 7, 8, 30)
        """
        fifth = min(int(level * 5), 4)
        low, high = self.levels[fifth]
        return min(low + int((level * 5 - fifth) * (high - low + 1)), high)

    def level(self, size: int) -> float:
        """Turn a number of nodes into the middle of the levels that have it; sizes beyond the last
        span are level 1."""
        for fifth, (low, high) in enumerate(self.levels):
            if size <= high:
                return (fifth + (max(size - low, 0) + 0.5) / (high - low + 1)) / 5
        return 1.0


GRAPH_SIZES = Sizes(
    levels=((4, 7), (8, 11), (12, 16), (17, 22), (23, 30)), easy=(4, 14), hard=(15, 30)
)
PATH_SIZES = Sizes(
    levels=((4, 9), (10, 19), (20, 29), (30, 39), (40, 50)), easy=(4, 19), hard=(20, 50)
)
TOUR_SIZES = Sizes(levels=((4, 5), (6, 7), (8, 9), (10, 11), (12, 14)), easy=(4, 9), hard=(10, 20))
MOLECULE_SIZES = Sizes(
    levels=((4, 5), (6, 7), (8, 9), (10, 11), (12, 13)), easy=(4, 9), hard=(10, 20)
)


def bitsets(n: int, edges: Sequence[Span]) -> tuple[int, ...]:
    """Give every node the set of its neighbours; a node is not its own neighbour."""
    masks = [0] * n
    for a, b in edges:
        if a != b:
            masks[a] |= 1 << b
            masks[b] |= 1 << a
    return tuple(masks)
