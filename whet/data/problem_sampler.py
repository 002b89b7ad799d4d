"""The stream of problems to train on: a curriculum, and an order fixed by the seed.

A curriculum may use the pass rates so far, which checkpoints contain.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, model_validator

from whet.config import Config
from whet.data.difficulty import read_pass_rates
from whet.errors import DataError
from whet.rng import make_rng
from whet.types import Group, Json, Metrics, Problem, Verdict, read_integer, read_number

T = TypeVar("T")


class EpochSampler(Generic[T]):
    """An endless stream of items, reshuffled each epoch; its only state is a position."""

    def __init__(self, items: Sequence[T], seed: int, *, name: str = "epoch") -> None:
        self.items = tuple(items)
        self.seed = seed
        self.name = name
        self._orders: dict[int, list[int]] = {}

    def item_at(self, position: int) -> T:
        """Return the item at a position of the endless stream."""
        epoch, index = divmod(position, len(self.items))
        if epoch not in self._orders:
            order = list(range(len(self.items)))
            make_rng(self.seed, self.name, epoch).shuffle(order)
            self._orders = {epoch: order}
        return self.items[self._orders[epoch][index]]

    def batch_at(self, step: int, count: int) -> list[T]:
        """Return the batch of a step from its number alone, so a resumed run needs no state."""
        return [self.item_at(position) for position in range(step * count, (step + 1) * count)]


class CurriculumStage(Config):
    """A part of a run with its own problems and limits: an entry of `stages`."""

    min_level: float = Field(default=0.0, ge=0.0, le=1.0)
    """Lowest level of its problems."""
    max_level: float = Field(default=1.0, ge=0.0, le=1.0)
    """Highest level of its problems; a problem without a level is in no stage."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest response; none is sampling.max_tokens, which is also the upper limit."""
    temperature: float | None = Field(default=None, gt=0.0)
    """Sampling temperature; none leaves it to sampling.temperature and final_temperature."""

    def contains(self, problem: Problem) -> bool:
        return problem.level is not None and self.min_level <= problem.level <= self.max_level


NO_LIMITS = CurriculumStage()


class Curriculum(Config):
    """Base class of curricula; by itself it mixes all problems."""

    easy_tokens: int | None = Field(default=None, ge=1)
    """Longest response to a problem of level 0; it grows linearly with the level; none means the
    same limit for all."""

    needs_pass_rates: ClassVar[bool] = False
    """Whether the sampler keeps pass rates, which `is_wanted` then decides by."""

    def build_samplers(
        self, problems: Sequence[Problem], *, seed: int, steps: int, per_step: int
    ) -> list[EpochSampler[Problem]]:
        """Make a sampler for each stage."""
        return [EpochSampler(problems, seed)]

    def stage_at(self, step: int, steps: int) -> int:
        """Return the index of the stage, and so of its sampler, at one of `steps` steps."""
        return 0

    def limits(self, step: int, steps: int) -> CurriculumStage:
        """Return the limits of the stage at a step."""
        return NO_LIMITS

    def initial_rates(self) -> dict[str, float]:
        """Return the pass rates known before the run, by problem id."""
        return {}

    def initial_rest(self, rng: Random) -> int:
        """Return for how many epochs a problem in `initial_rates` has already been skipped."""
        return 0

    def is_wanted(self, rate: float) -> bool:
        """Whether to ask a problem again, given its pass rate so far."""
        return True

    def is_rest_over(self, rests: int) -> bool:
        """Whether to ask an unwanted problem anyway, at turn `rests` since its last responses."""
        return True

    def metrics(self, step: int, steps: int, num_passed_over: int) -> Metrics:
        """Report the state of the curriculum."""
        return {}

    @property
    def sets_temperature(self) -> bool:
        """Whether every stage has its own temperature."""
        return False

    def temperature(self, step: int, steps: int, first: float, last: float | None) -> float:
        """Return the temperature of a step: its stage's, or one on an exponential path.

        >>> [MixedCurriculum().temperature(step, 3, 1.0, 0.25) for step in range(3)]
        [1.0, 0.5, 0.25]
        """
        fixed = self.limits(step, steps).temperature
        if fixed is not None:
            return fixed
        if last is None or steps == 1:
            return first
        return float(first * (last / first) ** (step / (steps - 1)))

    def max_tokens(self, problem: Problem, step: int, steps: int, limit: int) -> int:
        """Return the longest response to a problem; `limit` holds where the stage sets none.

        >>> from dataclasses import replace
        >>> from whet.testing.fakes import sum_problem
        >>> half = replace(sum_problem(1, 2), level=0.5)
        >>> MixedCurriculum(easy_tokens=100).max_tokens(half, 0, 1, 300)
        200
        """
        longest = min(self.limits(step, steps).max_tokens or limit, limit)
        if self.easy_tokens is None or problem.level is None:
            return longest
        shortest = min(self.easy_tokens, longest)
        return round(shortest + problem.level * (longest - shortest))


