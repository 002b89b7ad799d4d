"""Questions about numbered graphs: what is read from a response, and the algorithms against
networkx."""

import json
import time
from fractions import Fraction
from itertools import pairwise, permutations, product
from random import Random

import networkx as nx
import pytest
from graph_cases import asked, task

from whet.tasks.graphs.numbered_readers import (
    read_assignments,
    read_final_number,
    read_table_rows,
    read_walk,
    read_yes_no,
)
from whet.tasks.graphs.paths import (
    bitsets,
    components,
    diameter,
    distance,
    hamiltonian_path,
    lightest_path,
    max_matching,
    shortest_path,
)
from whet.tasks.graphs.questions import SPANS, GraphQuestion, draw_question, solve_question
from whet.types import Verdict


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("### Yes", "yes"),
        ("### No, [0, 1]", "no"),
        ("No node is alone.\n### Yes", "yes"),
        ("The answer is yes.", "yes"),
        ("Final answer: **No**", "no"),
        ("Yes, there is a cycle in this graph.", "yes"),
        ("No, there is no cycle in this graph.", "no"),
        ("Yes, because there is no odd ring.\n(0,1) and (1,2) are the edges.", "yes"),
        ("First 0, then 1.\nTherefore there is no path between them.", "no"),
        ("First 0, then 1.\nTherefore there is a path between them.", "yes"),
        (r"so \boxed{\text{No}}", "no"),
        ("<answer>yes</answer>", "yes"),
        ("### Yes or No", None),
        ("### Yes and No", None),
        ("Answer Yes or No.", None),
        ("Is it yes? Or is it no? I cannot say", None),
        ("", None),
        ("node 3 knows nobody", None),
    ],
)
def test_yes_or_no_is_read_where_it_is_said_once(text, expected):
    assert read_yes_no(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("### 13", 13),
        ("### The answer is 13.", 13),
        ("13", 13),
        ("13.", 13),
        ("2 + 11 = 13", None),
        ("The sum is 2 + 11 = 13", 13),
        ("The maximum flow from node 4 to node 9 is 13.", 13),
        ("Total: **13**", 13),
        (r"\boxed{13}", 13),
        ("The total weight of 13.0 km", 13),
        ("### Answer\n\n**13**", 13),
        ("### 13 or 14", None),
        ("### 13, 14", None),
        ("It is 13 or 14", None),
        ("=\x0c13=", None),
        ("no number", None),
    ],
)
def test_a_number_is_read_where_it_is_said_once(text, expected):
    assert read_final_number(text) == (None if expected is None else Fraction(expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("### [[1, 0, 2]]", (1, 0, 2)),
        ("The solution is: 1,0,2.", (1, 0, 2)),
        ("Yes. The path can be: 1,0,2", (1, 0, 2)),
        ("The shortest path from node 1 to node 2 is 1,0,2 with a total weight of 6", (1, 0, 2)),
        ("We walk 1 -> 0 -> 2, along (1,0) and (0, 2, 5).", (1, 0, 2)),
        ("Edges (1,0,3) (0,2,4).\nPath: [1→0→2]\nIt uses the edges (1, 0) and (0, 2).", (1, 0, 2)),
        ("7", None),
        ("", None),
    ],
)
def test_a_path_is_read_and_edges_are_not_taken_for_one(text, expected):
    assert read_walk(text) == expected


def test_pairs_are_those_of_the_last_block_and_rows_the_last_of_each_node():
    text = "applicant 0: job 1\n\nNo, better:\nApplicant 0: job 2\n\napplicant 1 -> job 0\n2 applicants get one."

    assert read_assignments(text) == [(0, 2), (1, 0)]
    assert read_assignments("applicants want jobs") == []
    assert read_table_rows("node 0: [1, 2]\nafter two layers\nnode 0: [3,4]\nNode 1: (5, -6)") == {
        0: (3, 4),
        1: (5, -6),
    }


