"""Our solvers against CP-SAT, an independent one, on many seeded graphs."""

import subprocess
import sys
from itertools import combinations, permutations
from random import Random

import pytest
from ortools.sat.python import cp_model

from whet.tasks.graphs.molecules import draw_molecule, edit_cost, make_molecule, min_edit
from whet.tasks.graphs.paths import bitsets, shortest_tour, tour_length
from whet.tasks.graphs.subgraphs import (
    are_isomorphic,
    induce,
    max_clique,
    max_common_subgraph,
    max_independent_set,
    min_vertex_cover,
)


def optimum(model):
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def random_graph(seed, *, largest=24):
    rng = Random(seed)
    n = rng.randint(1, largest)
    density = rng.choice([0.1, 0.3, 0.5, 0.8])
    return n, [pair for pair in combinations(range(n), 2) if rng.random() < density]


def chosen_where(n, edges, *, at_most_one, most):
    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in range(n)]
    for a, b in edges:
        model.add(taken[a] + taken[b] <= 1) if at_most_one else model.add(taken[a] + taken[b] >= 1)
    model.maximize(sum(taken)) if most else model.minimize(sum(taken))
    return optimum(model)


@pytest.mark.parametrize("seed", range(80))
def test_sets_of_nodes_are_as_large_as_cp_sat_finds_them(seed):
    n, edges = random_graph(seed)
    around = bitsets(n, edges)
    missing = [pair for pair in combinations(range(n), 2) if pair not in set(edges)]

    clique, independent, cover = (
        max_clique(around),
        max_independent_set(around),
        min_vertex_cover(around),
    )

    assert (
        clique.value
        == len(clique.lists[0])
        == chosen_where(n, missing, at_most_one=True, most=True)
    )
    assert (
        independent.value
        == len(independent.lists[0])
        == chosen_where(n, edges, at_most_one=True, most=True)
    )
    assert (
        cover.value == len(cover.lists[0]) == chosen_where(n, edges, at_most_one=False, most=False)
    )
    assert all(
        set(pair) <= set(edge_ends(edges, pair)) for pair in combinations(clique.lists[0], 2)
    )
    assert not any(set(edge) <= set(independent.lists[0]) for edge in edges)
    assert all(set(edge) & set(cover.lists[0]) for edge in edges)
    assert clique.is_proven and independent.is_proven and cover.is_proven


def edge_ends(edges, pair):
    return pair if pair in edges or pair[::-1] in edges else ()


@pytest.mark.parametrize("seed", range(40))
def test_tours_are_as_short_as_cp_sat_finds_them(seed):
    rng = Random(seed)
    n = rng.randint(3, 12)
    distances = [[0] * n for _ in range(n)]
    for a, b in combinations(range(n), 2):
        distances[a][b] = distances[b][a] = rng.randint(1, 20000)

    found = shortest_tour(distances)

    model = cp_model.CpModel()
    arcs = [(a, b, model.new_bool_var("")) for a, b in permutations(range(n), 2)]
    model.add_circuit(arcs)
    model.minimize(sum(distances[a][b] * taken for a, b, taken in arcs))
    assert found.value == tour_length(found.lists[0], distances) == optimum(model)
    assert (
        sorted(found.lists[0][1:]) == list(range(n))
        and found.lists[0][0] == found.lists[0][-1] == 0
    )


def pairing_model(n, m):
    model = cp_model.CpModel()
    pair = [[model.new_bool_var("") for _ in range(m)] for _ in range(n)]
    for row in pair:
        model.add(sum(row) <= 1)
    for column in zip(*pair, strict=True):
        model.add(sum(column) <= 1)
    return model, pair


def drawn(seed, size):
    return make_molecule(*draw_molecule(Random(seed), size))


