"""Draw the inputs of algorithms: keys, graphs and points of three decimals, such that one output is
right."""

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from random import Random

from whet.tasks.algorithms.plans import turn
from whet.tasks.algorithms.runs import Array, Matrix, shortest_path_tree


def keys(rng: Random, size: int) -> Array:
    """Draw different keys."""
    return [number / 1000 for number in rng.sample(range(1, 1000), size)]


def shares(rng: Random, count: int) -> list[int]:
    """Cut a thousand into parts."""
    cuts = [0, *sorted(rng.sample(range(1, 1000), count - 1)), 1000]
    return [end - start for start, end in pairwise(cuts)]


def graph(
    rng: Random,
    size: int,
    *,
    is_weighted: bool = False,
    is_directed: bool = False,
    degree: float | None = None,
) -> Matrix:
    """Draw a graph with about `degree` edges a node, half of all edges by default; every weight
    occurs once."""
    weights = iter(rng.sample(range(1, 1000), size * size))
    share = 0.5 if degree is None else min(0.5, degree / size)
    matrix: Matrix = [[0.0] * size for _ in range(size)]
    for a, b in combinations(range(size), 2):
        for start, end in ((a, b), (b, a))[: 1 + is_directed]:
            if rng.random() < share:
                matrix[start][end] = next(weights) / 1000 if is_weighted else 1
                if not is_directed:
                    matrix[end][start] = matrix[start][end]
    return matrix if is_weighted else plain(matrix)


def acyclic(rng: Random, size: int, *, is_weighted: bool = False) -> Matrix:
    """Draw a directed graph without cycles, over nodes in any order."""
    matrix = graph(rng, size, is_weighted=is_weighted, is_directed=True)
    order = list(range(size))
    rng.shuffle(order)
    kept = [
        [cell if order[a] < order[b] else 0.0 for b, cell in enumerate(row)]
        for a, row in enumerate(matrix)
    ]
    return kept if is_weighted else plain(kept)


def plain(matrix: Matrix) -> Matrix:
    """Write 1 and 0 without decimals."""
    return [[int(cell) for cell in row] for row in matrix]


def until(draw: Callable[[], Matrix], is_good: Callable[[Matrix], bool]) -> Matrix:
    """Draw again until it is good."""
    while not is_good(drawn := draw()):
        pass
    return drawn


def has_one_way(source: int, matrix: Matrix) -> bool:
    """Tell whether no node is reached by two shortest ways, to the exact thousandth."""
    exact = [[round(1000 * cell) for cell in row] for row in matrix]
    parents = shortest_path_tree(source, [[float(cell) for cell in row] for row in exact])
    away = [_length(exact, parents, node) for node in range(len(exact))]
    reached = [node for node in range(len(exact)) if node == source or parents[node] != node]
    return all(
        sum(1 for k in reached if exact[k][node] and away[k] + exact[k][node] == away[node]) == 1
        for node in reached
        if node != source
    )


def points(rng: Random, size: int) -> tuple[Array, Array]:
    """Draw points of which no three are on a line."""
    while True:
        x, y = ([rng.randrange(-1999, 2000) / 1000 for _ in range(size)] for _ in range(2))
        if all(turn(*three) for three in combinations(zip(x, y, strict=True), 3)):
            return x, y


def _length(exact: Sequence[Sequence[int]], parents: Sequence[int], node: int) -> int:
    length = 0
    while parents[node] != node:
        length = length + exact[parents[node]][node]
        node = parents[node]
    return length
