"""Graph tasks with an optimal answer: how problems are drawn, graded and solved.

Each problem is a record of functions in `problems` or `molecules`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from random import Random
from typing import Literal

from pydantic import Field

from whet.config import Config
from whet.rng import derive, make_rng
from whet.tasks.base import Task, check_split
from whet.tasks.generated import question, split_of_id
from whet.tasks.graphs.instance import Sizes
from whet.tasks.graphs.molecules import MOLECULE_PROBLEMS
from whet.tasks.graphs.node_lists import final_part, find_other_choice
from whet.tasks.graphs.paths import Solution
from whet.tasks.graphs.problems import GRAPH_PROBLEMS, Goal
from whet.tasks.graphs.sources import Payload
from whet.types import Json, Message, Problem, Score, Split, Verdict, content_id

NO_VALUE = -1.0
"""The part `value` of an answer that is missing or not feasible."""
_MAX_CHOICES = 16
_PROBLEMS = GRAPH_PROBLEMS | MOLECULE_PROBLEMS


class DrawnConfig(Config):
    """Settings of every graph task."""

    count: int = Field(default=1000, ge=1)
    """Problems in each split."""
    level: tuple[float, float] | None = None
    """Lowest and highest level; none means all, from 0 to 1."""
    sizes: Literal["levels", "easy", "hard"] = "levels"
    """Five ranges of sizes by level, or one of GraphArena's two."""
    seed: int = 0
    """Another seed gives other problems; the split of a problem does not depend on it."""


class GraphConfig(DrawnConfig):
    name: Literal[
        "tsp", "ged", "mcp", "mis", "mvc", "mcs", "neighbor", "distance", "connected", "diameter"
    ]


class DrawnTask(Task):
    """A task that draws payloads from seeded streams, each with a known level."""

    config: DrawnConfig
    sizes: Sizes

    def draw(self, rng: Random, level: float, size: int) -> Payload | None:
        """Draw a payload of a level and a size; None if the draw is unusable."""
        raise NotImplementedError

    def answer(self, payload: Payload) -> tuple[str, str, Payload]:
        """Write the question and answer for a payload, with facts about the solution."""
        raise NotImplementedError

    def problems(self, split: Split) -> Iterator[Problem]:
        """Draw the problems whose content hashes to a split, for any seed."""
        check_split(split)
        seen: set[str] = set()
        for index in count():
            if len(seen) >= self.config.count:
                return
            payload, level = self._draw(derive(self.config.seed, self.name, split, index), None)
            id = content_id(self.name, payload)
            if split_of_id(id) == split and id not in seen:
                seen.add(id)
                yield self._make(payload, level)

    def generate(
        self, seed: int, level: float | None = None, split: Split | None = None
    ) -> Problem:
        """Draw one problem, the same for the same arguments; with a split, draw until one belongs
        to it."""
        if split is not None:
            check_split(split)
        problem = self._make(*self._draw(derive(seed, self.name, "generate"), level))
        attempts = count(1)
        while split not in (None, problem.split):
            own = derive(seed, self.name, "generate", next(attempts))
            problem = self._make(*self._draw(own, level))
        return problem

    def _make(self, payload: Payload, level: float) -> Problem:
        """Make a problem whose id is the hash of its payload, without facts about the solution."""
        id = content_id(self.name, payload)
        prompt, answer, facts = self.answer(payload)
        full = {**payload, **facts}
        split = split_of_id(id)
        made = question(self.name, prompt, answer=answer, payload=full, level=level, split=split)
        return replace(made, id=id)

    def _draw(self, seed: int, level: float | None) -> tuple[Payload, float]:
        rng = make_rng(seed, "graph")
        while True:
            size, rated = self._draw_size(rng, level)
            payload = self.draw(rng, rated, size)
            if payload is not None:
                return payload, rated

    def _draw_size(self, rng: Random, level: float | None) -> tuple[int, float]:
        if level is None and self.config.sizes != "levels":
            easy_or_hard = self.sizes.easy if self.config.sizes == "easy" else self.sizes.hard
            size = rng.randint(*easy_or_hard)
            return size, self.sizes.level(size)
        level = rng.uniform(*(self.config.level or (0.0, 1.0))) if level is None else level
        level = min(max(level, 0.0), 1.0)
        return self.sizes.at(level), level


