"""The stream of problems a run trains on, in an order fixed by the seed and, for a band, by what
the run has seen."""

from collections.abc import Sequence
from pathlib import Path

from whet.data.curriculum import Band, Curriculum, Mixed, Staged
from whet.errors import DataError
from whet.rng import stream
from whet.types import Group, Json, Problem, Verdict

MEMORY = 0.5
"""Share of what was seen before in a problem's pass rate."""


class Walk:
    """An endless walk over problems, reshuffled each epoch: a position says it all."""

    def __init__(self, problems: Sequence[Problem], seed: int) -> None:
        self.problems = tuple(problems)
        self.seed = seed
        self._orders: dict[int, list[int]] = {}

    def at(self, position: int) -> Problem:
        epoch, index = divmod(position, len(self.problems))
        if epoch not in self._orders:
            order = list(range(len(self.problems)))
            stream(self.seed, "epoch", epoch).shuffle(order)
            self._orders = {epoch: order}
        return self.problems[self._orders[epoch][index]]


class Feed:
    """Problems step by step. All that it depends on besides the settings is in `save`, so that a
    run can resume."""

    def __init__(
        self,
        problems: Sequence[Problem],
        curriculum: Curriculum | None = None,
        *,
        seed: int,
        steps: int = 1,
        per_step: int = 1,
    ) -> None:
        if not problems:
            raise DataError(
                "there are no problems to train on: set `problems` to a folder that has some"
            )
        self.problems = tuple(problems)
        self.steps = steps
        self.curriculum = Mixed() if curriculum is None else curriculum
        self._walks = self._walk(seed, per_step)
        self._positions = [0] * len(self._walks)
        self._rates: dict[str, float] = {}
        self._rests: dict[str, int] = {}
        self._num_passed_over = 0

    def take(self, count: int, step: int = 0) -> list[Problem]:
        """Take the next problems of a step's stage; an epoch's end is crossed without repeating or
        leaving out any."""
        stage = self._stage(step)
        taken: list[Problem] = []
        while len(taken) < count:
            problem = self._walks[stage].at(self._positions[stage])
            self._positions[stage] += 1
            if self._is_due(problem.id):
                taken.append(problem)
        return taken

    def observe(self, groups: Sequence[Group]) -> None:
        """Note how often the problems of a step were solved; answers that could not be graded do
        not count."""
        for group in groups:
            verdicts = [rollout.score.verdict for rollout in group if rollout.score is not None]
            graded = [
                verdict is Verdict.CORRECT
                for verdict in verdicts
                if verdict is not Verdict.UNSCORED
            ]
            if graded and isinstance(self.curriculum, Band):
                id = group[0].problem.id
                rate = sum(graded) / len(graded)
                self._rates[id] = MEMORY * self._rates.get(id, rate) + (1 - MEMORY) * rate
                self._rests[id] = 0

    def metrics(self, step: int) -> dict[str, float]:
        """Say where the curriculum stands; nothing where all problems are mixed."""
        if isinstance(self.curriculum, Band):
            return {"curriculum/passed_over": float(self._num_passed_over)}
        return (
            {"curriculum/stage": float(self._stage(step) + 1)}
            if isinstance(self.curriculum, Staged)
            else {}
        )

    def save(self, folder: Path) -> Json:
        return {
            "positions": list(self._positions),
            "rates": dict(self._rates),
            "rests": dict(self._rests),
            "num_passed_over": self._num_passed_over,
        }

    def load(self, folder: Path, state: Json) -> None:
        match state:
            case {
                "positions": list(positions),
                "rates": dict(rates),
                "rests": dict(rests),
                "num_passed_over": int(num),
            }:
                self._positions = [int(str(position)) for position in positions]
                self._rates = {id: float(str(rate)) for id, rate in rates.items()}
                self._rests = {id: int(str(rest)) for id, rest in rests.items()}
                self._num_passed_over = num
            case _:
                raise DataError(
                    f"checkpoint {folder} does not say where the problems stand: begin the run again"
                )

    def _walk(self, seed: int, per_step: int) -> list[Walk]:
        walks = [Walk(pool, seed) for pool in self.curriculum.pools(self.problems)]
        if not isinstance(self.curriculum, Staged) or not self.curriculum.shuffled:
            return walks
        stages = [self.curriculum.stage_at(step, self.steps) for step in range(self.steps)]
        rows = [
            walk.at(position)
            for stage, walk in enumerate(walks)
            for position in range(stages.count(stage) * per_step)
        ]
        return [Walk(rows, seed)]

    def _stage(self, step: int) -> int:
        return 0 if len(self._walks) == 1 else self.curriculum.stage_at(step, self.steps)

    def _is_due(self, id: str) -> bool:
        """Whether a problem whose turn has come is asked; one that is not wanted rests, but not for
        ever."""
        if id not in self._rates or self.curriculum.is_wanted(self._rates[id]):
            return True
        self._rests[id] += 1
        is_rested = isinstance(self.curriculum, Band) and self._rests[id] > self.curriculum.rest
        self._num_passed_over += not is_rested
        return is_rested
