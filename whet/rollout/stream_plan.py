"""The plan of a stream: a number for every group that a run trains on, and the groups in flight;
and its ledger: which groups of the plan were asked, answered, trained and dropped in each step.

Rows of the ledger are only appended. A run that continues from a checkpoint records that, and
groups that it had trained on since then do not count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from whet.rollout.collect import GroupRequest
from whet.types import Group, Json, Problem, Rollout, Tokens, read_integer

STREAM_EVENT = "stream"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """The events of a step: groups by their numbers in the plan."""

    step: int
    asked: Sequence[int]
    answered: Sequence[int]
    trained: Sequence[int]
    dropped: Mapping[int, str]
    """The reason for each group."""

    def to_json(self) -> dict[str, Json]:
        return {
            "step": self.step,
            "asked": write_ranges(self.asked),
            "answered": write_ranges(self.answered),
            "trained": write_ranges(self.trained),
            "dropped": {str(number): reason for number, reason in self.dropped.items()},
        }


@dataclass(slots=True, kw_only=True)
class StreamLedger:
    """The rows of a run, added up."""

    trained: dict[int, int] = field(default_factory=dict)
    """The step that trained each group."""
    twice: list[int] = field(default_factory=list)
    """Groups that were trained on more than once; always empty."""
    num_dropped: int = 0

    def is_complete(self, plan: int) -> bool:
        """Whether each group of a plan of this size was trained on exactly once."""
        return sorted(self.trained) == list(range(plan)) and not self.twice


def read_stream(events: Iterable[Mapping[str, Json]]) -> StreamLedger:
    """Add up the rows among the events of a run."""
    ledger = StreamLedger()
    before = ledger
    for row in events:
        match row.get("event"):
            case "resume":
                before = ledger
                ledger = StreamLedger(num_dropped=ledger.num_dropped)
            case "continue":
                step = read_integer(row.get("step"))
                ledger.trained = {n: at for n, at in before.trained.items() if at <= step}
                ledger.twice = [n for n in before.twice if n in ledger.trained]
            case "stream":
                _add(ledger, row)
    return ledger


def _add(ledger: StreamLedger, row: Mapping[str, Json]) -> None:
    step = read_integer(row.get("step"))
    for number in read_ranges(str(row.get("trained"))):
        if number in ledger.trained:
            ledger.twice.append(number)
        ledger.trained[number] = step
    dropped = row.get("dropped")
    ledger.num_dropped += len(dropped) if isinstance(dropped, dict) else 0


def write_ranges(numbers: Iterable[int]) -> str:
    """Write numbers as ranges, in order.

    >>> write_ranges([7, 1, 2, 3])
    '1-3 7'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return " ".join("-".join(str(number) for number in run) for run in runs)


def read_ranges(text: str) -> list[int]:
    """Read what `write_ranges` wrote.

    >>> read_ranges("1-3 7")
    [1, 2, 3, 7]
    """
    numbers: list[int] = []
    for run in text.split():
        first, _, last = run.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
