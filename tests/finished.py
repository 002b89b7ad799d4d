"""A task that even a tiny model solves now and then: end a response to the 24 game with an answer
in numbers."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from whet.tasks.game24 import Game24
from whet.types import Problem, Score, Split, Verdict

COUNTS: dict[Split, int] = {"rl": 12, "dev": 40}


class Finished(Game24):
    name = "finished"

    def problems(self, split: Split) -> Iterator[Problem]:
        return islice(super().problems(split), COUNTS.get(split, 20))

    def score(self, problem: Problem, text: str) -> Score:
        score = super().score(problem, text)
        is_right = score.parts["finished"] == 1 and any(
            sign.isdigit() for sign in score.answer or ""
        )
        return replace(
            score,
            verdict=Verdict.CORRECT if is_right else Verdict.WRONG,
            parts={**score.parts, "correct": float(is_right)},
        )

    def solve(self, problem: Problem, seed: int) -> None:  # type: ignore[override]
        """Give no gold: what is right for one problem is right for all, which the proof of graders
        would refuse."""
        return
