"""Graphs as problems carry them: named nodes and edges in the payload, bitsets in memory.

Payloads: `{"nodes": [name, ...], "edges": [[name, name], ...]}`. An edge has a third part if it has
a distance (tsp) or a relation (distance, diameter), and `"pair": [name, name]` has the two nodes of
a question about a pair. `"optimum"` is the best known value, and `"proven"` is false if the search
ended early.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from unicodedata import combining, normalize

from whet.errors import DataError
from whet.tasks.graphs.paths import bitsets
from whet.types import Json

IntPair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes by number, each with its name and its neighbours as a bitset."""

    names: tuple[str, ...]
    neighbours: tuple[int, ...]
    edges: tuple[IntPair, ...]
    values: tuple[Json, ...]
    """The third part of every edge, None if it has none."""
    asked: Json
    """The payload's pair, unparsed; `pair` reads it."""

    @staticmethod
    def from_payload(payload: Mapping[str, Json]) -> "Graph":
        nodes = payload.get("nodes")
        rows = payload.get("edges")
        if not isinstance(nodes, list) or not isinstance(rows, list):
            needs = "the lists payload.nodes and payload.edges"
            raise DataError(f"a graph needs {needs}, not {list(payload)}")
        names = tuple(str(name) for name in nodes)
        numbers = {name: number for number, name in enumerate(names)}
        if len(numbers) != len(names):
            raise DataError("a graph needs a different name for every node in payload.nodes")
        edges = []
        values = []
        for row in rows:
            parts = row if isinstance(row, list) else []
            ends = [numbers[str(name)] for name in parts[:2] if str(name) in numbers]
            if len(parts) not in (2, 3) or len(ends) != 2:
                names_two = "names two of payload.nodes, with at most one value after them"
                raise DataError(f"an edge {names_two}, not {row!r}")
            edges.append((ends[0], ends[1]))
            values.append(parts[2] if len(parts) == 3 else None)
        return Graph(
            names=names,
            neighbours=bitsets(len(names), edges),
            edges=tuple(edges),
            values=tuple(values),
            asked=payload.get("pair"),
        )

    @property
    def pair(self) -> IntPair:
        """The two nodes asked about."""
        names = self.asked if isinstance(self.asked, list) else []
        numbers = [self.names.index(str(name)) for name in names if str(name) in self.names]
        if len(names) == len(numbers) == 2:
            return numbers[0], numbers[1]
        raise DataError(f"payload.pair should name two of payload.nodes, not {self.asked!r}")

    def write(self, nodes: Sequence[int]) -> str:
        """Write nodes in the form of an answer: `[B, A]`."""
        return f"[{', '.join(self.names[node] for node in nodes)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many nodes a problem has: one range for each fifth of the level, and GraphArena's two."""

    levels: tuple[IntPair, IntPair, IntPair, IntPair, IntPair]
    easy: IntPair
    hard: IntPair

    def at(self, level: float) -> int:
        """Turn a level from 0 to 1 into a number of nodes.

        >>> GRAPH_SIZES.at(0.0), GRAPH_SIZES.at(0.19), GRAPH_SIZES.at(0.2), GRAPH_SIZES.at(1.0)
        (4, 7, 8, 30)
        """
        fifth = min(int(level * 5), 4)
        low, high = self.levels[fifth]
        return min(low + int((level * 5 - fifth) * (high - low + 1)), high)

    def level(self, size: int) -> float:
        """Convert a number of nodes to the middle of its levels; sizes beyond the last are 1."""
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


_QUALIFIER = re.compile(r" \([^()]*\)\Z")
"""What may be omitted from a name: `Han River (Korea)`."""
_DRESS = " \t\r\n\"'`*_$\\.“”‘’"


class Names:
    """Looks up names as written, or else loosely if that leaves only one node."""

    def __init__(self, names: Sequence[str]) -> None:
        self._exact = {_plain(name): number for number, name in enumerate(names)}
        self._loose: dict[str, int | None] = {}
        self._bare: dict[str, int | None] = {}
        for name, number in self._exact.items():
            key = _loosen(name)
            self._loose[key] = None if key in self._loose else number
            bare = _drop_accents(name)
            for key in {bare, _QUALIFIER.sub("", bare)}:
                self._bare[key] = None if key in self._bare else number
        self.most_commas = max((name.count(",") for name in names), default=0)

    def find(self, piece: str) -> int | None:
        """Return the number of the node with this name, or None."""
        name = _plain(piece)
        if name in self._exact:
            return self._exact[name]
        bare = name.strip(_DRESS)
        if (key := _loosen(name)) in self._loose:
            return self._exact.get(bare, self._loose[key])
        return self._exact.get(bare, self._bare.get(key))


def _plain(name: str) -> str:
    return " ".join(normalize("NFC", name).split())


def _drop_accents(name: str) -> str:
    return "".join(sign for sign in normalize("NFKD", _loosen(name)) if not combining(sign))


def _loosen(name: str) -> str:
    # Not casefold: it would merge Schauß and Schauss, two authors in GraphArena.
    return name.strip(_DRESS).lower()
