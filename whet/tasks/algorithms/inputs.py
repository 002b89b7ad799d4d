"""The algorithms that can be asked: how to draw an input of a size, what its output is called, and
how to run it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from whet.tasks.algorithms import plans, runs, walks
from whet.tasks.algorithms.arrays import written
from whet.tasks.algorithms.draws import acyclic, graph, has_one_way, keys, points, shares, until
from whet.tasks.algorithms.runs import Matrix

Drawn = tuple[str, str, str]
"""The input as it is printed, the trace (empty without one), and the output."""
Draw = Callable[[Random, int], Drawn]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """`output` is what the question asks for; `draw` makes an input of a size and runs the
    algorithm on it."""

    output: str
    draw: Draw
    size: int | None = None
    """Where inputs have one size only."""


def _sort(rng: Random, size: int) -> Drawn:
    key = keys(rng, size)
    return f"key: {written([*key])}", "", written([*runs.sorted_keys(key)])


def _insertion_trace(rng: Random, size: int) -> Drawn:
    key = keys(rng, size)
    states = runs.insertion_sort_trace(key)
    return _traced(f"key: {written([*key])}", [*key], [[*state] for state in states])


def _bubble_trace(rng: Random, size: int) -> Drawn:
    key = keys(rng, size)
    states = runs.bubble_sort_trace(key)
    return _traced(f"key: {written([*key])}", [*key], [[*state] for state in states])


def _minimum(rng: Random, size: int) -> Drawn:
    key = keys(rng, size)
    return f"key: {written([*key])}", "", str(runs.minimum(key))


def _minimum_trace(rng: Random, size: int) -> Drawn:
    key = keys(rng, size)
    return _traced(f"key: {written([*key])}", 0, [*runs.minimum_trace(key)])


def _binary_search(rng: Random, size: int) -> Drawn:
    key = sorted(keys(rng, size))
    target = rng.randrange(1, 1000) / 1000
    return f"key: {written([*key])}, target: {target}", "", str(runs.binary_search(key, target))


def _median(rng: Random, size: int) -> Drawn:
    key = keys(rng, size)
    return f"key: {written([*key])}", "", str(runs.median(key))


def _subarray(rng: Random, size: int) -> Drawn:
    key = [rng.randrange(-999, 1000) / 1000 for _ in range(size)]
    start, end = runs.maximum_subarray(key)
    return f"key: {written([*key])}", "", f"{start}, {end}"


def _activities(rng: Random, size: int) -> Drawn:
    times = [sorted(rng.sample(range(1, 1000), 2)) for _ in range(size)]
    start = [time[0] / 1000 for time in times]
    finish = [time[1] / 1000 for time in times]
    chosen = runs.activity_selector(start, finish)
    return f"s: {written([*start])}, f: {written([*finish])}", "", written([*chosen])


def _match(rng: Random, size: int) -> Drawn:
    length = max(size // 5, 1)
    string = [0] * (size - length) + [1] * length
    key = [rng.randrange(4) for _ in range(size)]
    return (
        f"string: {written([*string])}, key: {written([*key])}",
        "",
        str(runs.string_match(string, key)),
    )


def _chain(rng: Random, size: int) -> Drawn:
    p = keys(rng, size)
    return f"p: {written([*p])}", "", _matrix(runs.matrix_chain(p))


def _lcs(rng: Random, size: int) -> Drawn:
    string = [0] * (size // 2) + [1] * (size - size // 2)
    key = [rng.randrange(4) for _ in range(size)]
    return (
        f"string: {written([*string])}, key: {written([*key])}",
        "",
        _matrix(plans.lcs_table(string, key)),
    )


def _search_tree(rng: Random, size: int) -> Drawn:
    parts = shares(rng, 2 * size + 1)
    p = [*parts[:size], 0]
    q = parts[size:]
    shown = [written([part / 1000 for part in weights]) for weights in (p, q)]
    return f"p: {shown[0]}, q: {shown[1]}", "", _matrix(plans.optimal_search_tree(p, q))


def _tasks(rng: Random, size: int) -> Drawn:
    d = [rng.randint(1, size) for _ in range(size)]
    w = keys(rng, size)
    return f"d: {written([*d])}, w: {written([*w])}", "", written([*plans.task_scheduling(d, w)])


def _hull(rng: Random, size: int) -> Drawn:
    x, y = points(rng, size)
    return f"x: {written([*x])}, y: {written([*y])}", "", written([*plans.hull(x, y)])


def _segments(rng: Random, size: int) -> Drawn:
    x = keys(rng, size)
    y = keys(rng, size)
    return f"x: {written([*x])}, y: {written([*y])}", "", str(plans.segments_meet(x, y))


def _tree(
    grow: Callable[[int, Matrix], list[int]],
    draw: Callable[[Random, int], Matrix],
    *,
    is_shortest: bool = False,
) -> Draw:
    """Grow a tree from a source; ways are drawn again where two are shortest."""

    def drawn(rng: Random, size: int) -> Drawn:
        source = rng.randrange(size)
        matrix = until(
            lambda: draw(rng, size), lambda matrix: not is_shortest or has_one_way(source, matrix)
        )
        return f"s: {source}, A: {_matrix(matrix)}", "", written([*grow(source, matrix)])

    return drawn


def _whole(run: Callable[[Matrix], str], draw: Callable[[Random, int], Matrix]) -> Draw:
    """Run an algorithm on a whole graph, without a source."""

    def drawn(rng: Random, size: int) -> Drawn:
        matrix = draw(rng, size)
        return f"A: {_matrix(matrix)}", "", run(matrix)

    return drawn


def _all_ways(rng: Random, size: int) -> Matrix:
    return until(
        lambda: graph(rng, size, is_weighted=True),
        lambda matrix: all(has_one_way(source, matrix) for source in range(size)),
    )


def _ordered(matrix: Matrix) -> str:
    after, head = walks.topological_sort(matrix)
    return f"{written([*after])}, {head}"


def _matrix(rows: Sequence[Sequence[float]]) -> str:
    return written([[*row] for row in rows])


def _traced(
    shown: str, first: "int | list[int | float]", states: "list[int] | list[list[float]]"
) -> Drawn:
    """Give the states before the last as the trace, and the last as the output."""
    printed = [written([*state]) if isinstance(state, list) else str(state) for state in states]
    start = written([*first]) if isinstance(first, list) else str(first)
    return f"{shown}, initial_trace: {start}", ", ".join(printed[:-1]) + " | ", printed[-1]


_WEIGHTED = partial(graph, is_weighted=True)

ALGORITHMS: dict[str, Algorithm] = {
    "minimum": Algorithm(output="min", draw=_minimum),
    "binary_search": Algorithm(output="return", draw=_binary_search),
    "insertion_sort": Algorithm(output="pred", draw=_sort),
    "bubble_sort": Algorithm(output="pred", draw=_sort),
    "heapsort": Algorithm(output="pred", draw=_sort),
    "quicksort": Algorithm(output="pred", draw=_sort),
    "quickselect": Algorithm(output="median", draw=_median),
    "find_maximum_subarray_kadane": Algorithm(output="start, end", draw=_subarray),
    "activity_selector": Algorithm(output="selected", draw=_activities),
    "naive_string_matcher": Algorithm(output="match", draw=_match),
    "kmp_matcher": Algorithm(output="match", draw=_match),
    "bfs": Algorithm(output="pi", draw=_tree(runs.breadth_first, graph)),
    "dijkstra": Algorithm(
        output="pi", draw=_tree(runs.shortest_path_tree, _WEIGHTED, is_shortest=True)
    ),
    "bellman_ford": Algorithm(
        output="pi", draw=_tree(runs.shortest_path_tree, _WEIGHTED, is_shortest=True)
    ),
    "dag_shortest_paths": Algorithm(
        output="pi",
        draw=_tree(runs.shortest_path_tree, partial(acyclic, is_weighted=True), is_shortest=True),
    ),
    "mst_prim": Algorithm(output="pi", draw=_tree(runs.spanning_tree, _WEIGHTED)),
    "mst_kruskal": Algorithm(
        output="in_mst", draw=_whole(lambda a: _matrix(walks.kruskal(a)), _WEIGHTED)
    ),
    "floyd_warshall": Algorithm(
        output="Pi", draw=_whole(lambda a: _matrix(walks.floyd_warshall(a)), _all_ways)
    ),
    "dfs": Algorithm(
        output="pi",
        draw=_whole(lambda a: written([*walks.depth_first(a)]), partial(graph, is_directed=True)),
    ),
    "topological_sort": Algorithm(output="topo, topo_head", draw=_whole(_ordered, acyclic)),
    "strongly_connected_components": Algorithm(
        output="scc_id",
        draw=_whole(
            lambda a: written([*walks.strong_components(a)]),
            partial(graph, is_directed=True, degree=1.5),
        ),
    ),
    "articulation_points": Algorithm(
        output="is_cut",
        draw=_whole(lambda a: written([*walks.articulation_points(a)]), partial(graph, degree=2)),
    ),
    "bridges": Algorithm(
        output="is_bridge",
        draw=_whole(lambda a: _matrix(walks.bridges(a)), partial(graph, degree=2)),
    ),
    "matrix_chain_order": Algorithm(output="s", draw=_chain),
    "optimal_bst": Algorithm(output="root", draw=_search_tree),
    "lcs_length": Algorithm(output="b", draw=_lcs),
    "task_scheduling": Algorithm(output="selected", draw=_tasks),
    "graham_scan": Algorithm(output="in_hull", draw=_hull),
    "jarvis_march": Algorithm(output="in_hull", draw=_hull),
    "segments_intersect": Algorithm(output="intersect", draw=_segments, size=4),
}
TRACED: dict[str, Algorithm] = {
    "minimum": Algorithm(output="trace | min", draw=_minimum_trace),
    "insertion_sort": Algorithm(output="trace | pred", draw=_insertion_trace),
    "bubble_sort": Algorithm(output="trace | pred", draw=_bubble_trace),
}
