"""Draw graphs: friendships, co-authors, flights, facts about entities, molecules. All choices come
from one stream.

Shapes follow what such networks look like, not any published file: friends of friends become
friends, authors of a paper all know each other, places hang from few hubs, molecules are trees with
some rings.
"""

from itertools import combinations
from math import asin, cos, radians, sin, sqrt
from random import Random

from whet.tasks.graphs.instance import Span
from whet.tasks.graphs.names import AIRPORTS, ELEMENTS, ENTITIES, FIRST_NAMES, LAST_NAMES, RELATIONS
from whet.types import Json

Payload = dict[str, Json]

_EARTH_KM = 6371.0


def friends(rng: Random, size: int, *, components: int = 1) -> Payload:
    """Draw a social network: everyone meets someone who was there before, then friends of
    friends."""
    edges: set[Span] = set()
    starts = {0, *rng.sample(range(1, size), components - 1)}
    groups: list[list[int]] = []
    for node in range(size):
        if node in starts:
            groups.append([node])
            continue
        group = rng.choice(groups)
        edges.add((rng.choice(group), node))
        group.append(node)
    density = rng.uniform(0.2, 1.2)
    for group in groups:
        for _ in range(int(density * len(group)) if len(group) > 2 else 0):
            edges.add(_new_friends(rng, group, edges))
    return _named(rng, people(rng, size), edges)


def authors(rng: Random, size: int, *, density: float = 0.0) -> Payload:
    """Draw a co-author network: papers of few authors, at most five, each with one who has written
    before.

    Pairs who do not follow from a paper are added up to the density, which makes cliques hard to
    tell from chance.
    """
    edges: set[Span] = set()
    writers = [0]
    while len(writers) < size or rng.random() < 0.7:
        team = {rng.choice(writers)}
        for _ in range(rng.randint(1, min(4, 1 + size // 5))):
            if len(writers) < size and rng.random() < 0.5:
                writers.append(len(writers))
                team.add(writers[-1])
            else:
                team.add(rng.choice(writers))
        edges.update(combinations(sorted(team), 2))
    while len(edges) < density * size * (size - 1) / 2:
        a, b = rng.sample(range(size), 2)
        edges.add((min(a, b), max(a, b)))
    return _named(rng, people(rng, size, has_initials=True), edges)


def flights(rng: Random, size: int) -> Payload:
    """Draw airports and the great-circle distance of each pair in whole kilometres."""
    codes = rng.sample(sorted(AIRPORTS), size)
    return {
        "nodes": list(codes),
        "edges": [[a, b, kilometres(a, b)] for a, b in combinations(codes, 2)],
    }


def facts(rng: Random, size: int) -> Payload:
    """Draw a connected graph of entities, a relation on every edge; some hang from hubs, some in
    chains."""
    edges: set[Span] = set()
    hubs = rng.uniform(0.0, 0.8)
    for node in range(1, size):
        first = (
            int(node * rng.random() ** 2)
            if rng.random() < hubs
            else rng.randrange(max(0, node - 4), node)
        )
        edges.add((first, node))
    for _ in range(rng.randrange(size // 2 + 1)):
        a, b = rng.sample(range(size), 2)
        edges.add((min(a, b), max(a, b)))
    graph = _named(rng, rng.sample(ENTITIES, size), edges)
    rows = graph["edges"]
    assert isinstance(rows, list)
    return {
        **graph,
        "edges": [[*row, rng.choice(RELATIONS)] for row in rows if isinstance(row, list)],
    }


def molecule(rng: Random, size: int) -> tuple[list[str], list[Span]]:
    """Draw atoms and bonds: a tree within the valences, then some rings."""
    kinds = list(ELEMENTS)
    odds = [often for _, often in ELEMENTS.values()]
    bonds: list[Span] = []
    labels = ["C"]
    free = [3]
    while len(labels) < size:
        label = rng.choices(kinds, odds)[0]
        open_ends = [atom for atom, left in enumerate(free) if left]
        valence = ELEMENTS[label][0]
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
            free[a] = free[a] - 1
            free[b] = free[b] - 1
    return renumbered(rng, labels, bonds)


def renumbered(rng: Random, labels: list[str], bonds: list[Span]) -> tuple[list[str], list[Span]]:
    """Give the atoms other numbers."""
    order = list(range(len(labels)))
    rng.shuffle(order)
    place = {atom: number for number, atom in enumerate(order)}
    pairs = sorted((min(place[a], place[b]), max(place[a], place[b])) for a, b in bonds)
    return [labels[atom] for atom in order], pairs


def people(rng: Random, count: int, *, has_initials: bool = False) -> list[str]:
    """Draw different names; with initials some are like `Ida M. Vogel`."""
    names: dict[str, None] = {}
    while len(names) < count:
        middle = (
            f" {rng.choice('ABCDEFGHJKLMNPRSTW')}." if has_initials and rng.random() < 0.4 else ""
        )
        names[f"{rng.choice(FIRST_NAMES)}{middle} {rng.choice(LAST_NAMES)}"] = None
    return list(names)


def kilometres(a: str, b: str) -> int:
    """Measure the great circle between two airports (haversine).

    >>> kilometres("LHR", "JFK")
    5540
    """
    (lat_a, lon_a), (lat_b, lon_b) = (tuple(map(radians, AIRPORTS[code])) for code in (a, b))
    chord = sin((lat_b - lat_a) / 2) ** 2 + cos(lat_a) * cos(lat_b) * sin((lon_b - lon_a) / 2) ** 2
    return round(2 * _EARTH_KM * asin(sqrt(chord)))


def _new_friends(rng: Random, group: list[int], edges: set[Span]) -> Span:
    a = rng.choice(group)
    around = [y if x == a else x for x, y in edges if a in (x, y)]
    b = rng.choice(around)
    others = [y if x == b else x for x, y in edges if b in (x, y)]
    c = rng.choice(others if rng.random() < 0.6 else group)
    if c == a:
        c = b
    return min(a, c), max(a, c)


def _named(rng: Random, names: list[str], edges: set[Span]) -> Payload:
    """Shuffle the nodes, so that their order says nothing, and write the edges with names."""
    order = list(range(len(names)))
    rng.shuffle(order)
    pairs = sorted((min(order[a], order[b]), max(order[a], order[b])) for a, b in edges)
    return {"nodes": list(names), "edges": [[names[a], names[b]] for a, b in pairs]}