@pytest.mark.parametrize(
    ("payload", "answer", "text", "verdict"),
    [
        ({"kind": "shortest", "pair": [0, 2]}, None, "0,1,2", Verdict.CORRECT),
        ({"kind": "shortest", "pair": [0, 2]}, None, "the path is 0,2", Verdict.WRONG),
        ({"kind": "shortest", "pair": [0, 2]}, None, "2,1,0", Verdict.WRONG),
        ({"kind": "shortest", "pair": [0, 2]}, None, "0,3,2", Verdict.WRONG),
        ({"kind": "shortest", "pair": [0, 2]}, None, "weight 3", Verdict.NO_ANSWER),
        ({"kind": "hamilton"}, "Yes", "Yes. 3,0,1,2", Verdict.CORRECT),
        ({"kind": "hamilton"}, "Yes", "Yes.", Verdict.WRONG),
        ({"kind": "hamilton"}, "Yes", "No", Verdict.WRONG),
        ({"kind": "hamilton"}, "Yes", "3,0,1", Verdict.WRONG),
        ({"kind": "hamilton"}, "Yes", "0,3,1,2", Verdict.WRONG),
        ({"kind": "hamilton"}, "Yes", "a path", Verdict.NO_ANSWER),
        ({"kind": "hamilton"}, "No", "No", Verdict.CORRECT),
        ({"kind": "hamilton"}, "No", "Yes: 3,0,1,2", Verdict.WRONG),
        ({"kind": "topology"}, None, "The solution is: 0,1,3,2", Verdict.CORRECT),
        ({"kind": "topology"}, None, "The solution is: 1,0,3,2", Verdict.WRONG),
        ({"kind": "topology"}, None, "The solution is: 0,1,2", Verdict.WRONG),
        ({"kind": "topology"}, None, "none", Verdict.NO_ANSWER),
        (
            {"kind": "matching", "jobs": 4},
            None,
            "applicant 0: job 1\napplicant 1: job 2",
            Verdict.CORRECT,
        ),
        ({"kind": "matching", "jobs": 4}, None, "applicant 0: job 1", Verdict.WRONG),
        (
            {"kind": "matching", "jobs": 4},
            None,
            "applicant 0: job 1\napplicant 0: job 2",
            Verdict.WRONG,
        ),
        (
            {"kind": "matching", "jobs": 4},
            None,
            "applicant 0: job 2\napplicant 1: job 2",
            Verdict.WRONG,
        ),
        (
            {"kind": "matching", "jobs": 4},
            None,
            "applicant 0: job 0\napplicant 1: job 2",
            Verdict.WRONG,
        ),
        ({"kind": "matching", "jobs": 4}, None, "2 of them", Verdict.NO_ANSWER),
        (
            {"kind": "flow", "pair": [0, 2]},
            None,
            "The flow from node 0 to node 2 is 6.",
            Verdict.CORRECT,
        ),
        (
            {"kind": "flow", "pair": [0, 2]},
            None,
            "The flow from node 0 to node 1 is 6.",
            Verdict.WRONG,
        ),
        ({"kind": "flow", "pair": [0, 2]}, None, "The flow is 5.", Verdict.WRONG),
        ({"kind": "flow", "pair": [0, 2]}, None, "much", Verdict.NO_ANSWER),
        ({"kind": "cycle"}, None, "No", Verdict.WRONG),
        ({"kind": "cycle"}, None, "perhaps", Verdict.NO_ANSWER),
    ],
)
def test_answers_are_judged_against_the_graph(payload, answer, text, verdict):
    edges = {
        "matching": [[0, 1], [0, 2], [1, 2]],
        "shortest": [[0, 1, 1], [1, 2, 2], [0, 2, 5], [0, 3, 1]],
        "flow": [[0, 1, 1], [1, 2, 2], [0, 2, 5], [0, 3, 1]],
    }.get(payload["kind"], [[0, 1], [1, 2], [0, 2], [0, 3]])
    problem = asked("nlgraph", {"nodes": 4, "edges": edges, **payload}, answer)

    assert task("nlgraph").score(problem, text).verdict == verdict