class GraphTask(DrawnTask):
    """One of GraphArena's ten problems: drawn, solved to the optimum, and graded against it."""

    def __init__(self, config: GraphConfig) -> None:
        self.config = config
        self.name = config.name
        self.problem = _PROBLEMS[config.name]
        self.sizes = self.problem.sizes
        self.has_one_answer = self.problem.has_one_answer

    def draw(self, rng: Random, level: float, size: int) -> Payload | None:
        return self.problem.draw(rng, size)

    def answer(self, payload: Payload) -> tuple[str, str, Payload]:
        solution = self.best(payload)
        facts: Payload = {
            "optimum": solution.value,
            "proven": solution.is_proven,
            "nodes_searched": solution.nodes,
        }
        graph = self.problem.parse(payload)
        return self.problem.ask(graph), self.problem.write(graph, solution), facts

    def best(self, payload: Mapping[str, Json]) -> Solution:
        """Solve to the optimum, or to the node limit."""
        return self.problem.best(self.problem.parse(payload))

    def score(self, problem: Problem, text: str) -> Score:
        """Grade the final list of a response.

        Parts: `correct`, `feasible`, `value` (-1 without one), `optimum`, and `quality`, the ratio
        of the two.
        """
        prompt = problem.prompt[-1].content if problem.prompt else ""
        nodes = problem.payload.get("nodes")
        names = [str(node) for node in nodes] if isinstance(nodes, list) else []
        shown = final_part(text, prompt, names)
        score = self._score_list(problem, shown)
        for _ in range(_MAX_CHOICES):
            other = find_other_choice(shown, num_lists=self.problem.num_lists)
            if other is None or score.verdict is not Verdict.CORRECT:
                break
            # If there are several lists, all must be right.
            shown = other
            score = self._score_list(problem, shown)
        return score

    def _score_list(self, problem: Problem, shown: str) -> Score:
        optimum, is_proven = self._optimum(problem.payload)
        parts = dict.fromkeys(("correct", "feasible", "value", "optimum", "quality"), 0.0)
        parts |= {"value": NO_VALUE, "optimum": optimum}
        graph = self.problem.parse(problem.payload)
        reply = self.problem.read(graph, shown)
        if reply is None:
            note = "no list in square brackets as final answer"
            return Score(verdict=Verdict.NO_ANSWER, parts=parts, note=note)
        if reply.unknown:
            value: float | str = f"{reply.unknown[0][:80]!r} is not in the graph"
        elif any(reply.lists):
            value = self.problem.value(graph, *reply.lists)
        else:
            value = "the list is empty" if optimum else 0.0
        if isinstance(value, str):
            return Score(verdict=Verdict.WRONG, parts=parts, answer=reply.text, note=value)
        goal = self.problem.goal
        is_right = value <= optimum if goal == "min" else value >= optimum
        parts |= {
            "correct": float(is_right),
            "feasible": 1.0,
            "value": float(value),
            "quality": quality(value, optimum, goal),
        }
        known = "the optimum" if is_proven else "the best known"
        note = f"feasible with {value:g}, but {known} is {optimum:g}"
        if is_right:
            note = f"{value:g} is {known}"
        verdict = Verdict.CORRECT if is_right else Verdict.WRONG
        return Score(verdict=verdict, parts=parts, answer=reply.text, note=note)

    def solve(self, problem: Problem, seed: int) -> str:
        """Write an optimal answer, after one of three openings."""
        payload = problem.payload
        graph = self.problem.parse(payload)
        answer = problem.answer or self.problem.write(graph, self.problem.best(graph))
        best = f"The best value is {self._optimum(payload)[0]:g}.\n\n"
        return ("The answer is: ", "Answer: ", best)[seed % 3] + answer

    def vary(self, problem: Problem, seed: int) -> Problem:
        """Shuffle the nodes and edges of a drawn graph; problems from files stay as they are."""
        nodes = problem.payload.get("nodes")
        edges = problem.payload.get("edges")
        is_drawn = problem.source == self.name
        if not is_drawn or not isinstance(nodes, list) or not isinstance(edges, list):
            return problem
        rng = make_rng(seed, self.name, "vary", problem.id)
        payload: dict[str, Json] = {**problem.payload}
        payload |= {"nodes": rng.sample(nodes, len(nodes)), "edges": rng.sample(edges, len(edges))}
        prompt = (Message(role="user", content=self.problem.ask(self.problem.parse(payload))),)
        return replace(problem, payload=payload, prompt=prompt)

    def _optimum(self, payload: Mapping[str, Json]) -> tuple[float, bool]:
        optimum = payload.get("optimum")
        if isinstance(optimum, int | float) and not isinstance(optimum, bool):
            return float(optimum), payload.get("proven") is not False
        solution = self.best(payload)
        return float(solution.value), solution.is_proven


def quality(value: float, optimum: float, goal: Goal) -> float:
    """Compare a value with the optimum, from 0 to 1; if the least cost is 0, add one to both.

    >>> quality(4, 2, "min"), quality(1, 4, "max"), quality(3, 0, "min"), quality(9, 4, "max")
    (0.5, 0.25, 0.25, 1.0)
    """
    small, large = (optimum, value) if goal == "min" else (value, optimum)
    if goal == "min" and optimum == 0:
        small = 1.0
        large = value + 1.0
    return min(max(small / large, 0.0), 1.0) if large > 0 else 1.0
