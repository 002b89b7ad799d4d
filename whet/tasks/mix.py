"""Several tasks as one: their problems in turn, each graded by the task it belongs to."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from whet.errors import DataError
from whet.tasks.base import StepNote, Task
from whet.types import Problem, Score, Split


class Mix(Task):
    """Hands every problem to the part that it names as its task."""

    name = "mix"
    has_one_answer = False

    def __init__(self, parts: Sequence[Task]) -> None:
        self._parts = {part.name: part for part in parts}
        assert len(self._parts) == len(parts) > 0, "the parts of a mix have different names"

    @property
    def parts(self) -> tuple[Task, ...]:
        return tuple(self._parts.values())

    def problems(self, split: Split) -> Iterator[Problem]:
        """List one problem of each part, then the next of each; a part with fewer ends earlier."""
        for row in zip_longest(*(part.problems(split) for part in self.parts)):
            yield from (problem for problem in row if problem is not None)

    def score(self, problem: Problem, text: str) -> Score:
        return self._of(problem).score(problem, text)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return self._of(problem).solve(problem, seed)

    def parse_question(self, question: str) -> Problem | None:
        """Ask the first part that takes the question."""
        problems = (part.parse_question(question) for part in self.parts)
        return next((problem for problem in problems if problem is not None), None)

    def vary(self, problem: Problem, seed: int) -> Problem:
        return self._of(problem).vary(problem, seed)

    def notes(self, problem: Problem, text: str) -> Sequence[StepNote]:
        return self._of(problem).notes(problem, text)

    def _of(self, problem: Problem) -> Task:
        if problem.task not in self._parts:
            known = ", ".join(self._parts)
            raise DataError(
                f"problem {problem.id} is of the task {problem.task!r}, and the mix has {known}"
            )
        return self._parts[problem.task]
