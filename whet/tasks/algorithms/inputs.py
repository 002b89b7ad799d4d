"""The algorithms that can be asked: how to draw an input of a size, what its output is called, and how to run it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from whet.tasks.algorithms import runs
from whet.tasks.algorithms.arrays import written

Drawn = tuple[str, str, str]
"""The input as it is printed, the trace (empty without one), and the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """`output` is what the question asks for; `draw` makes an input of a size and runs the algorithm on it."""

    output: str
    draw: Callable[[Random, int], Drawn]


def _keys(rng: Random, size: int) -> list[float]:
    """Draw different keys of three decimals."""
    return [number / 1000 for number in rng.sample(range(1, 1000), size)]


def _sort(rng: Random, size: int) -> Drawn:
    key = _keys(rng, size)
    return f"key: {written([*key])}", "", written([*runs.sorted_keys(key)])


def _insertion_trace(rng: Random, size: int) -> Drawn:
    key = _keys(rng, size)
    states = runs.insertion_sort_trace(key)
    return _traced(f"key: {written([*key])}", [*key], [[*state] for state in states])


def _bubble_trace(rng: Random, size: int) -> Drawn:
    key = _keys(rng, size)
    states = runs.bubble_sort_trace(key)
    return _traced(f"key: {written([*key])}", [*key], [[*state] for state in states])


def _minimum(rng: Random, size: int) -> Drawn:
    key = _keys(rng, size)
    return f"key: {written([*key])}", "", str(runs.minimum(key))


def _minimum_trace(rng: Random, size: int) -> Drawn:
    key = _keys(rng, size)
    return _traced(f"key: {written([*key])}", 0, [*runs.minimum_trace(key)])


def _binary_search(rng: Random, size: int) -> Drawn:
    key, target = sorted(_keys(rng, size)), rng.randrange(1, 1000) / 1000
    return f"key: {written([*key])}, target: {target}", "", str(runs.binary_search(key, target))


def _median(rng: Random, size: int) -> Drawn:
    key = _keys(rng, size)
    return f"key: {written([*key])}", "", str(runs.median(key))


def _subarray(rng: Random, size: int) -> Drawn:
    key = [rng.randrange(-999, 1000) / 1000 for _ in range(size)]
    start, end = runs.maximum_subarray(key)
    return f"key: {written([*key])}", "", f"{start}, {end}"


def _activities(rng: Random, size: int) -> Drawn:
    times = [sorted(rng.sample(range(1, 1000), 2)) for _ in range(size)]
    start, finish = [time[0] / 1000 for time in times], [time[1] / 1000 for time in times]
    chosen = runs.activity_selector(start, finish)
    return f"s: {written([*start])}, f: {written([*finish])}", "", written([*chosen])


def _match(rng: Random, size: int) -> Drawn:
    length = max(size // 5, 1)
    string = [0] * (size - length) + [1] * length
    key = [rng.randrange(4) for _ in range(size)]
    return f"string: {written([*string])}, key: {written([*key])}", "", str(runs.string_match(string, key))


def _chain(rng: Random, size: int) -> Drawn:
    p = _keys(rng, size)
    return f"p: {written([*p])}", "", written([[*row] for row in runs.matrix_chain(p)])


def _graph(rng: Random, size: int, *, is_weighted: bool) -> list[list[float]]:
    """Draw an undirected graph; every weight occurs once, so that no two ways are as long."""
    weights = iter(rng.sample(range(1, 1000), size * size))
    matrix = [[0.0] * size for _ in range(size)]
    for a in range(size):
        for b in range(a):
            if rng.random() < 0.5:
                matrix[a][b] = matrix[b][a] = next(weights) / 1000 if is_weighted else 1
    return matrix if is_weighted else [[int(cell) for cell in row] for row in matrix]


def _tree(grow: Callable[[int, list[list[float]]], list[int]], *, is_weighted: bool) -> Callable[[Random, int], Drawn]:
    def draw(rng: Random, size: int) -> Drawn:
        source, matrix = rng.randrange(size), _graph(rng, size, is_weighted=is_weighted)
        parents = grow(source, matrix)
        return f"s: {source}, A: {written([[*row] for row in matrix])}", "", written([*parents])

    return draw


def _traced(shown: str, first: "int | list[int | float]", states: "list[int] | list[list[float]]") -> Drawn:
    """Give the states before the last as the trace, and the last as the output."""
    printed = [written([*state]) if isinstance(state, list) else str(state) for state in states]
    start = written([*first]) if isinstance(first, list) else str(first)
    return f"{shown}, initial_trace: {start}", ", ".join(printed[:-1]) + " | ", printed[-1]


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
    "bfs": Algorithm(output="pi", draw=_tree(runs.breadth_first, is_weighted=False)),
    "dijkstra": Algorithm(output="pi", draw=_tree(runs.shortest_path_tree, is_weighted=True)),
    "bellman_ford": Algorithm(output="pi", draw=_tree(runs.shortest_path_tree, is_weighted=True)),
    "mst_prim": Algorithm(output="pi", draw=_tree(runs.spanning_tree, is_weighted=True)),
    "matrix_chain_order": Algorithm(output="s", draw=_chain),
}
TRACED: dict[str, Algorithm] = {
    "minimum": Algorithm(output="trace | min", draw=_minimum_trace),
    "insertion_sort": Algorithm(output="trace | pred", draw=_insertion_trace),
    "bubble_sort": Algorithm(output="trace | pred", draw=_bubble_trace),
}
