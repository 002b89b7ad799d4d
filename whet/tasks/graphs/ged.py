"""Graph edit distance: pair the atoms of two molecules so that the fewest labels and bonds have to
change."""

from collections.abc import Mapping
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.graphs.drawn import GraphConfig
from whet.tasks.graphs.instance import MOLECULE_SIZES, Molecule
from whet.tasks.graphs.node_lists import Reply, read_numbers
from whet.tasks.graphs.prompts import molecules
from whet.tasks.graphs.solvers.edit import edit_cost, min_edit
from whet.tasks.graphs.solvers.found import Found
from whet.tasks.graphs.sources import Payload, molecule
from whet.tasks.graphs.task import GraphTask
from whet.types import Json

_TASK = (
    "Pair every atom of molecule A with a different atom of molecule B so that the cost is least. An atom paired with "
    "one of another element costs 1, and so does every bond that has no counterpart in the other molecule."
)
_FORM = "[partner of atom 0, partner of atom 1, ...], where partners are atom numbers of molecule B"


class GedConfig(GraphConfig):
    name: Literal["ged"] = "ged"


class Ged(GraphTask):
    name = "ged"
    has_one_answer = False
    goal = "min"
    spans = MOLECULE_SIZES

    def __init__(self, config: GedConfig | None = None) -> None:
        super().__init__(config or GedConfig())

    def draw(self, rng: Random, level: float, size: int) -> Payload:
        pair = molecule(rng, size), molecule(rng, size)
        (a, bonds_a), (b, bonds_b) = pair
        return {
            "A": {"labels": list(a), "bonds": [list(bond) for bond in bonds_a]},
            "B": {"labels": list(b), "bonds": [list(bond) for bond in bonds_b]},
        }

    def question(self, payload: Mapping[str, Json]) -> str:
        return molecules(payload, _TASK, _FORM, has_labels=True)

    def best(self, payload: Mapping[str, Json]) -> Found:
        a, b = _pair(payload)
        return min_edit(a.labels, a.neighbours, b.labels, b.neighbours)

    def write(self, payload: Mapping[str, Json], found: Found) -> str:
        return str(list(found.lists[0]))

    def read(self, payload: Mapping[str, Json], text: str) -> Reply | None:
        return read_numbers(text)

    def value(self, payload: Mapping[str, Json], reply: Reply) -> float | str:
        a, b = _pair(payload)
        (pairing,) = reply.lists
        if sorted(pairing) != list(range(len(a.labels))):
            return f"the list does not name each atom from 0 to {len(a.labels) - 1} once"
        return edit_cost(pairing, a.labels, a.neighbours, b.labels, b.neighbours)


def _pair(payload: Mapping[str, Json]) -> tuple[Molecule, Molecule]:
    a = Molecule.from_payload(payload, "A")
    b = Molecule.from_payload(payload, "B")
    if len(a.labels) != len(b.labels):
        raise DataError(
            f"the two molecules should be of one size, not {len(a.labels)} and {len(b.labels)} atoms"
        )
    return a, b