def test_nlgraph_answers_a_bare_no_where_no_path_visits_every_node():
    problem = asked("nlgraph", {"kind": "hamilton", "nodes": 3, "edges": [[0, 1]]})

    assert task("nlgraph").solve(problem, 0) == "No"


def test_embeddings_must_all_be_there_and_right():
    payload = {
        "kind": "gnn",
        "nodes": 2,
        "edges": [[0, 1]],
        "embeddings": [[1, 0], [2, 3]],
        "layers": 1,
    }
    problem = asked("nlgraph", payload)

    texts = [
        "node 0: [2,3]\nnode 1: [1,0]",
        "node 0: [2,3]",
        "node 0: [2,3]\nnode 1: [1,1]",
        "nothing",
    ]
    verdicts = [task("nlgraph").score(problem, text).verdict for text in texts]

    assert verdicts == [Verdict.CORRECT, Verdict.WRONG, Verdict.WRONG, Verdict.NO_ANSWER]


def sample(seed, kind):
    rng = Random(seed)
    return GraphQuestion.from_payload(
        draw_question(rng, kind, rng.randint(*SPANS.get(kind, SPANS["wide"])[seed % 3]))
    )


def as_graph(question, cls=nx.Graph):
    graph = cls()
    graph.add_nodes_from(range(question.n))
    for a, b, weight in question.weighted_edges:
        graph.add_edge(a, b, weight=weight, capacity=weight)
    return graph


@pytest.mark.parametrize("seed", range(30))
def test_solutions_agree_with_networkx(seed):
    question = sample(seed, "shortest")
    path = lightest_path(question.weighted_edges, *question.pair)
    assert path[0] == nx.shortest_path_length(as_graph(question), *question.pair, weight="weight")

    question = sample(seed, "cycle")
    assert (solve_question(question)[0] == "Yes") == bool(nx.cycle_basis(as_graph(question)))

    question = sample(seed, "triplet")
    triangles = [group for group in nx.enumerate_all_cliques(as_graph(question)) if len(group) == 3]
    assert int(solve_question(question)[0]) == max(
        (sum(question.weights[node] for node in group) for group in triangles), default=0
    )

    question = sample(seed, "matching")
    both = nx.Graph([(("a", a), ("j", b)) for a, b in question.pairs])
    top = [node for node in both if node[0] == "a"]
    assert (
        len(max_matching(question.pairs))
        == len(nx.bipartite.maximum_matching(both, top_nodes=top)) // 2
    )


@pytest.mark.parametrize("seed", range(30))
def test_solutions_agree_with_trying_everything(seed):
    question = sample(seed - seed % 3, "flow")
    source, sink = question.pair
    sides = [side for side in product((0, 1), repeat=question.n) if side[source] > side[sink]]
    cuts = [sum(w for a, b, w in question.weighted_edges if side[a] > side[b]) for side in sides]
    assert int(solve_question(question)[0]) == min(cuts)

    question = sample(seed - seed % 3, "bipartite")
    sides = product((0, 1), repeat=question.n)
    has_two_sides = any(all(side[a] != side[b] for a, b in question.pairs) for side in sides)
    assert (solve_question(question)[0] == "Yes") == has_two_sides

    question = sample(seed, "connectivity")
    reached = distance(bitsets(question.n, question.pairs), *question.pair)
    assert (solve_question(question)[0] == "Yes") == (reached is not None)

    question = sample(seed - seed % 3, "substructure")
    choices = permutations(range(question.n), question.pattern_n)
    is_there = any(
        {(nodes[a], nodes[b]) for a, b in question.pattern} <= set(question.pairs)
        for nodes in choices
    )
    assert (solve_question(question)[0] == "Yes") == is_there

    question = sample(seed, "topology")
    order = json.loads(solve_question(question)[0])
    assert sorted(order) == list(range(question.n))
    assert all(order.index(a) < order.index(b) for a, b in question.pairs)