class MixedCurriculum(Curriculum):
    """Every problem once an epoch, in an order fixed by the seed."""

    kind: Literal["mixed"] = "mixed"


class StagedCurriculum(Curriculum):
    """Stages one after another, each for an equal part of the steps."""

    kind: Literal["staged"]
    stages: list[CurriculumStage] = Field(min_length=1)
    """The stages, in order."""
    shuffled: bool = False
    """Train on exactly the rows of all stages, but mixed and with the run's own limits: the control
    experiment."""

    @model_validator(mode="after")
    def _refuse_empty_range(self) -> "StagedCurriculum":
        for number, stage in enumerate(self.stages):
            if stage.min_level > stage.max_level:
                raise ValueError(
                    f"stages.{number}.min_level = {stage.min_level} should not be above its "
                    f"max_level = {stage.max_level}"
                )
        return self

    def build_samplers(
        self, problems: Sequence[Problem], *, seed: int, steps: int, per_step: int
    ) -> list[EpochSampler[Problem]]:
        samplers = [EpochSampler(pool, seed) for pool in self._pools(problems)]
        if not self.shuffled:
            return samplers
        stages = [self._scheduled(step, steps) for step in range(steps)]
        rows = [
            sampler.item_at(position)
            for stage, sampler in enumerate(samplers)
            for position in range(stages.count(stage) * per_step)
        ]
        return [EpochSampler(rows, seed)]

    def _pools(self, problems: Sequence[Problem]) -> list[list[Problem]]:
        """List the problems of each stage."""
        pools = [
            [problem for problem in problems if stage.contains(problem)] for stage in self.stages
        ]
        for number, (stage, pool) in enumerate(zip(self.stages, pools, strict=True)):
            if not pool:
                levels = sorted(problem.level for problem in problems if problem.level is not None)
                seen = "they have no levels"
                if levels:
                    seen = f"their levels go from {levels[0]:g} to {levels[-1]:g}"
                raise DataError(
                    f"curriculum.stages.{number} wants levels from {stage.min_level:g} to "
                    f"{stage.max_level:g}, and none of the {len(problems):,} problems is of such "
                    f"a level: {seen}"
                )
        return pools

    def stage_at(self, step: int, steps: int) -> int:
        """Return the index of the stage at a step; the control experiment has one for all.

        >>> curriculum = StagedCurriculum(kind="staged", stages=[CurriculumStage()] * 3)
        >>> [curriculum.stage_at(step, 6) for step in range(6)]
        [0, 0, 1, 1, 2, 2]
        """
        return 0 if self.shuffled else self._scheduled(step, steps)

    def _scheduled(self, step: int, steps: int) -> int:
        return step * len(self.stages) // steps

    @property
    def sets_temperature(self) -> bool:
        return not self.shuffled and None not in [stage.temperature for stage in self.stages]

    def limits(self, step: int, steps: int) -> CurriculumStage:
        return NO_LIMITS if self.shuffled else self.stages[self.stage_at(step, steps)]

    def metrics(self, step: int, steps: int, num_passed_over: int) -> Metrics:
        return {"curriculum/stage": float(self.stage_at(step, steps) + 1)}


