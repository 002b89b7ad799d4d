"""The algorithms that can be asked: how to draw an input of a size, and how to run it.

Keys, graphs and points have three decimals, and inputs are such that one output is right.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, pairwise
from random import Random
from typing import NamedTuple

from whet.tasks.algorithms import textbook
from whet.tasks.algorithms.textbook import Array, Matrix

Value = int | float | Sequence["Value"]
Run = tuple[str, str, str]
"""The input as it is printed, the trace (empty without one), and the output."""
Draw = Callable[[Random, int], Run]


class Algorithm(NamedTuple):
    """What the question asks for, and how to draw an input of a size and run the algorithm."""

    output: str
    draw: Draw
    size: int | None = None
    """Where inputs have one size only."""


def format_value(value: Value) -> str:
    """Print a number, an array, a matrix, or several of them in a tuple.

    >>> format_value([[0.5, 1], [2, 3]]), format_value(([0, 1], 2))
    ('[[0.5 1], [2 3]]', '[0 1], 2')
    """
    if isinstance(value, int | float):
        return str(value)
    parts = [format_value(part) for part in value]
    if isinstance(value, tuple):
        return ", ".join(parts)
    return f"[{(' ' if isinstance(value[0], int | float) else ', ').join(parts)}]"


def _show(**inputs: Value) -> str:
    return ", ".join(f"{name}: {format_value(value)}" for name, value in inputs.items())


def _run_on(output: Value, **inputs: Value) -> Run:
    return _show(**inputs), "", format_value(output)


def _on_keys(run: Callable[[Array], Value]) -> Draw:
    def draw(rng: Random, size: int) -> Run:
        key = keys(rng, size)
        return _run_on(run(key), key=key)

    return draw


def _trace_of(run: Callable[[Array], Sequence[Value]], start: Value | None = None) -> Draw:
    """Give the states before the last as the trace, and the last as the output.

    The state to start from is the keys themselves unless it is given.
    """

    def draw(rng: Random, size: int) -> Run:
        key = keys(rng, size)
        *trace, last = map(format_value, run(key))
        shown = _show(key=key, initial_trace=key if start is None else start)
        return shown, ", ".join(trace) + " | ", last

    return draw


def _on_graph(run: Callable[[Matrix], Value], draw_graph: Callable[[Random, int], Matrix]) -> Draw:
    """Run an algorithm on a whole graph, without a source."""

    def draw(rng: Random, size: int) -> Run:
        matrix = draw_graph(rng, size)
        return _run_on(run(matrix), A=matrix)

    return draw


def _on_graph_from(
    run: Callable[[int, Matrix], Value],
    draw_graph: Callable[[Random, int], Matrix],
    *,
    is_unambiguous: bool = False,
) -> Draw:
    """Run an algorithm from a source; a graph with two shortest paths to a node is drawn again."""

    def draw(rng: Random, size: int) -> Run:
        source = rng.randrange(size)
        matrix = draw_graph(rng, size)
        while is_unambiguous and not has_one_way(source, matrix):
            matrix = draw_graph(rng, size)
        return _run_on(run(source, matrix), s=source, A=matrix)

    return draw


def _draw_unambiguous(rng: Random, size: int) -> Matrix:
    while True:
        matrix = graph(rng, size, is_weighted=True)
        if all(has_one_way(source, matrix) for source in range(size)):
            return matrix


def _draw_search(rng: Random, size: int) -> Run:
    key = sorted(keys(rng, size))
    target = rng.randrange(1, 1000) / 1000
    return _run_on(textbook.binary_search(key, target), key=key, target=target)


def _draw_subarray(rng: Random, size: int) -> Run:
    key = [rng.randrange(-999, 1000) / 1000 for _ in range(size)]
    return _run_on(textbook.maximum_subarray(key), key=key)


def _draw_activities(rng: Random, size: int) -> Run:
    times = [sorted(rng.sample(range(1, 1000), 2)) for _ in range(size)]
    start = [time[0] / 1000 for time in times]
    finish = [time[1] / 1000 for time in times]
    return _run_on(textbook.activity_selector(start, finish), s=start, f=finish)


def _draw_match(rng: Random, size: int) -> Run:
    length = max(size // 5, 1)
    string = [0] * (size - length) + [1] * length
    key = [rng.randrange(4) for _ in range(size)]
    return _run_on(textbook.string_match(string, key), string=string, key=key)


def _draw_chain(rng: Random, size: int) -> Run:
    p = keys(rng, size)
    return _run_on(textbook.matrix_chain(p), p=p)


def _draw_lcs(rng: Random, size: int) -> Run:
    string = [0] * (size // 2) + [1] * (size - size // 2)
    key = [rng.randrange(4) for _ in range(size)]
    return _run_on(textbook.lcs_table(string, key), string=string, key=key)


def _draw_search_tree(rng: Random, size: int) -> Run:
    """Cut a thousand into the weights of keys and gaps."""
    cuts = [0, *sorted(rng.sample(range(1, 1000), 2 * size)), 1000]
    parts = [end - start for start, end in pairwise(cuts)]
    p = [*parts[:size], 0]
    q = parts[size:]
    root = textbook.optimal_search_tree(p, q)
    return _run_on(root, p=[part / 1000 for part in p], q=[part / 1000 for part in q])


def _draw_tasks(rng: Random, size: int) -> Run:
    d = [rng.randint(1, size) for _ in range(size)]
    w = keys(rng, size)
    return _run_on(textbook.task_scheduling(d, w), d=d, w=w)


def _draw_hull(rng: Random, size: int) -> Run:
    x, y = points(rng, size)
    return _run_on(textbook.hull(x, y), x=x, y=y)


def _draw_segments(rng: Random, size: int) -> Run:
    x = keys(rng, size)
    y = keys(rng, size)
    return _run_on(textbook.segments_meet(x, y), x=x, y=y)


def keys(rng: Random, size: int) -> Array:
    """Draw different keys."""
    return [number / 1000 for number in rng.sample(range(1, 1000), size)]


def graph(
    rng: Random,
    size: int,
    *,
    is_weighted: bool = False,
    is_directed: bool = False,
    degree: float | None = None,
) -> Matrix:
    """Draw a graph with about `degree` edges per node, by default half of all; weights differ."""
    weights = iter(rng.sample(range(1, 1000), size * size))
    share = 0.5 if degree is None else min(0.5, degree / size)
    matrix: Matrix = [[0.0 if is_weighted else 0] * size for _ in range(size)]
    for a, b in combinations(range(size), 2):
        for start, end in ((a, b), (b, a))[: 1 + is_directed]:
            if rng.random() < share:
                matrix[start][end] = next(weights) / 1000 if is_weighted else 1
                if not is_directed:
                    matrix[end][start] = matrix[start][end]
    return matrix


def acyclic(rng: Random, size: int, *, is_weighted: bool = False) -> Matrix:
    """Draw a directed graph without cycles, over nodes in any order."""
    matrix = graph(rng, size, is_weighted=is_weighted, is_directed=True)
    order = list(range(size))
    rng.shuffle(order)
    return [
        [cell if order[a] < order[b] else 0.0 if is_weighted else 0 for b, cell in enumerate(row)]
        for a, row in enumerate(matrix)
    ]


def has_one_way(source: int, matrix: Matrix) -> bool:
    """Tell whether no node has two shortest paths from the source, to the exact thousandth."""
    exact = [[round(1000 * cell) for cell in row] for row in matrix]
    parents = textbook.shortest_path_tree(source, [[float(cell) for cell in row] for row in exact])
    away = [_length(exact, parents, node) for node in range(len(exact))]
    others = [node for node in range(len(exact)) if parents[node] != node]
    for node in others:
        before = [k for k in (source, *others) if exact[k][node]]
        if sum(away[k] + exact[k][node] == away[node] for k in before) != 1:
            return False
    return True


def points(rng: Random, size: int) -> tuple[Array, Array]:
    """Draw points of which no three are on a line."""
    while True:
        x, y = ([rng.randrange(-1999, 2000) / 1000 for _ in range(size)] for _ in range(2))
        if all(textbook.turn(*three) for three in combinations(zip(x, y, strict=True), 3)):
            return x, y


def _length(exact: Sequence[Sequence[int]], parents: Sequence[int], node: int) -> int:
    length = 0
    while parents[node] != node:
        length += exact[parents[node]][node]
        node = parents[node]
    return length


_WEIGHTED = partial(graph, is_weighted=True)
_SHORTEST = partial(_on_graph_from, textbook.shortest_path_tree, is_unambiguous=True)

ALGORITHMS: dict[str, Algorithm] = {
    "minimum": Algorithm("min", _on_keys(textbook.minimum)),
    "binary_search": Algorithm("return", _draw_search),
    "insertion_sort": Algorithm("pred", _on_keys(sorted)),
    "bubble_sort": Algorithm("pred", _on_keys(sorted)),
    "heapsort": Algorithm("pred", _on_keys(sorted)),
    "quicksort": Algorithm("pred", _on_keys(sorted)),
    "quickselect": Algorithm("median", _on_keys(textbook.median)),
    "find_maximum_subarray_kadane": Algorithm("start, end", _draw_subarray),
    "activity_selector": Algorithm("selected", _draw_activities),
    "naive_string_matcher": Algorithm("match", _draw_match),
    "kmp_matcher": Algorithm("match", _draw_match),
    "bfs": Algorithm("pi", _on_graph_from(textbook.breadth_first, graph)),
    "dijkstra": Algorithm("pi", _SHORTEST(_WEIGHTED)),
    "bellman_ford": Algorithm("pi", _SHORTEST(_WEIGHTED)),
    "dag_shortest_paths": Algorithm("pi", _SHORTEST(partial(acyclic, is_weighted=True))),
    "mst_prim": Algorithm("pi", _on_graph_from(textbook.spanning_tree, _WEIGHTED)),
    "mst_kruskal": Algorithm("in_mst", _on_graph(textbook.kruskal, _WEIGHTED)),
    "floyd_warshall": Algorithm("Pi", _on_graph(textbook.floyd_warshall, _draw_unambiguous)),
    "dfs": Algorithm("pi", _on_graph(textbook.depth_first, partial(graph, is_directed=True))),
    "topological_sort": Algorithm("topo, topo_head", _on_graph(textbook.topological_sort, acyclic)),
    "strongly_connected_components": Algorithm(
        "scc_id",
        _on_graph(textbook.strong_components, partial(graph, is_directed=True, degree=1.5)),
    ),
    "articulation_points": Algorithm(
        "is_cut", _on_graph(textbook.articulation_points, partial(graph, degree=2))
    ),
    "bridges": Algorithm("is_bridge", _on_graph(textbook.bridges, partial(graph, degree=2))),
    "matrix_chain_order": Algorithm("s", _draw_chain),
    "optimal_bst": Algorithm("root", _draw_search_tree),
    "lcs_length": Algorithm("b", _draw_lcs),
    "task_scheduling": Algorithm("selected", _draw_tasks),
    "graham_scan": Algorithm("in_hull", _draw_hull),
    "jarvis_march": Algorithm("in_hull", _draw_hull),
    "segments_intersect": Algorithm("intersect", _draw_segments, size=4),
}
TRACED: dict[str, Algorithm] = {
    "minimum": Algorithm("trace | min", _trace_of(textbook.minimum_trace, 0)),
    "insertion_sort": Algorithm("trace | pred", _trace_of(textbook.insertion_sort_trace)),
    "bubble_sort": Algorithm("trace | pred", _trace_of(textbook.bubble_sort_trace)),
}