@pytest.mark.parametrize("seed", range(20))
def test_paths_components_and_diameters_agree_with_networkx(seed):
    question = sample(seed, "connectivity")
    around, graph = bitsets(question.n, question.pairs), as_graph(question)

    assert len(components(around)) == nx.number_connected_components(graph)
    for node in range(question.n):
        length = nx.shortest_path_length(graph, 0, node) if nx.has_path(graph, 0, node) else None
        assert distance(around, 0, node) == length
        found = shortest_path(around, 0, node)
        assert (found.value if found else None) == length
    if nx.is_connected(graph):
        assert diameter(around).value == nx.diameter(graph)


def brute_hamilton(around):
    """Let every set of nodes keep the nodes a path through it can end at."""
    n = len(around)
    ends = [0] * (1 << n)
    for mask in range(1, 1 << n):
        for node in range(n):
            rest = mask ^ 1 << node
            if mask >> node & 1 and (not rest or ends[rest] & around[node]):
                ends[mask] |= 1 << node
    return ends[-1] != 0


@pytest.mark.parametrize("seed", range(30))
def test_hamiltonian_paths_are_found_just_where_they_exist(seed):
    question = sample(seed, "hamilton")
    around = bitsets(question.n, question.pairs)

    path, _ = hamiltonian_path(around)

    assert (path is not None) == brute_hamilton(around)
    if path:
        assert sorted(path) == list(range(question.n))
        assert all(around[a] >> b & 1 for a, b in pairwise(path))


def test_a_cycle_has_no_order_and_parted_nodes_no_path():
    assert lightest_path([(0, 1, 1)], 0, 2) is None
    assert shortest_path(bitsets(3, [(0, 1)]), 0, 2) is None
    assert (
        solve_question(
            GraphQuestion.from_payload({"kind": "topology", "nodes": 2, "edges": [[0, 1], [1, 0]]})
        )[0]
        == "No"
    )


HOSTILE = (
    *(
        "1,",
        "1",
        "is ",
        "yes no ",
        "node 0: [1,",
        "(1,2)",
        "###",
        "applicant 1: job ",
        " ",
        "answer ",
        "1 - ",
    ),
    *("there is a ", "the answer is 1 or ", "1\n", "a=1\n", "yes\n", "from node 1 to node 2 is "),
)


@pytest.mark.parametrize("text", [piece * (60_000 // len(piece)) for piece in HOSTILE])
def test_hostile_texts_take_no_time(text):
    begun = time.process_time()
    (
        read_yes_no(text),
        read_final_number(text),
        read_walk(text),
        read_assignments(text),
        read_table_rows(text),
    )

    assert time.process_time() - begun < 2.0


SQUARE = {"kind": "connectivity", "nodes": 5, "edges": [[0, 1], [1, 2], [2, 3]], "pair": [0, 3]}


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("The answer is yes.", Verdict.CORRECT),
        ("The path is 0 -> 1 -> 2 -> 3, so the answer is yes.", Verdict.CORRECT),
        ("The path from one to the other: [3, 2, 1, 0].\nThe answer is yes.", Verdict.CORRECT),
        ("Nodes 0, 3, 1, 2 are one block and 4 is alone. The answer is yes.", Verdict.CORRECT),
        ("Yes. The path can be: 0,3,1,2", Verdict.WRONG),
        ("Yes. The path can be: 0,1,2,3,9", Verdict.WRONG),
        ("We can follow the path [0->2->3], so the answer is yes.", Verdict.WRONG),
        ("The path 0,2,3 would need an edge that is not there. The answer is no.", Verdict.WRONG),
    ],
)
def test_a_path_that_is_shown_for_a_yes_must_be_one_of_this_graph(text, verdict):
    assert task("nlgraph").score(asked("nlgraph", SQUARE, "Yes"), text).verdict == verdict


def test_graph_wiz_asks_for_a_yes_alone_and_a_wrong_path_beside_it_is_not_held_against_it():
    problem = asked("graphwiz", {**SQUARE, "kind": "connectivity"}, "Yes")
    assert (
        task("graphwiz").score(problem, "The path is [0,2,3].\n### Yes").verdict == Verdict.CORRECT
    )
