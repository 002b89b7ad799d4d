"""Which problems come when: all mixed, in stages by level, or by the pass rates that the run itself
has seen.

A curriculum is settings and pure functions of a step. `whet/data/feed.py` walks over problems by
it.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from whet.config import Config
from whet.errors import DataError
from whet.types import Problem


class Stage(Config):
    """A part of a run that has problems and limits of its own."""

    min_level: float = Field(default=0.0, ge=0.0, le=1.0)
    """Problems from this level on, itself included."""
    max_level: float = Field(default=1.0, ge=0.0, le=1.0)
    """Problems of these levels, both included; one without a level is in no stage."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest answer; None is sampling.max_tokens, which is also the most that counts."""
    temperature: float | None = Field(default=None, gt=0.0)
    """None leaves it to sampling.temperature and final_temperature."""

    def holds(self, problem: Problem) -> bool:
        return problem.level is not None and self.min_level <= problem.level <= self.max_level


class Curriculum(Config):
    """What all have in common; by itself it mixes all problems."""

    easy_tokens: int | None = Field(default=None, ge=1)
    """Longest answer to a problem of level 0; from there it grows in a line with the level. None is
    one for all."""

    def pools(self, problems: Sequence[Problem]) -> list[list[Problem]]:
        """List the problems of each stage."""
        return [list(problems)]

    def stage_at(self, step: int, steps: int) -> int:
        """Number the stage of a step of `steps`, from 0."""
        return 0

    def limits(self, step: int, steps: int) -> Stage:
        """Say what the stage of a step limits."""
        return Stage()

    @property
    def sets_temperature(self) -> bool:
        """Whether every stage has a temperature of its own."""
        return False

    def is_wanted(self, rate: float) -> bool:
        """Whether to ask a problem again, by the pass rate seen so far."""
        return True

    def temperature(self, step: int, steps: int, first: float, last: float | None) -> float:
        """Give the temperature of a step: its stage's own, or one that goes to the last by a
        constant factor a step.

        >>> [Mixed().temperature(step, 3, 1.0, 0.25) for step in range(3)]
        [1.0, 0.5, 0.25]
        """
        own = self.limits(step, steps).temperature
        if own is not None:
            return own
        return (
            first
            if last is None or steps == 1
            else float(first * (last / first) ** (step / (steps - 1)))
        )

    def max_tokens(self, problem: Problem, step: int, steps: int, limit: int) -> int:
        """Give the longest answer to a problem; `limit` is that of a stage that says nothing.

        >>> from whet.types import Problem
        >>> half = Problem(id="p", task="t", prompt=(), answer=None, payload={}, level=0.5, split="rl", source="")
        >>> Mixed(easy_tokens=100).max_tokens(half, 0, 1, 300)
        200
        """
        longest = min(self.limits(step, steps).max_tokens or limit, limit)
        if self.easy_tokens is None or problem.level is None:
            return longest
        shortest = min(self.easy_tokens, longest)
        return round(shortest + problem.level * (longest - shortest))


class Mixed(Curriculum):
    """Every problem once an epoch, in an order fixed by the seed."""

    kind: Literal["mixed"] = "mixed"


class Staged(Curriculum):
    """Stages one after another, each for an equal part of the steps."""

    kind: Literal["staged"]
    stages: list[Stage] = Field(min_length=1)
    """The stages, in order."""
    shuffled: bool = False
    """Take exactly the rows of all stages, in one mixed order and at the run's own limits: the
    control experiment."""

    @model_validator(mode="after")
    def _levels(self) -> "Staged":
        for number, stage in enumerate(self.stages):
            if stage.min_level > stage.max_level:
                raise ValueError(
                    f"stages.{number}.min_level = {stage.min_level} should not be above its max_level = "
                    f"{stage.max_level}"
                )
        return self

    def pools(self, problems: Sequence[Problem]) -> list[list[Problem]]:
        found = [[problem for problem in problems if stage.holds(problem)] for stage in self.stages]
        for number, (stage, pool) in enumerate(zip(self.stages, found, strict=True)):
            if not pool:
                levels = sorted(problem.level for problem in problems if problem.level is not None)
                seen = (
                    f"their levels go from {levels[0]:g} to {levels[-1]:g}"
                    if levels
                    else "they have no levels"
                )
                raise DataError(
                    f"curriculum.stages.{number} wants levels from {stage.min_level:g} to {stage.max_level:g}, and "
                    f"none of the {len(problems):,} problems is of such a level: {seen}"
                )
        return found

    def stage_at(self, step: int, steps: int) -> int:
        """Number the stage of a step.

        >>> curriculum = Staged(kind="staged", stages=[Stage(), Stage(), Stage()])
        >>> [curriculum.stage_at(step, 6) for step in range(6)]
        [0, 0, 1, 1, 2, 2]
        """
        return step * len(self.stages) // steps

    @property
    def sets_temperature(self) -> bool:
        own = [stage.temperature for stage in self.stages]
        return not self.shuffled and None not in own

    def limits(self, step: int, steps: int) -> Stage:
        return Stage() if self.shuffled else self.stages[self.stage_at(step, steps)]


class Band(Curriculum):
    """Problems that are sometimes solved: one whose pass rate lies outside the band rests for some
    epochs.

    What has not been asked yet is always wanted. The rate is the run's own, of the last groups.
    """

    kind: Literal["band"]
    low: float = Field(default=0.0, ge=0.0, le=1.0)
    """Wanted are pass rates above this."""
    high: float = Field(default=1.0, ge=0.0, le=1.0)
    """Wanted are pass rates below this; 0 and 1 leave out what is never and what is always solved."""
    rest: int = Field(default=2, ge=0)
    """Epochs in which a problem outside the band is passed over before it is asked again."""

    @model_validator(mode="after")
    def _bounds(self) -> "Band":
        if self.low >= self.high:
            raise ValueError(f"low = {self.low} should be below high = {self.high}")
        return self

    def is_wanted(self, rate: float) -> bool:
        return self.low < rate < self.high


CurriculumConfig = Annotated[Mixed | Staged | Band, Field(discriminator="kind")]
