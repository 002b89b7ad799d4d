"""The plan of a stream: a number for every group that a run trains on, and the groups in flight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from whet.rollout.collect import GroupRequest
from whet.types import Group, Problem, Rollout, Tokens


class StreamRecipe(Protocol):
    """What a recipe decides about the groups of a stream."""

    def take_problems(self, step: int) -> Sequence[Problem]:
        """Return the problems that are planned for a step; called once for each, in order."""
        ...

    def build_request(self, number: int, problem: Problem) -> GroupRequest:
        """Return what is asked for a number of the plan, which is the index of the request."""
        ...

    def reward(self, group: Group) -> Group:
        """Reward the responses of a finished group."""
        ...

    def is_pause(self, step: int) -> bool:
        """Whether something else needs the engine after this many steps."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamPlan:
    """What a stream asks for, and how old it may get."""

    recipe: StreamRecipe
    steps: int
    per_step: int
    lag: int
    seed: int
    problems: Mapping[str, Problem]
    """All that `take_problems` may give, by their ids."""

    def num_asked(self, step: int, depth: int) -> int:
        """Return how many groups have been asked for when a step chooses its own, and `depth` steps
        are under way: no more than `lag` + 1, or some would get too old."""
        return min(self.steps, step + min(depth, self.lag + 1)) * self.per_step


@dataclass(slots=True, kw_only=True, eq=False)
class PlannedGroup:
    """One group of the plan in flight."""

    number: int
    problem: Problem
    num_drops: int = 0
    asked_at: int | None = None
    """The version of the weights at that time; None if it is to be asked."""
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
        """Forget the responses; the problem is to be asked again."""
        self.asked_at = None
        self.graded = {}
        self.group = None
