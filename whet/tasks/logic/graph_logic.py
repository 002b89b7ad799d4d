"""Graph implication: everyone who is A is B, ...; what is the next step from what someone is to
what is to be shown?

answer   the word of the next step payload  {"edges": [[word, word], ...], "start": word, "goal":
word}, for reading only

The graph is a handful of chains of the same length that leave the start, one of which reaches the
goal, further implications between them, and others that lead to the goal from what nobody is; only
following a chain from one end to the other tells which is right.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import Task
from whet.tasks.generated import GeneratedConfig, fifth, first, level_of, question, split_of, spread
from whet.tasks.logic.words import PEOPLE, invented
from whet.types import Json, Problem, Score, Split

Edge = tuple[str, str]

_SHAPES: tuple[tuple[int, int, int], ...] = (
    (2, 2, 1),
    (3, 2, 3),
    (5, 3, 8),
    (9, 3, 16),
    (16, 4, 32),
)
"""Look-ahead, chains, and further implications in each fifth of difficulty."""
_ASK = (
    "{facts} {name} is {start}. We want to show, one implication at a time, that {name} is {goal}. "
    "What is the next step: what else is {name}, on the way to {goal}? "
    "End with that one word between answer tags: <answer>word</answer>"
)


class GraphLogicConfig(GeneratedConfig):
    name: Literal["graph_logic"] = "graph_logic"


class GraphLogic(Task):
    """Generated implication graphs with exactly one right next step, proved by search, and an exact
    grader."""

    name = "graph_logic"
    is_bounded = True

    def __init__(self, config: GraphLogicConfig | None = None) -> None:
        self.config = config or GraphLogicConfig()

    def problems(self, split: Split) -> Iterator[Problem]:
        return spread(self, self.config, split)

    def generate(
        self, seed: int, level: float | None = None, split: Split | None = None
    ) -> Problem:
        place = level_of(seed, level)
        return first(self.name, seed, lambda rng: self._drawn(rng, place, split))

    def score(self, problem: Problem, text: str) -> Score:
        """Compare one word, case aside. Parts: `correct` 0 or 1."""
        gold = word_of(problem.answer or "")
        if gold is None:
            raise DataError(
                f"problem {problem.id} needs one word as its answer, not {problem.answer!r}"
            )
        found = read_final(text, word_of)
        if found is None:
            return no_answer()
        is_right = found[1] == gold
        return to_score(
            is_right,
            {},
            found[0],
            "the next step" if is_right else f"the next step is not {found[1]}"[:100],
        )

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f"<answer>{problem.answer}</answer>"

    def _drawn(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        ahead, num_chains, num_more = _SHAPES[fifth(level)]
        words = invented(rng, 1 + ahead * num_chains + num_more)
        start = words[0]
        chains = [words[1 + i * ahead :][:ahead] for i in range(num_chains)]
        goal = chains[0][-1]
        edges = _edges(start, chains, words[-num_more:], rng)
        home = split_of(self.name, [start, goal])
        if split not in (None, home):
            return None
        steps = next_steps(edges, start, goal)
        assert steps == [chains[0][0]], "only the first chain reaches the goal"
        name = rng.choice(PEOPLE)
        facts = " ".join(f"Everyone who is {a} is {b}." for a, b in edges)
        asked = _ASK.format(facts=facts, name=name, start=start, goal=goal)
        payload: dict[str, Json] = {
            "edges": [[a, b] for a, b in edges],
            "start": start,
            "goal": goal,
        }
        return question(self.name, asked, answer=steps[0], payload=payload, level=level, split=home)


def word_of(text: str) -> str | None:
    """Read one word, alone or as `Ada is blomish`, with or without a full stop; None where it is
    anything else."""
    words = text.strip("\"'`*").removesuffix(".").split()
    if len(words) == 3 and words[1] == "is":
        words = words[2:]
    word = words[0].strip("\"'`*").casefold() if len(words) == 1 else ""
    return word if word.isalpha() and len(word) <= 40 else None


def next_steps(edges: Sequence[Edge], start: str, goal: str) -> list[str]:
    """List what follows from the start in one step and leads on to the goal."""
    back: dict[str, list[str]] = {}
    for a, b in edges:
        back.setdefault(b, []).append(a)
    reaching = {goal}
    fringe = [goal]
    while fringe:
        for word in back.get(fringe.pop(), ()):
            if word not in reaching:
                reaching.add(word)
                fringe.append(word)
    return [b for a, b in edges if a == start and b in reaching]


def _edges(
    start: str, chains: Sequence[Sequence[str]], strays: Sequence[str], rng: Random
) -> list[Edge]:
    """Lay the chains; then for each stray word one edge out of a chain, and one from the stray word
    into any chain.

    Nothing leads into a stray word, nor from another chain into the first, so the right step stays
    the only one.
    """
    edges = {(a, b) for chain in chains for a, b in zip((start, *chain), chain, strict=False)}
    for stray in strays:
        edges.add((stray, rng.choice(rng.choice(chains))))
        source = rng.choice(rng.choice(chains))
        target = rng.choice(rng.choice(chains[1:]))
        if source != target:
            edges.add((source, target))
    found = sorted(edges)
    rng.shuffle(found)
    return found
