"""CLRS-Text: printouts are compared exactly, real rows are right, and the algorithms give what the
real rows say."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from whet.errors import DataError
from whet.tasks.algorithms import textbook
from whet.tasks.algorithms.clrs import (
    ALGORITHMS,
    TRACED,
    Clrs,
    ClrsConfig,
    Item,
    format_input,
    fraction_right,
    has_one_way,
    parse_items,
    printout_of,
)
from whet.types import Message, Problem, Verdict

DATA = Path(__file__).parents[3] / ".." / "shared" / "data" / "clrs_text.jsonl"
TASK = Clrs()


def rows() -> list[dict[str, Any]]:
    if not DATA.exists():
        pytest.skip("clrs_text.jsonl of the shared data is not here")
    return [json.loads(line) for line in DATA.read_text().splitlines()]


def asked(answer: str) -> Problem:
    prompt = (Message(role="user", content="?"),)
    return Problem(
        id="clrs/0",
        task="clrs",
        prompt=prompt,
        answer=answer,
        payload={},
        level=None,
        split="test",
        source="",
    )


def graded(response: str, gold: str) -> tuple[Verdict, dict[str, float]]:
    score = TASK.score(asked(gold), response)
    return score.verdict, dict(score.parts)


def test_every_real_gold_is_right_and_the_next_rows_is_not() -> None:
    table = rows()
    for row, following in zip(table, table[1:] + table[:1], strict=True):
        gold, other = row["answer"], following["answer"]
        assert graded(gold, gold)[0] is Verdict.CORRECT, row["id"]
        assert graded(f"<answer>{gold}</answer>", gold)[0] is Verdict.CORRECT, row["id"]
        if other.strip() != gold.strip():
            assert graded(other, gold)[0] is not Verdict.CORRECT, row["id"]


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        ("[1, 0, 1]", "[1 0 1]\n\n"),
        ("[0.50 1.0]", "[0.5 1]"),
        ("[[1 2], [3 4]]", "[[1 2], [3 4]]"),
        ("[[1,2],[3,4]]", "[[1 2], [3 4]]"),
        ("0,1", "0, 1"),
        ("| [0 1]", " | [0 1]\n\n"),
        ("(2, 3)|(2, 2)", "(2, 3) | (2, 2)"),
        ("Answer: 5e-1", "0.5"),
    ],
)
def test_spacing_and_the_writing_of_numbers_do_not_matter(response: str, gold: str) -> None:
    assert graded(response, gold)[0] is Verdict.CORRECT


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        ("[1 0 0]", "[1 0 1]"),
        ("[1 0 1 1]", "[1 0 1]"),
        ("[[1 0 1]]", "[1 0 1]"),
        ("(1, 0, 1)", "[1 0 1]"),
        ("[1 2 3 4]", "[[1 2], [3 4]]"),
        ("0.5000001", "0.5"),
        ("0.708", "0.7081"),
        ("1, 0", "0, 1"),
        ("[1] [1]", "[1]"),
        ("[0 1] | [1 1]", "[1 1]"),
        ("[1 1]", "[0 1] | [1 1]"),
    ],
)
def test_other_values_shapes_and_brackets_are_wrong(response: str, gold: str) -> None:
    assert graded(response, gold)[0] is Verdict.WRONG


@pytest.mark.parametrize(
    "response", ["", "[1 0", "1]", "[1 0)", "one", "[1 x]", "12abc", "|", "1 | ", "nan", "[" * 50]
)
def test_what_is_no_printout_is_no_answer(response: str) -> None:
    assert graded(response, "[1 0 1]") == (Verdict.NO_ANSWER, {"correct": 0.0, "output": 0.0})


def test_a_trace_is_part_of_the_answer_where_it_is_asked_for() -> None:
    gold = "[1 0], [1 1] | [0 1]"
    assert graded("[1 0], [0 1] | [0 1]", gold) == (
        Verdict.WRONG,
        {"correct": 0.0, "output": 1.0, "trace": 0.5},
    )
    assert graded("[0 1]", gold) == (Verdict.WRONG, {"correct": 0.0, "output": 1.0, "trace": 0.0})
    assert graded(gold, gold) == (Verdict.CORRECT, {"correct": 1.0, "output": 1.0, "trace": 1.0})


def test_arrays_are_read_and_written_back() -> None:
    for text in ("[[0.5 1], [2 3]]", "[1 0 1]", "7"):
        items = parse_items(text)
        assert items is not None and len(items) == 1
    assert format_input([[0.5, 1], [2, 3]]) == "[[0.5 1], [2 3]]"
    assert fraction_right((), ()) == 1.0
    assert parse_items("[" * 5 + "]" * 5) is None and parse_items("1" * 100_000) is None


def plain(item: Item) -> Any:
    return [plain(part) for part in item[1:]] if isinstance(item, tuple) else float(item)


def fields(question: str) -> dict[str, Any]:
    """Read the named inputs of a real question."""
    found: dict[str, Any] = {}
    for part in (
        question.split("\n")[1]
        .replace(", initial_trace", "\ninitial_trace")
        .split("\n")[0]
        .split(": ")[:-1]
    ):
        name = part.split(" ")[-1]
        text = question.split("\n")[1].split(f"{name}: ")[1].split(", initial_trace")[0]
        end = next(
            (
                place
                for place in range(len(text))
                if text[place] == "," and ": " in text[place : place + 12]
            ),
            None,
        )
        items = parse_items(text[:end])
        assert items is not None
        found[name] = plain(items[0])
    return found


RUNS: dict[str, Callable[[dict[str, Any]], object]] = {
    **{
        name: lambda given: sorted(given["key"])
        for name in ("insertion_sort", "bubble_sort", "heapsort", "quicksort")
    },
    **{
        name: lambda given: textbook.string_match(given["string"], given["key"])
        for name in ("naive_string_matcher", "kmp_matcher")
    },
    **{
        name: lambda given: textbook.shortest_path_tree(int(given["s"]), given["A"])
        for name in ("dijkstra", "bellman_ford", "dag_shortest_paths")
    },
    "minimum": lambda given: textbook.minimum(given["key"]),
    "binary_search": lambda given: textbook.binary_search(given["key"], given["target"]),
    "quickselect": lambda given: textbook.median(given["key"]),
    "find_maximum_subarray_kadane": lambda given: list(textbook.maximum_subarray(given["key"])),
    "activity_selector": lambda given: textbook.activity_selector(given["s"], given["f"]),
    "bfs": lambda given: textbook.breadth_first(int(given["s"]), given["A"]),
    "mst_prim": lambda given: textbook.spanning_tree(int(given["s"]), given["A"]),
    "matrix_chain_order": lambda given: textbook.matrix_chain(given["p"]),
    "optimal_bst": lambda given: textbook.optimal_search_tree(given["p"], given["q"]),
    "lcs_length": lambda given: textbook.lcs_table(given["string"], given["key"]),
    "task_scheduling": lambda given: textbook.task_scheduling(given["d"], given["w"]),
    "graham_scan": lambda given: textbook.hull(given["x"], given["y"]),
    "jarvis_march": lambda given: textbook.hull(given["x"], given["y"]),
    "segments_intersect": lambda given: textbook.segments_meet(given["x"], given["y"]),
    "dfs": lambda given: textbook.depth_first(given["A"]),
    "topological_sort": lambda given: list(textbook.topological_sort(given["A"])),
    "strongly_connected_components": lambda given: textbook.strong_components(given["A"]),
    "articulation_points": lambda given: textbook.articulation_points(given["A"]),
    "bridges": lambda given: textbook.bridges(given["A"]),
    "mst_kruskal": lambda given: textbook.kruskal(given["A"]),
    "floyd_warshall": lambda given: textbook.floyd_warshall(given["A"]),
}


@pytest.mark.parametrize("algorithm", sorted(RUNS))
def test_the_algorithms_give_what_the_real_rows_say(algorithm: str) -> None:
    mine = [row for row in rows() if row["algo_name"] == algorithm]
    assert len(mine) == (4 if algorithm == "segments_intersect" else 12)
    for row in mine:
        gold = printout_of(row["answer"])
        assert gold is not None
        if row["use_hints"] and algorithm in ("binary_search", "find_maximum_subarray_kadane"):
            continue  # the last state is asked for there, not the output
        output = [plain(item) for item in gold.output]
        assert RUNS[algorithm](fields(row["question"])) == (
            output[0] if len(output) == 1 else output
        ), row["id"]


def test_every_algorithm_of_the_real_rows_is_made_here_and_run_above() -> None:
    assert {row["algo_name"] for row in rows()} == set(ALGORITHMS) == set(RUNS)
    assert len(ALGORITHMS) == 30


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_a_made_question_is_laid_out_as_the_real_ones_are(algorithm: str) -> None:
    mine = [row for row in rows() if row["algo_name"] == algorithm and not row["use_hints"]]
    made = ALGORITHMS[algorithm].draw(Random(1), ALGORITHMS[algorithm].size or 9)
    name, given, asked, _ = mine[0]["question"].split("\n")[:4]
    shape = [re.findall(r"(\w+):", line) for line in (given, made[0])]
    assert shape[0] == shape[1]
    assert (name, asked) == (f"{algorithm}:", f"{ALGORITHMS[algorithm].output}:")
    inputs = fields(f"{algorithm}:\n{made[0]}\n")
    assert [plain(item) for item in parse_items(made[2]) or ()] in (
        [RUNS[algorithm](inputs)],
        RUNS[algorithm](inputs),
    )


def test_shortest_ways_are_drawn_until_there_is_one() -> None:
    square = [[0, 0.5, 0.25, 0], [0.5, 0, 0, 0.25], [0.25, 0, 0, 0.5], [0, 0.25, 0.5, 0]]

    assert not has_one_way(0, square)
    square[1][3] = square[3][1] = 0.249
    assert has_one_way(0, square)


def test_cuts_and_hulls_of_small_shapes() -> None:
    path = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert textbook.articulation_points(path) == [0, 1, 0]
    assert textbook.bridges(path) == [[0, 1, -1], [1, 0, 1], [-1, 1, 0]]
    assert textbook.strong_components([[0, 1, 0], [1, 0, 1], [0, 0, 0]]) == [0, 0, 2]
    assert textbook.hull([0, 2, 0, 2, 1], [0, 0, 2, 2, 0.9]) == [1, 1, 1, 1, 0]
    assert textbook.segments_meet([0, 1, 1, 2], [0, 0, 0, 0]) == 1
    assert textbook.segments_meet([0, 1, 1.001, 2], [0, 0, 0, 0]) == 0


TRACES: dict[str, Callable[[list[float]], list[Any]]] = {
    "insertion_sort": textbook.insertion_sort_trace,
    "bubble_sort": textbook.bubble_sort_trace,
    "minimum": textbook.minimum_trace,
}


@pytest.mark.parametrize("algorithm", sorted(TRACES))
def test_the_traces_are_those_of_the_real_rows(algorithm: str) -> None:
    [row] = [row for row in rows() if row["algo_name"] == algorithm and row["use_hints"]]
    gold = printout_of(row["answer"])
    assert gold is not None and gold.trace is not None
    states = [plain(item) for item in (*gold.trace, *gold.output)]
    assert TRACES[algorithm](fields(row["question"])["key"])[1:] == states


def test_all_algorithms_are_asked_and_their_golds_are_right() -> None:
    for config, known in ((ClrsConfig(), ALGORITHMS), (ClrsConfig(trace=True), TRACED)):
        task = Clrs(config)
        made = [task.generate(seed, 0.1) for seed in range(250)]
        assert {problem.payload["algorithm"] for problem in made} == set(known)
        for problem in made:
            assert task.score(problem, task.solve(problem, 0) or "").verdict is Verdict.CORRECT
            assert problem.prompt[0].content.startswith(f"{problem.payload['algorithm']}:\n")


def test_harder_inputs_are_longer() -> None:
    sizes = [
        [TASK.generate(seed, level).payload["size"] for seed in range(20)]
        for level in (0.1, 0.3, 0.5, 0.7, 0.9)
    ]
    totals = [sum(int(str(size)) for size in group) for group in sizes]
    assert all(harder > 1.15 * easier for easier, harder in pairwise(totals)), totals


def test_a_problem_without_a_printout_is_the_fault_of_the_data() -> None:
    with pytest.raises(DataError, match="printout"):
        TASK.score(asked("x"), "1")
