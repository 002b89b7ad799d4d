"""The words of the questions: what is asked, the graph, and how to answer."""

from collections.abc import Mapping

from whet.tasks.graphs.instance import Graph, Molecule
from whet.types import Json

_CLOSING = "Think it through, then give the answer in square brackets on the last line and use no brackets elsewhere"


def friendship(payload: Mapping[str, Json], task: str) -> str:
    """Ask about a social network."""
    return (
        f"{task}\n\n{_people(payload, 'Users', 'Friendships')}\n\n{_CLOSING}: [UserA, UserB, ...]"
    )


def authorship(payload: Mapping[str, Json], task: str) -> str:
    """Ask about a network of co-authors."""
    return f"{task}\n\n{_people(payload, 'Authors', 'Collaborations')}\n\n{_CLOSING}: [AuthorA, AuthorB, ...]"


def flight_network(payload: Mapping[str, Json], task: str) -> str:
    graph = Graph.from_payload(payload)
    rows = zip(graph.edges, graph.weights, strict=True)
    lines = "\n".join(
        f"{graph.names[a]} to {graph.names[b]}: {km:g}" for (a, b), km in rows if km is not None
    )
    listed = ", ".join(graph.names)
    closing = f"{_CLOSING}, the first airport again at the end: [AirportA, AirportB, ..., AirportA]"
    return f"{task}\n\n- Airports: {listed}.\n- Distances in kilometres:\n{lines}\n\n{closing}"


def knowledge(payload: Mapping[str, Json], task: str) -> str:
    """Ask about a graph of entities."""
    rows = payload["edges"]
    assert isinstance(rows, list)
    lines = []
    for row in rows:
        assert isinstance(row, list)
        lines.append(f"{row[0]} and {row[1]}" + (f": {row[2]}" if len(row) == 3 else ""))
    listed = ", ".join(Graph.from_payload(payload).names)
    facts = "\n".join(lines)
    return f"{task}\n\n- Entities: {listed}.\n- Relations:\n{facts}\n\n{_CLOSING}: [Entity1, Entity2, ..., EntityN]"


def molecules(payload: Mapping[str, Json], task: str, form: str, *, has_labels: bool) -> str:
    """Ask about two molecules, A and B."""
    parts = [_molecule(key, Molecule.from_payload(payload, key), has_labels) for key in ("A", "B")]
    return "\n\n".join([task, *parts, f"{_CLOSING}: {form}"])


def _people(payload: Mapping[str, Json], nodes: str, edges: str) -> str:
    graph = Graph.from_payload(payload)
    listed = ", ".join(graph.names)
    joined = ", ".join(f"{graph.names[a]} and {graph.names[b]}" for a, b in graph.edges)
    return f"- {nodes}: {listed}.\n- {edges}: {joined}."


def _molecule(key: str, molecule: Molecule, has_labels: bool) -> str:
    bonds = ", ".join(f"{a}-{b}" for a, b in molecule.bonds)
    if not has_labels:
        return (
            f"Molecule {key} has {len(molecule.labels)} atoms, numbered from 0.\n- Bonds: {bonds}."
        )
    atoms = ", ".join(f"{label} (atom {number})" for number, label in enumerate(molecule.labels))
    return f"Molecule {key}:\n- Atoms: {atoms}.\n- Bonds: {bonds}."
