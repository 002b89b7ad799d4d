"""CLRS-Text: carry out a textbook algorithm on a small input and print its output.

answer the output as CLRS-Text prints it; if the question asks for a trace,
         `state, state, ... | output`
payload {"algorithm": name, "size": n}, for reading only

All thirty algorithms can be generated, three of them with traces; imported rows may have traces of
any. Keys, graphs and points have three decimals, and inputs are chosen so that only one output is
right.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from itertools import combinations, pairwise
from random import Random
from typing import Literal, NamedTuple

from whet.answers.doubt import is_doubtful
from whet.level_bands import level_band
from whet.tasks.algorithms import textbook
from whet.tasks.algorithms.textbook import Array, Matrix
from whet.tasks.generated import GeneratedConfig, GeneratedTask, grade_final_answer
from whet.tasks.graphs.named_runs import is_only_remark
from whet.types import Json, Problem, Score, Split

Item = Decimal | tuple["Item", ...]
"""A number, or an array: 0 for square or 1 for round brackets, then its elements."""

MAX_CHARS = 1 << 16
MAX_DEPTH = 4
_MAX_LABELLED = 2000

_PIECE = re.compile(
    r"\s*([\[\](),]|[-+]?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?(?![\w.]))"
)
_CLOSING = {"[": "]", "(": ")"}
_NAMED = re.compile(r"\A\s*(?:index|position|node|vertex|key|value)\s+(-?[0-9.]+\s*)\Z")
"""A single number and what it is: `index 3`."""
_DRESS = re.compile(r"\A\{(?=\s*\"\w)|(?<=\S)\}\Z|[$\"]|^[ \t]*[-*•][ \t]+", re.MULTILINE)
"""What may be around a label and its output: a JSON object, dollar signs, bullets."""
_EXPLANATION = re.compile(
    r"(?s)(?<=\S)\n\s*\n(?:[*_]*(?i:explanation|reasoning|reason|why|note)\b[*_]*:"
    r"(?!.*(?:\n\s*\n|[:=<\[]|boxed)).*"
    r"|(?![^\n]*\b(?:input|initial|given|un\w+)\b)[A-Z][^\n\d\[\]=:|<]*\.\s*)\Z"
)
"""A last paragraph that explains an output and contains no other."""
_SIZES = ((4, 4), (5, 7), (8, 10), (11, 13), (14, 16))
"""Smallest and largest input in each fifth of difficulty."""
_Value = int | float | Sequence["_Value"]
Draw = Callable[[Random, int], dict[str, _Value]]
"""Draw the inputs of an algorithm, by their printed names and in its order."""


class ClrsConfig(GeneratedConfig):
    name: Literal["clrs"] = "clrs"
    trace: bool = False
    """Also ask for the intermediate states, for the algorithms that have them here."""


class Printout(NamedTuple):
    """The intermediate states, None if there is no trace, and the output."""

    trace: tuple[Item, ...] | None
    output: tuple[Item, ...]


class Clrs(GeneratedTask):
    """Generated runs of thirty algorithms, and an exact grader for their printouts."""

    name = "clrs"
    config: ClrsConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare printouts: numbers by exact value, brackets and order as they are.

        Parts: `correct` 0 or 1; `output`, 1 if the part after the trace is right; `trace`, the
        fraction of right states, if the gold answer has them.
        """
        algorithm = ALGORITHMS.get(str(problem.payload.get("algorithm")))
        read = partial(printout_of, label=algorithm.output if algorithm else "")
        explained = _EXPLANATION.search(text, max(len(text) - _MAX_LABELLED, 0))
        if explained and not is_doubtful(explained[0]) and is_only_remark(explained[0]):
            text = text[: explained.start()]
        return grade_final_answer(problem, text, read, _compare, needs="a CLRS printout")

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else problem.answer.strip()

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        least, most = _SIZES[level_band(level)]
        known = {
            name: algorithm
            for name, algorithm in (TRACED if self.config.trace else ALGORITHMS).items()
            if algorithm.size is None or least <= algorithm.size <= most
        }
        name = rng.choice(sorted(known))
        size = known[name].size or rng.randint(least, most)
        shown, trace, output = known[name].draw(rng, size)
        core = shown.partition(", initial_trace")[0]
        prompt = f"{name}:\n{shown}\n{known[name].output}:\n"
        payload: dict[str, Json] = {"algorithm": name, "size": size}
        return self.make_problem(prompt, f"{trace}{output}", payload, level, core=core)


