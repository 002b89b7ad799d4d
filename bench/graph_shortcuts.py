"""Measure players of graph_logic that look at the words next to the start and follow no chain.

    python bench/graph_shortcuts.py --problems 4000

prints, for each level, the chance of a blind pick and the share each player gets right, and fails
where the best is more than three points above chance.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from whet.level_bands import NUM_LEVELS
from whet.tasks.logic.graph_logic import GraphLogic
from whet.types import Problem

MARGIN = 0.03


@dataclass(frozen=True, slots=True)
class Graph:
    edges: list[tuple[str, str]]
    start: str
    goal: str
    after: dict[str, list[str]]
    before: dict[str, list[str]]

    @classmethod
    def from_problem(cls, problem: Problem) -> "Graph":
        rows = problem.payload["edges"]
        assert isinstance(rows, list), "a problem holds its edges"
        edges = [(str(row[0]), str(row[1])) for row in rows if isinstance(row, list)]
        after: dict[str, list[str]] = {}
        before: dict[str, list[str]] = {}
        for a, b in edges:
            after.setdefault(a, []).append(b)
            before.setdefault(b, []).append(a)
        start, goal = (str(problem.payload[key]) for key in ("start", "goal"))
        return cls(edges, start, goal, after, before)


def count_next(graph: Graph, word: str) -> int:
    return len(graph.after.get(word, ()))


def count_before(graph: Graph, word: str) -> int:
    return len(graph.before.get(word, ()))


def is_implied(graph: Graph, word: str) -> bool:
    return word in graph.before


MEASURES: dict[str, Callable[[Graph, str], float]] = {
    "out-degree": count_next,
    "in-degree": count_before,
    "degree": lambda graph, word: count_next(graph, word) + count_before(graph, word),
    "implied by words that are implied": lambda graph, word: sum(
        is_implied(graph, other) for other in graph.before.get(word, ())
    ),
    "implied by words that are not implied": lambda graph, word: sum(
        not is_implied(graph, other) for other in graph.before.get(word, ())
    ),
    "implies words that imply something": lambda graph, word: sum(
        other in graph.after for other in graph.after.get(word, ())
    ),
    "out-degree of the words it implies": lambda graph, word: sum(
        count_next(graph, other) for other in graph.after.get(word, ())
    ),
    "in-degree of the words it implies": lambda graph, word: sum(
        count_before(graph, other) for other in graph.after.get(word, ())
    ),
    "out-degree of the words that imply it": lambda graph, word: sum(
        count_next(graph, other) for other in graph.before.get(word, ())
    ),
    "shares a word before it with the goal": lambda graph, word: len(
        set(graph.before.get(word, ())) & set(graph.before.get(graph.goal, ()))
    ),
    "shares a word after it with the goal": lambda graph, word: len(
        set(graph.after.get(word, ())) & set(graph.after.get(graph.goal, ()))
    ),
    "place in the text": lambda graph, word: graph.edges.index((graph.start, word)),
    "place of its first mention": lambda graph, word: next(
        index for index, edge in enumerate(graph.edges) if word in edge
    ),
    "place of its last mention": lambda graph, word: max(
        index for index, edge in enumerate(graph.edges) if word in edge
    ),
    "distance in the text from the goal": lambda graph, word: min(
        abs(graph.edges.index((graph.start, word)) - index)
        for index, edge in enumerate(graph.edges)
        if graph.goal in edge
    ),
    "length of the word": lambda graph, word: len(word),
    "letters shared with the goal": lambda graph, word: len(set(word) & set(graph.goal)),
    "alphabetical rank": lambda graph, word: sum(
        other < word for other in graph.after[graph.start]
    ),
}
"""What a player may look at; one takes the word with the least of it, another that with the most."""


def play(problem: Problem) -> tuple[dict[str, float], float]:
    """Give every player's expected share on one problem, ties drawn by lot, and that of chance."""
    graph = Graph.from_problem(problem)
    words = graph.after[graph.start]
    shares = {}
    for name, measure in MEASURES.items():
        values = {word: measure(graph, word) for word in words}
        for kind, pick in (("least", min), ("most", max)):
            best = [word for word in words if values[word] == pick(values.values())]
            shares[f"{kind} {name}"] = (problem.answer in best) / len(best)
    return shares, 1 / len(words)


def measure_level(level: int, num_problems: int, seed: int) -> tuple[dict[str, float], float]:
    """Average the shares over the problems of a level."""
    task = GraphLogic()
    totals: dict[str, float] = {}
    chance = 0.0
    for index in range(num_problems):
        problem = task.generate(seed + index, (level + 0.5) / NUM_LEVELS)
        shares, blind = play(problem)
        chance += blind / num_problems
        for name, share in shares.items():
            totals[name] = totals.get(name, 0.0) + share / num_problems
    return totals, chance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    worst = 0.0
    for level in range(NUM_LEVELS):
        shares, chance = measure_level(level, options.problems, options.seed)
        name, best = max(shares.items(), key=lambda item: item[1])
        worst = max(worst, best - chance)
        print(
            f"level {level + 1}: {options.problems} problems, {len(shares)} players, "
            f"chance {chance:.1%}, best {best:.1%} ({name})",
            flush=True,
        )
    if worst > MARGIN:
        raise SystemExit(f"a player is {100 * worst:.1f} points above chance")


if __name__ == "__main__":
    main()
