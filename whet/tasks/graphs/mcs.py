"""Maximum common subgraph: the most atoms of two molecules whose bonds among themselves make the
same graph.

Elements do not count and the atoms need not hang together, as in GraphArena; bonds that are missing
count as much as those that are there (an induced subgraph).
"""

from collections.abc import Mapping
from random import Random
from typing import Literal

from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import MOLECULE_SIZES, Molecule
from whet.tasks.graphs.node_lists import Reply, read_two
from whet.tasks.graphs.prompts import molecules
from whet.tasks.graphs.solvers.found import Found
from whet.tasks.graphs.solvers.shared_subgraph import are_isomorphic, induced, max_common_subgraph
from whet.tasks.graphs.sources import Payload, molecule
from whet.tasks.graphs.task import GraphTask
from whet.types import Json

_TASK = (
    "Find the largest common subgraph of two molecules: as many atoms of A as of B, such that the bonds among the "
    "chosen atoms of A, and no others, are matched by those among the chosen atoms of B. Elements do not matter."
)
_FORM = "[atom numbers of A], [atom numbers of B]"


class McsConfig(GraphConfig):
    name: Literal["mcs"] = "mcs"


class Mcs(GraphTask):
    name = "mcs"
    has_one_answer = False
    goal = "max"
    spans = MOLECULE_SIZES

    def __init__(self, config: McsConfig | None = None) -> None:
        super().__init__(config or McsConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload:
        """Draw two molecules, the second of nearly the same size."""
        other = max(4, size + rng.randint(-1, 1))
        parts = {key: molecule(rng, count) for key, count in (("A", size), ("B", other))}
        return {
            key: {"n": len(a), "bonds": [list(bond) for bond in bonds]}
            for key, (a, bonds) in parts.items()
        }

    def question(self, payload: Mapping[str, Json]) -> str:
        return molecules(payload, _TASK, _FORM, has_labels=False)

    def best(self, payload: Mapping[str, Json]) -> Found:
        a, b = (Molecule.from_payload(payload, key).neighbours for key in ("A", "B"))
        return max_common_subgraph(a, b)

    def write(self, payload: Mapping[str, Json], found: Found) -> str:
        return ", ".join(str(list(nodes)) for nodes in found.lists)

    def read(self, payload: Mapping[str, Json], text: str) -> Reply | None:
        return read_two(text)

    def value(self, payload: Mapping[str, Json], reply: Reply) -> float | str:
        parts = []
        for key, nodes in zip(("A", "B"), reply.lists, strict=True):
            neighbours = Molecule.from_payload(payload, key).neighbours
            outside = [node for node in nodes if node >= len(neighbours)]
            if outside:
                return f"molecule {key} has no atom {outside[0]}"
            if len(set(nodes)) != len(nodes):
                return f"an atom of molecule {key} is listed more than once"
            parts.append(induced(neighbours, nodes))
        a, b = parts
        if len(a) != len(b):
            return f"{len(a)} atoms of A cannot match {len(b)} of B"
        if a != b and not are_isomorphic(a, b):
            return "the chosen atoms of A and B are not bonded in the same way"
        return len(a)