def printout_of(text: str, label: str = "") -> Printout | None:
    """Read `output` or `trace | output`, with its label or not; None if there is no output."""
    text = _NAMED.sub(r"\1", _strip_label(text, label) if label else text)
    before, bar, after = text.rpartition("|")
    trace = parse_items(before) if bar else None
    output = parse_items(after)
    if not output or (bar and trace is None):
        return None
    return Printout(trace, output)


def _strip_label(text: str, label: str) -> str:
    """Return what follows a label, or each of its parts; the text itself if it has no label."""
    plain = text.replace("**", "").replace("=", ":").replace("\\", "")
    plain = _DRESS.sub("", plain.strip().removesuffix(".")).strip()
    parts = [rf"{re.escape(name)}[ \t]*:[ \t]*" for name in label.split(", ")]
    lead = r"(?:[^\n]{0,200}\b(?:so|thus|hence|therefore),? (?:the )?)?"
    whole = re.fullmatch(rf"({lead}){re.escape(label)}[ \t]*:\s*(.*)", plain, re.DOTALL)
    if whole and not is_doubtful(whole[1]):
        return whole[2].strip("` ")
    labelled = r"([^:]*?)(?:[\s,;]|\band\b)*".join(parts)
    each = re.fullmatch(rf"((?:[^:]*\s)?){labelled}([^:]*)", plain[-_MAX_LABELLED:])
    if each is None or is_doubtful(each[1]):
        return text
    return ", ".join(one.strip("` ") for one in each.groups()[1:])


def parse_items(text: str) -> tuple[Item, ...] | None:
    """Read the items of a text; None if it holds anything else.

    Spaces or commas separate the elements, and 0.50, 0.5 and 5e-1 are the same number. Brackets and
    order must be the same.

    >>> parse_items("[1 0.50], 2") == parse_items("[1, 5e-1] 2.0")
    True
    >>> parse_items("[1 2]") == parse_items("(1, 2)")
    False
    """
    text = text.replace("\\ ", " ").rstrip()
    if len(text) > MAX_CHARS:
        return None
    start = 0
    levels: list[tuple[str, list[Item]]] = [("", [])]
    while start < len(text):
        match = _PIECE.match(text, start)
        if not match:
            return None
        start = match.end()
        piece = match[1]
        if piece in _CLOSING:
            if len(levels) > MAX_DEPTH:
                return None
            levels.append((piece, []))
        elif piece in ("]", ")"):
            opening, items = levels.pop()
            if not levels or _CLOSING.get(opening) != piece:
                return None
            levels[-1][1].append((Decimal("[(".index(opening)), *items))
        elif piece != ",":
            levels[-1][1].append(Decimal(piece))
    return tuple(levels[0][1]) if len(levels) == 1 else None


def fraction_right(items: tuple[Item, ...], gold: tuple[Item, ...]) -> float:
    """Return the fraction of right items, relative to the longer list; 1 if both are empty."""
    longer = max(len(items), len(gold))
    return sum(a == b for a, b in zip(items, gold, strict=False)) / longer if longer else 1.0


def _compare(answer: Printout, gold: Printout) -> tuple[dict[str, float], str]:
    parts = {"output": float(answer.output == gold.output)}
    note = "the output is right" if parts["output"] else "not the output"
    if gold.trace is not None:
        parts["trace"] = 0.0 if answer.trace is None else fraction_right(answer.trace, gold.trace)
        note += f", {parts['trace']:.0%} of the trace is right"
    return parts, note


class ClrsAlgorithm(NamedTuple):
    """The output that a question asks for, how to draw inputs of a size, and how to run on them.
    For a trace, `run` lists every state."""

    output: str
    inputs: Draw
    run: Callable[..., _Value]
    size: int | None = None
    """The size of the inputs, if they have only one."""

    def draw(self, rng: Random, size: int) -> tuple[str, str, str]:
        """Return the printed input, the trace (empty without one), and the output."""
        inputs = self.inputs(rng, size)
        shown = ", ".join(f"{name}: {format_input(value)}" for name, value in inputs.items())
        result = self.run(*inputs.values())
        if not self.output.startswith("trace"):
            return shown, "", format_input(result)
        assert isinstance(result, list), "a trace is a list of states"
        start, *trace, last = map(format_input, result)
        return f"{shown}, initial_trace: {start}", ", ".join(trace) + " | ", last


def format_input(value: _Value) -> str:
    """Print a number, an array, a matrix, or several of them in a tuple.

    >>> format_input([[0.5, 1], [2, 3]]), format_input(([0, 1], 2))
    ('[[0.5 1], [2 3]]', '[0 1], 2')
    """
    if isinstance(value, int | float):
        return str(value)
    parts = [format_input(part) for part in value]
    if isinstance(value, tuple):
        return ", ".join(parts)
    return f"[{(' ' if isinstance(value[0], int | float) else ', ').join(parts)}]"


