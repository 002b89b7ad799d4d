"""What tasks with an optimum share: a grader that states value, optimum and feasibility, and gold
answers."""

from collections.abc import Mapping
from typing import Literal

from whet.tasks.graphs.drawn import DrawnTask, split_of
from whet.tasks.graphs.node_lists import Reply, final_part
from whet.tasks.graphs.solvers.found import Found
from whet.tasks.graphs.sources import Payload
from whet.types import Json, Message, Problem, Score, Verdict

NO_VALUE = -1.0
"""The part `value` of an answer that is not feasible, or not there."""


class GraphTask(DrawnTask):
    """A task with a best answer. Each says how to solve and ask it, and how to read and value an
    answer."""

    goal: Literal["max", "min"]

    def question(self, payload: Mapping[str, Json]) -> str:
        raise NotImplementedError

    def best(self, payload: Mapping[str, Json]) -> Found:
        """Solve to the optimum, or to the node limit."""
        raise NotImplementedError

    def write(self, payload: Mapping[str, Json], found: Found) -> str:
        """Write a solution as answers are written."""
        raise NotImplementedError

    def read(self, payload: Mapping[str, Json], text: str) -> Reply | None:
        raise NotImplementedError

    def value(self, payload: Mapping[str, Json], reply: Reply) -> float | str:
        """Value an answer, or say in one line why it is none."""
        raise NotImplementedError

    def score(self, problem: Problem, text: str) -> Score:
        """State the parts `correct`, `feasible`, `value` (-1 without one), `optimum` and `quality`,
        their ratio."""
        question = problem.prompt[-1].content if problem.prompt else ""
        optimum, is_proven = self._optimum(problem.payload)
        reply = self.read(problem.payload, final_part(text, question))
        if reply is None:
            note = "no list in square brackets as final answer"
            return Score(verdict=Verdict.NO_ANSWER, parts=_parts(NO_VALUE, optimum, 0.0), note=note)
        value = self._valued(problem.payload, reply, optimum)
        if isinstance(value, str):
            return Score(
                verdict=Verdict.WRONG,
                parts=_parts(NO_VALUE, optimum, 0.0),
                answer=reply.text,
                note=value,
            )
        is_right = value <= optimum if self.goal == "min" else value >= optimum
        parts = _parts(value, optimum, quality(value, optimum, self.goal)) | {
            "correct": float(is_right)
        }
        known = "the optimum" if is_proven else "the best known"
        note = (
            f"{value:g} is {known}"
            if is_right
            else f"feasible with {value:g}, but {known} is {optimum:g}"
        )
        verdict = Verdict.CORRECT if is_right else Verdict.WRONG
        return Score(verdict=verdict, parts=parts, answer=reply.text, note=note)

    def solve(self, problem: Problem, seed: int) -> str:
        """Write an optimal answer, after one of three openings."""
        answer = problem.answer or self.write(problem.payload, self.best(problem.payload))
        value = self._optimum(problem.payload)[0]
        return ("The answer is: ", "Answer: ", f"The best value is {value:g}.\n\n")[
            seed % 3
        ] + answer

    def made(self, payload: Payload, level: float, id: str) -> Problem:
        found = self.best(payload)
        return Problem(
            id=id,
            task=self.name,
            prompt=(Message(role="user", content=self.question(payload)),),
            answer=self.write(payload, found),
            payload={
                **payload,
                "optimum": found.value,
                "proven": found.is_proven,
                "nodes_searched": found.nodes,
            },
            level=level,
            split=split_of(id),
            source=self.name,
        )

    def _optimum(self, payload: Mapping[str, Json]) -> tuple[float, bool]:
        optimum = payload.get("optimum")
        if isinstance(optimum, int | float) and not isinstance(optimum, bool):
            return float(optimum), payload.get("proven") is not False
        found = self.best(payload)
        return float(found.value), found.is_proven

    def _valued(self, payload: Mapping[str, Json], reply: Reply, optimum: float) -> float | str:
        if reply.unknown:
            return f"{reply.unknown[0][:80]!r} is not in the graph"
        if not any(reply.lists):
            return 0.0 if not optimum else "the list is empty"
        return self.value(payload, reply)


def quality(value: float, optimum: float, goal: Literal["max", "min"]) -> float:
    """Compare a value with the optimum, from 0 to 1; where the least cost is 0, one is added to
    both.

    >>> quality(4, 2, "min"), quality(1, 4, "max"), quality(3, 0, "min"), quality(9, 4, "max")
    (0.5, 0.25, 0.25, 1.0)
    """
    small, large = (optimum, value) if goal == "min" else (value, optimum)
    if goal == "min" and optimum == 0:
        small = 1.0
        large = value + 1.0
    return min(max(small / large, 0.0), 1.0) if large > 0 else 1.0


def _parts(value: float, optimum: float, quality: float) -> dict[str, float]:
    feasible = float(value != NO_VALUE)
    return {
        "correct": 0.0,
        "feasible": feasible,
        "value": float(value),
        "optimum": optimum,
        "quality": quality,
    }