class PassRateCurriculum(Curriculum):
    """Problems that the model solves sometimes; one outside the band rests for some epochs.

    A problem without a rate is always wanted. The rate is that of the run's last groups, or before
    the first of them that of a difficulty map.
    """

    needs_pass_rates: ClassVar[bool] = True
    kind: Literal["band"]
    low: float = Field(default=0.0, ge=0.0, le=1.0)
    """Only problems with a pass rate above this are asked."""
    high: float = Field(default=1.0, ge=0.0, le=1.0)
    """Only problems with a pass rate below this are asked; 0 and 1 leave out problems never or
    always solved."""
    rest: int = Field(default=2, ge=0)
    """Epochs for which a problem outside the band is skipped before it is asked again."""
    difficulty: str | None = None
    """A difficulty map (`whet data difficulty`) with the rates that problems start with; none
    starts without rates."""
    difficulty_model: str | None = None
    """The model in the map whose rates are used; none adds up all models."""

    @model_validator(mode="after")
    def _refuse_empty_range(self) -> "PassRateCurriculum":
        if self.low >= self.high:
            raise ValueError(f"low = {self.low} should be below high = {self.high}")
        return self

    def without_effect(self) -> dict[str, str]:
        return {} if self.difficulty else {"difficulty_model": "there is no difficulty map"}

    def initial_rates(self) -> dict[str, float]:
        if self.difficulty is None:
            return {}
        return read_pass_rates(Path(self.difficulty), self.difficulty_model)

    def initial_rest(self, rng: Random) -> int:
        """Draw at random, so that problems outside the band do not all come back in one epoch."""
        return rng.randint(0, self.rest)

    def is_wanted(self, rate: float) -> bool:
        return self.low < rate < self.high

    def is_rest_over(self, rests: int) -> bool:
        return rests > self.rest

    def metrics(self, step: int, steps: int, num_passed_over: int) -> Metrics:
        return {"curriculum/passed_over": float(num_passed_over)}


CurriculumConfig = Annotated[
    MixedCurriculum | StagedCurriculum | PassRateCurriculum, Field(discriminator="kind")
]


_DECAY = 0.5
"""Fraction of earlier groups in a problem's pass rate."""


class ProblemSampler:
    """Problems of each step; `save` holds all state besides the settings."""

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
        self.curriculum = MixedCurriculum() if curriculum is None else curriculum
        self._samplers = self.curriculum.build_samplers(
            self.problems, seed=seed, steps=steps, per_step=per_step
        )
        self._positions = [0] * len(self._samplers)
        self._rates = self.curriculum.initial_rates()
        rng = make_rng(seed, "rests")
        self._rests = {id: self.curriculum.initial_rest(rng) for id in self._rates}
        self._num_passed_over = 0

    def take(self, count: int, step: int = 0) -> list[Problem]:
        """Take the next problems of a step's stage; one may come twice where two epochs meet."""
        stage = self.curriculum.stage_at(step, self.steps)
        taken: list[Problem] = []
        while len(taken) < count:
            problem = self._samplers[stage].item_at(self._positions[stage])
            self._positions[stage] += 1
            if self._is_due(problem.id):
                taken.append(problem)
        return taken

    def observe(self, groups: Sequence[Group]) -> None:
        """Record how often the problems of a step were solved, over graded responses."""
        if not self.curriculum.needs_pass_rates:
            return
        for group in groups:
            verdicts = [rollout.score.verdict for rollout in group if rollout.score is not None]
            graded = [verdict for verdict in verdicts if verdict is not Verdict.UNSCORED]
            if graded:
                id = group[0].problem.id
                rate = graded.count(Verdict.CORRECT) / len(graded)
                self._rates[id] = _DECAY * self._rates.get(id, rate) + (1 - _DECAY) * rate
                self._rests[id] = 0

    def metrics(self, step: int) -> Metrics:
        """Report the state of the curriculum; nothing if all problems are mixed."""
        return self.curriculum.metrics(step, self.steps, self._num_passed_over)

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
                self._positions = [read_integer(position) for position in positions]
                self._rates = {id: read_number(rate) for id, rate in rates.items()}
                self._rests = {id: read_integer(count) for id, count in rests.items()}
                self._num_passed_over = num
            case _:
                reason = "does not record the position in the problems"
                raise DataError(f"checkpoint {folder} {reason}: start the run again")

    def _is_due(self, id: str) -> bool:
        """Whether to ask a problem now; an unwanted one is skipped, but not forever."""
        if id not in self._rates or self.curriculum.is_wanted(self._rates[id]):
            return True
        self._rests[id] += 1
        is_rest_over = self.curriculum.is_rest_over(self._rests[id])
        self._num_passed_over += not is_rest_over
        return is_rest_over