def _draw_keys(rng: Random, size: int, *, names: str = "key") -> dict[str, _Value]:
    return {name: keys(rng, size) for name in names.split()}


def _draw_search(rng: Random, size: int) -> dict[str, _Value]:
    return {"key": sorted(keys(rng, size)), "target": rng.randrange(1, 1000) / 1000}


def _draw_signed_keys(rng: Random, size: int) -> dict[str, _Value]:
    return {"key": [rng.randrange(-999, 1000) / 1000 for _ in range(size)]}


def _draw_activities(rng: Random, size: int) -> dict[str, _Value]:
    times = [sorted(rng.sample(range(1, 1000), 2)) for _ in range(size)]
    return {"s": [time[0] / 1000 for time in times], "f": [time[1] / 1000 for time in times]}


def _draw_strings(rng: Random, size: int, length: int) -> dict[str, _Value]:
    """Draw the keys of two strings, the second of the given length."""
    marks = [0] * (size - length) + [1] * length
    return {"string": marks, "key": [rng.randrange(4) for _ in range(size)]}


def _draw_weights(rng: Random, size: int) -> dict[str, _Value]:
    """Divide a thousand into the weights of keys and gaps."""
    cuts = [0, *sorted(rng.sample(range(1, 1000), 2 * size)), 1000]
    parts = [(end - start) / 1000 for start, end in pairwise(cuts)]
    return {"p": [*parts[:size], 0.0], "q": parts[size:]}


def _best_search_tree(p: Array, q: Array) -> list[list[int]]:
    """Compute in thousandths, which are exact."""
    return textbook.optimal_search_tree(*([round(1000 * w) for w in part] for part in (p, q)))


def _draw_tasks(rng: Random, size: int) -> dict[str, _Value]:
    return {"d": [rng.randint(1, size) for _ in range(size)], "w": keys(rng, size)}


def _draw_points(rng: Random, size: int) -> dict[str, _Value]:
    """Draw points, no three of which are on a line."""
    while True:
        x, y = ([rng.randrange(-1999, 2000) / 1000 for _ in range(size)] for _ in range(2))
        if all(textbook.turn(*three) for three in combinations(zip(x, y, strict=True), 3)):
            return {"x": x, "y": y}


def _graph(
    draw_matrix: Callable[[Random, int], Matrix],
    *,
    has_source: bool = True,
    is_unambiguous: bool = False,
) -> Draw:
    """Draw a graph, with a source or without; if asked, with unique shortest paths."""

    def draw(rng: Random, size: int) -> dict[str, _Value]:
        sources = [rng.randrange(size)] if has_source else range(size)
        while True:
            matrix = draw_matrix(rng, size)
            if not is_unambiguous or all(has_one_way(source, matrix) for source in sources):
                return {"s": sources[0], "A": matrix} if has_source else {"A": matrix}

    return draw


def keys(rng: Random, size: int) -> Array:
    """Draw different keys."""
    return [number / 1000 for number in rng.sample(range(1, 1000), size)]


def draw_graph(
    rng: Random,
    size: int,
    *,
    is_weighted: bool = False,
    is_directed: bool = False,
    degree: float | None = None,
) -> Matrix:
    """Draw a graph with about `degree` edges per node, by default half of all; all weights
    differ."""
    weights = iter(rng.sample(range(1, 1000), size * size))
    probability = 0.5 if degree is None else min(0.5, degree / size)
    matrix: Matrix = [[0.0 if is_weighted else 0] * size for _ in range(size)]
    for a, b in combinations(range(size), 2):
        for start, end in ((a, b), (b, a))[: 1 + is_directed]:
            if rng.random() < probability:
                matrix[start][end] = next(weights) / 1000 if is_weighted else 1
                if not is_directed:
                    matrix[end][start] = matrix[start][end]
    return matrix


def acyclic(rng: Random, size: int, *, is_weighted: bool = False) -> Matrix:
    """Draw a directed graph without cycles, over nodes in any order."""
    matrix = draw_graph(rng, size, is_weighted=is_weighted, is_directed=True)
    order = list(range(size))
    rng.shuffle(order)
    return [
        [cell if order[a] < order[b] else 0.0 if is_weighted else 0 for b, cell in enumerate(row)]
        for a, row in enumerate(matrix)
    ]


