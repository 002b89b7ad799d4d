"""Gathering for a training step: which problems get more answers or are replaced, and batches
sampled ahead. Engine and learner share their weights and take turns, so a lag is a queue.

Nothing is sampled here: `sample` in `whet/recipes/rl.py` asks `GatherConfig` for the next request.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from pydantic import Field

from whet.config import Config
from whet.errors import DataError
from whet.rollout.collect import GroupRequest, siblings
from whet.store.rollouts import read_rollouts, write_rollouts
from whet.types import Finish, Group, Json, are_equal, rewards_of
from whet.world import get_world


class GatherConfig(Config):
    """Which answers a step gathers, and which of them it trains on."""

    refill: int | None = Field(default=None, ge=0)
    """Dynamic sampling (DAPO): groups of equal reward are left out, and up to this many more
    problems per step are asked in their place; None keeps them."""
    first: int | None = Field(default=None, ge=2)
    """Answers to sample first; the others of a group follow only where the first differ in reward,
    or one of them could not be graded. None samples all at once."""
    mask_unfinished: bool = False
    """Leave answers cut at the length limit out of the loss; their rewards still count for their
    siblings."""

    def num_to_ask(self, groups: Sequence[Group], problems: int) -> int:
        """Return how many problems a step of `problems` asks next, after `groups`.

        First it asks all, then others in place of groups of equal reward, within the budget.
        """
        if not groups:
            return problems
        missing = problems - len(self.choose_groups(groups))
        budget = problems + (self.refill or 0) - len(groups)
        return max(0, min(missing, budget))

    def first_requests(self, requests: Sequence[GroupRequest]) -> list[GroupRequest]:
        """Return the requests for the answers to sample first."""
        return [replace(request, numbers=request.numbers[: self.first]) for request in requests]

    def later_requests(
        self, requests: Sequence[GroupRequest], groups: Sequence[Group]
    ) -> list[GroupRequest]:
        """Return the requests for the others of a group, where its first answers call for them."""
        if self.first is None:
            return []
        return [
            replace(request, numbers=request.numbers[self.first :])
            for request, group in zip(requests, groups, strict=True)
            if not are_equal(rewards_of(group)) or len(rewards_of(group)) < len(group)
        ]

    def choose_groups(self, groups: Sequence[Group]) -> list[Group]:
        """Choose the groups to train on."""
        if self.refill is None:
            return list(groups)
        return [group for group in groups if not are_equal(rewards_of(group))]

    def masked_ids(self, groups: Sequence[Group]) -> set[str]:
        """Return the ids of rollouts without a loss of their own."""
        rollouts = [rollout for group in groups for rollout in group]
        return {
            r.id for r in rollouts if self.mask_unfinished and r.completion.finish is Finish.LENGTH
        }

    def even(self, groups: Sequence[Group]) -> list[Group]:
        """Cut all groups to the first answers, so that completed ones do not bias metrics."""
        return [group[: self.first] for group in groups]

    def metrics(
        self, groups: Sequence[Group], step: int, *, problems: int, samples: int
    ) -> dict[str, float]:
        """Count the effects of the active settings on a step."""
        trained = self.choose_groups(groups)
        metrics = {
            "sampling/lag": fmean(
                step - rollout.completion.version for group in groups for rollout in group
            )
        }
        if self.refill is not None:
            metrics |= {
                "groups/extra": float(len(groups) - problems),
                "groups/trained": float(len(trained)),
            }
        if self.first is not None:
            metrics["groups/stopped"] = fmean(len(group) < samples for group in groups)
        if self.mask_unfinished:
            metrics["length/masked"] = float(len(self.masked_ids(trained)))
        return metrics


def join_groups(groups: Sequence[Group], later: Sequence[Group]) -> list[Group]:
    """Add later answers to their groups; a group in two phases is the group of one."""
    by_name = {group[0].group: group for group in later}
    return [group + by_name.get(group[0].group, ()) for group in groups]


Sample = Callable[[int], list[Group]]
"""Step -> its groups, sampled with the current weights."""


class RolloutQueue:
    """Batches of rollouts, each sampled `lag` steps early; checkpoints hold the queue."""

    def __init__(self, sample: Sample, *, steps: int, lag: int) -> None:
        self.sample = sample
        self.steps = steps
        self.lag = lag
        self._waiting: deque[list[Group]] = deque()

    def take(self, step: int) -> list[Group]:
        """Return the batch of a step, after sampling those up to `lag` steps ahead."""
        while len(self._waiting) <= self.lag and step + len(self._waiting) < self.steps:
            self._waiting.append(self.sample(step + len(self._waiting)))
        return self._waiting.popleft()

    def drop(self) -> None:
        """Empty the queue, once the weights that sampled it have been replaced."""
        self._waiting.clear()

    def save(self, folder: Path) -> Json:
        for index, groups in enumerate(self._waiting if get_world().is_first else ()):
            write_rollouts(_file(folder, index), groups)
        return len(self._waiting)

    def load(self, folder: Path, state: Json) -> None:
        if not isinstance(state, int):
            raise DataError(
                f"checkpoint {folder} does not say how many batches wait: begin the run again"
            )
        self._waiting = deque(
            siblings(read_rollouts(_file(folder, index))) for index in range(state)
        )


def _file(folder: Path, index: int) -> Path:
    return folder / f"waiting-{index:03d}.parquet"
