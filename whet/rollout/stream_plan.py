"""The plan of a stream: a number for every group that a run trains on, and the groups in flight."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from whet.rollout.collect import GroupRequest
from whet.types import Group, Problem, Rollout, Tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamPlan:
    """What a stream asks for, and how old it may get."""

    steps: int
    per_step: int
    lag: int
    seed: int
    take: Callable[[int], Sequence[Problem]]
    """Step -> the problems that are planned for it; called once for each step, in order."""
    request: Callable[[int, Problem], GroupRequest]
    """Number, problem -> what is asked; its index is the number."""
    reward: Callable[[Group], Group]
    problems: Mapping[str, Problem]
    """All that `take` may give, by their ids."""
    is_pause: Callable[[int], bool]
    """Whether something else needs the engine after this many steps."""

    def num_asked(self, step: int, depth: int) -> int:
        """Return how many groups have been asked for when a step chooses its own, and `depth` steps
        are under way: no more than `lag` + 1, or some would get too old."""
        return min(self.steps, step + min(depth, self.lag + 1)) * self.per_step


@dataclass(slots=True, kw_only=True, eq=False)
class Ticket:
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
        """Forget the answers; the problem is to be asked again."""
        self.asked_at = None
        self.graded = {}
        self.group = None