def has_one_way(source: int, matrix: Matrix) -> bool:
    """Whether every node has only one shortest path from the source, to the exact thousandth."""
    exact = [[float(round(1000 * cell)) for cell in row] for row in matrix]
    parents, away = textbook.find_shortest_paths(source, exact)
    others = [node for node, parent in enumerate(parents) if parent != node]
    for node in others:
        before = [k for k in (source, *others) if exact[k][node]]
        if sum(away[k] + exact[k][node] == away[node] for k in before) != 1:
            return False
    return True


_WEIGHTED = partial(draw_graph, is_weighted=True)
_DIRECTED = partial(draw_graph, is_directed=True)
_whole_graph = partial(_graph, has_source=False)
_SORT = ClrsAlgorithm("pred", _draw_keys, sorted)
_MATCH = ClrsAlgorithm(
    "match",
    lambda rng, size: _draw_strings(rng, size, max(size // 5, 1)),
    textbook.string_match,
)
_HULL = ClrsAlgorithm("in_hull", _draw_points, textbook.hull)
_ON_DAG = _graph(partial(acyclic, is_weighted=True), is_unambiguous=True)
_SHORTEST = ClrsAlgorithm("pi", _graph(_WEIGHTED, is_unambiguous=True), textbook.shortest_path_tree)
_SPARSE = _whole_graph(partial(draw_graph, degree=2))
_SPARSE_DIRECTED = _whole_graph(partial(_DIRECTED, degree=1.5))

ALGORITHMS: dict[str, ClrsAlgorithm] = {
    "minimum": ClrsAlgorithm("min", _draw_keys, textbook.minimum),
    "binary_search": ClrsAlgorithm("return", _draw_search, textbook.binary_search),
    "insertion_sort": _SORT,
    "bubble_sort": _SORT,
    "heapsort": _SORT,
    "quicksort": _SORT,
    "quickselect": ClrsAlgorithm("median", _draw_keys, textbook.median),
    "find_maximum_subarray_kadane": ClrsAlgorithm(
        "start, end", _draw_signed_keys, textbook.maximum_subarray
    ),
    "activity_selector": ClrsAlgorithm("selected", _draw_activities, textbook.activity_selector),
    "naive_string_matcher": _MATCH,
    "kmp_matcher": _MATCH,
    "bfs": ClrsAlgorithm("pi", _graph(draw_graph), textbook.breadth_first),
    "dijkstra": _SHORTEST,
    "bellman_ford": _SHORTEST,
    "dag_shortest_paths": ClrsAlgorithm("pi", _ON_DAG, textbook.shortest_path_tree),
    "mst_prim": ClrsAlgorithm("pi", _graph(_WEIGHTED), textbook.spanning_tree),
    "mst_kruskal": ClrsAlgorithm("in_mst", _whole_graph(_WEIGHTED), textbook.kruskal),
    "floyd_warshall": ClrsAlgorithm(
        "Pi", _whole_graph(_WEIGHTED, is_unambiguous=True), textbook.floyd_warshall
    ),
    "dfs": ClrsAlgorithm("pi", _whole_graph(_DIRECTED), textbook.depth_first),
    "topological_sort": ClrsAlgorithm(
        "topo, topo_head", _whole_graph(acyclic), textbook.topological_sort
    ),
    "strongly_connected_components": ClrsAlgorithm(
        "scc_id", _SPARSE_DIRECTED, textbook.strong_components
    ),
    "articulation_points": ClrsAlgorithm("is_cut", _SPARSE, textbook.articulation_points),
    "bridges": ClrsAlgorithm("is_bridge", _SPARSE, textbook.bridges),
    "matrix_chain_order": ClrsAlgorithm("s", partial(_draw_keys, names="p"), textbook.matrix_chain),
    "optimal_bst": ClrsAlgorithm("root", _draw_weights, _best_search_tree),
    "lcs_length": ClrsAlgorithm(
        "b", lambda rng, size: _draw_strings(rng, size, size - size // 2), textbook.lcs_table
    ),
    "task_scheduling": ClrsAlgorithm("selected", _draw_tasks, textbook.task_scheduling),
    "graham_scan": _HULL,
    "jarvis_march": _HULL,
    "segments_intersect": ClrsAlgorithm(
        "intersect", partial(_draw_keys, names="x y"), textbook.segments_meet, size=4
    ),
}
TRACED: dict[str, ClrsAlgorithm] = {
    "minimum": ClrsAlgorithm("trace | min", _draw_keys, textbook.minimum_trace),
    "insertion_sort": ClrsAlgorithm("trace | pred", _draw_keys, textbook.insertion_sort_trace),
    "bubble_sort": ClrsAlgorithm("trace | pred", _draw_keys, textbook.bubble_sort_trace),
}