@pytest.mark.parametrize("seed", range(30))
def test_edit_costs_are_as_low_as_cp_sat_finds_them(seed):
    n = 4 + seed % 6
    first, second = drawn(seed, n), drawn(seed + 1000, n)
    (labels_a, _, a), (labels_b, _, b) = first, second

    found = min_edit(first, second)

    model, pair = pairing_model(n, n)
    model.add(sum(map(sum, pair)) == n)
    kept = []
    for i, j in combinations(range(n), 2):
        for k, m in permutations(range(n), 2):
            if a[i] >> j & 1 and b[k] >> m & 1:
                both = model.new_bool_var("")
                model.add_bool_and(pair[i][k], pair[j][m]).only_enforce_if(both)
                kept.append(both)
    changed = sum(pair[i][k] for i in range(n) for k in range(n) if labels_a[i] != labels_b[k])
    bonds = sum(mask.bit_count() for mask in (*a, *b)) // 2
    model.minimize(changed + bonds - 2 * sum(kept))
    assert found.value == edit_cost(found.lists[0], first, second) == optimum(model)
    assert found.is_proven


@pytest.mark.parametrize("seed", range(60))
def test_common_subgraphs_are_as_large_as_cp_sat_finds_them(seed):
    n, m = 4 + seed % 6, 4 + seed % 5
    if seed % 2:
        a, b = drawn(seed, n).neighbours, drawn(seed + 1000, m).neighbours
    else:
        rng = Random(seed)
        a, b = (
            bitsets(k, [pair for pair in combinations(range(k), 2) if rng.random() < 0.5])
            for k in (n, m)
        )

    found = max_common_subgraph(a, b)

    model, pair = pairing_model(n, m)
    for i, j in combinations(range(n), 2):
        for k, o in permutations(range(m), 2):
            if (a[i] >> j & 1) != (b[k] >> o & 1):
                model.add(pair[i][k] + pair[j][o] <= 1)
    model.maximize(sum(map(sum, pair)))
    left, right = found.lists
    assert found.value == len(left) == len(right) == optimum(model)
    assert induce(a, left) == induce(b, right)


@pytest.mark.parametrize("seed", range(40))
def test_a_renumbered_graph_is_isomorphic_and_one_with_a_moved_edge_is_mostly_not(seed):
    rng = Random(seed)
    n, edges = random_graph(seed, largest=12)
    order = rng.sample(range(n), n)
    moved = bitsets(n, [(order[a], order[b]) for a, b in edges])

    assert are_isomorphic(bitsets(n, edges), moved) is True
    if edges:
        assert (
            are_isomorphic(
                bitsets(n, edges), bitsets(n, [(order[a], order[b]) for a, b in edges[1:]])
            )
            is False
        )


def test_graphs_with_the_same_degrees_can_differ():
    six_ring = bitsets(6, [(k, (k + 1) % 6) for k in range(6)])
    two_triangles = bitsets(6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)])

    assert are_isomorphic(six_ring, two_triangles) is False
    assert are_isomorphic(six_ring, six_ring[:5]) is False


def test_an_isomorphism_search_that_is_cut_short_says_that_it_does_not_know():
    ring = bitsets(12, [(k, (k + 1) % 12) for k in range(12)])

    assert are_isomorphic(ring, ring, limit=3) is None


def test_searches_that_reach_their_limit_are_not_proven():
    n, edges = 30, [pair for pair in combinations(range(30), 2) if Random(str(pair)).random() < 0.5]
    around = bitsets(n, edges)
    first, second = drawn(1, 12), drawn(2, 12)

    assert not max_clique(around, limit=3).is_proven
    assert not max_common_subgraph(around, bitsets(n, edges[::2]), limit=50).is_proven
    cut = min_edit(first, second, limit=5)
    assert not cut.is_proven
    assert sorted(cut.lists[0]) == list(range(12))
    assert cut.value == edit_cost(cut.lists[0], first, second)


def test_a_tour_of_more_cities_than_the_table_holds_is_good_but_not_proven():
    places = [(Random(k).random(), Random(k + 99).random()) for k in range(25)]
    distances = [[round(1000 * abs(complex(*a) - complex(*b))) for b in places] for a in places]

    found = shortest_tour(distances)

    assert not found.is_proven
    assert sorted(found.lists[0][1:]) == list(range(25))
    assert found.value < tour_length([*range(25), 0], distances)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_the_smallest_tours(n):
    found = shortest_tour([[0, 7], [7, 0]][:n] if n == 2 else [[0]] * n)

    assert found.value == (14 if n == 2 else 0)
    assert found.is_proven


def test_the_tasks_are_listed_without_loading_scipy_or_networkx():
    program = "import sys, whet.tasks.registry as r; [r.build_default_task(name) for name in r.TASKS]; print({'scipy', 'networkx'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
