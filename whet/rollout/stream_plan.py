"""The plan of a stream: a number for every group that a run trains on, and the groups in flight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from whet.rollout.collect import GroupRequest
from whet.types import Group, Problem, Rollout, Tokens


class StreamRecipe(Protocol):
    """What a recipe decides about the groups of a stream."""

    def take_problems(self, step: int) -> Sequence[Problem]:
        """Return the problems planned for a step; called once per step, in order."""
        ...

    def build_request(self, number: int, problem: Problem) -> GroupRequest:
        """Build the request for a number of the plan, which becomes the request's index."""
        ...

    def reward(self, group: Group) -> Group:
        """Reward the responses of a finished group."""
        ...

    def is_pause(self, step: int) -> bool:
        """Whether something else needs the engine after this many steps."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamPlan:
    """The problems of a stream, and how old its groups may get."""

    recipe: StreamRecipe
    steps: int
    per_step: int
    lag: int
    seed: int
    problems: Mapping[str, Problem]
    """All problems that `take_problems` may return, by id."""

    def num_asked(self, step: int, depth: int) -> int:
        """Return how many groups to have requested by a step, with those of `depth` steps in
        flight: at most `lag` + 1, or some would get too old."""
        return min(self.steps, step + min(depth, self.lag + 1)) * self.per_step


@dataclass(slots=True, kw_only=True, eq=False)
class PlannedGroup:
    """One group of the plan in flight."""

    number: int
    problem: Problem
    num_drops: int = 0
    asked_at: int | None = None
    """The version of the weights when it was requested; None before that."""
    request: GroupRequest | None = None
    prompt: Tokens | None = None
    graded: dict[str, Rollout] = field(default_factory=dict)
    group: Group | None = None

    @property
    def version(self) -> int:
        """The version that sampled the oldest token of a finished group."""
        assert self.group is not None, "only a finished group has a version"
        return min(rollout.completion.policy_version for rollout in self.group)

    def reset(self) -> None:
        """Drop the responses, so that the problem is sampled again."""
        self.asked_at = None
        self.graded = {}
        self.group = None
