"""The groups of a step: which problems get more responses or are replaced, which groups are trained
on, and how many steps ahead of training they are sampled.

`DynamicSamplingConfig` decides within a step; a `GroupSource` hands the step its groups. An engine
that shares the learner's weights takes turns with it, so a lag is a queue. An engine with its own
weights samples while the learner trains: `OverlappedQueue`, and `StreamQueue` in
`whet/rollout/stream.py`.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Protocol

from pydantic import Field

from whet.config import Config
from whet.errors import DataError
from whet.rollout.collect import GroupRequest, group_rollouts
from whet.store.rollouts import read_rollouts, write_rollouts
from whet.track.metrics import Clock
from whet.types import FinishReason, Group, Json, Metrics, all_equal, rewards_of
from whet.world import get_world, world_of_thread


class DynamicSamplingConfig(Config):
    """Which responses a step samples, and which of them it trains on."""

    max_extra_problems: int | None = Field(default=None, ge=0)
    """Dynamic sampling (DAPO): groups of equal reward are left out, and up to this many more
    problems per step are sampled in their place; none keeps them."""
    first_samples: int | None = Field(default=None, ge=2)
    """Responses to sample first; the rest of a group follows only if these differ in reward or one
    could not be graded; none samples all at once."""
    mask_unfinished: bool = False
    """Leave responses cut at the length limit out of the loss; their rewards still count for their
    group."""

    def num_problems_needed(self, groups: Sequence[Group], problems: int) -> int:
        """Return how many problems a step of `problems` samples next, after `groups`.

        First all of them, then replacements for groups of equal reward, within the budget.
        """
        if not groups:
            return problems
        missing = problems - len(self.choose_groups(groups))
        budget = problems + (self.max_extra_problems or 0) - len(groups)
        return max(0, min(missing, budget))

    def first_requests(self, requests: Sequence[GroupRequest]) -> list[GroupRequest]:
        """Return the requests for the responses to sample first."""
        return [
            replace(request, sample_ids=request.sample_ids[: self.first_samples])
            for request in requests
        ]

    def later_requests(
        self, requests: Sequence[GroupRequest], groups: Sequence[Group]
    ) -> list[GroupRequest]:
        """Return requests for the rest of each group whose first responses call for it."""
        if self.first_samples is None:
            return []
        return [
            replace(request, sample_ids=request.sample_ids[self.first_samples :])
            for request, group in zip(requests, groups, strict=True)
            if not all_equal(rewards_of(group)) or len(rewards_of(group)) < len(group)
        ]

    def choose_groups(self, groups: Sequence[Group]) -> list[Group]:
        """Choose the groups to train on."""
        if self.max_extra_problems is None:
            return list(groups)
        return [group for group in groups if not all_equal(rewards_of(group))]

    def masked_ids(self, groups: Sequence[Group]) -> set[str]:
        """Return the ids of rollouts that have no loss."""
        rollouts = [rollout for group in groups for rollout in group]
        return {
            r.id
            for r in rollouts
            if self.mask_unfinished and r.completion.finish_reason is FinishReason.LENGTH
        }

    def first_responses(self, groups: Sequence[Group]) -> list[Group]:
        """Cut all groups to their first responses, so that completed groups do not bias metrics."""
        return [group[: self.first_samples] for group in groups]

    def metrics(
        self, groups: Sequence[Group], step: int, *, problems: int, samples: int
    ) -> Metrics:
        """Count the effects of the active settings on a step."""
        trained = self.choose_groups(groups)
        metrics = {
            "sampling/lag": fmean(
                step - rollout.completion.policy_version for group in groups for rollout in group
            )
        }
        if self.max_extra_problems is not None:
            metrics |= {
                "groups/extra": float(len(groups) - problems),
                "groups/trained": float(len(trained)),
            }
        if self.first_samples is not None:
            metrics["groups/stopped"] = fmean(len(group) < samples for group in groups)
        if self.mask_unfinished:
            metrics["length/masked"] = float(len(self.masked_ids(trained)))
        return metrics


def join_groups(groups: Sequence[Group], later: Sequence[Group]) -> list[Group]:
    """Add later responses to their groups; two phases give the same group as one."""
    by_group_id = {group[0].group_id: group for group in later}
    return [group + by_group_id.get(group[0].group_id, ()) for group in groups]


SampleStep = Callable[[int], list[Group]]
"""Step -> its groups, sampled with the current weights."""


class GroupSource(Protocol):
    """A source of the rewarded groups of each step; checkpoints hold its state."""

    def take(self, step: int) -> list[Group]:
        """Return the groups that a step trains on, after the step's weights were published."""
        ...

    def join(self) -> None:
        """Wait, after a step, for sampling that must end before weights change."""
        ...

    def metrics(self) -> Metrics:
        """Measure the sampling since the last call."""
        ...

    def drop(self) -> None:
        """Drop sampled groups, once the weights that sampled them have been replaced."""
        ...

    def save(self, folder: Path) -> Json: ...

    def load(self, folder: Path, state: Json) -> None: ...


class RolloutQueue:
    """Batches of rollouts, each sampled `lag` steps early; checkpoints hold the queue."""

    def __init__(self, sample: SampleStep, *, steps: int, lag: int) -> None:
        self.sample = sample
        self.steps = steps
        self.lag = lag
        self._waiting: deque[list[Group]] = deque()

    def take(self, step: int) -> list[Group]:
        """Return the batch of a step, after sampling up to `lag` steps ahead."""
        while len(self._waiting) <= self.lag and step + len(self._waiting) < self.steps:
            self._waiting.append(self.sample(step + len(self._waiting)))
        return self._waiting.popleft()

    def join(self) -> None:
        """Do nothing: sampling ends within `take`."""

    def metrics(self) -> Metrics:
        """Return nothing: no sampling runs in the background."""
        return {}

    def drop(self) -> None:
        """Empty the queue."""
        self._waiting.clear()

    def save(self, folder: Path) -> Json:
        for index, groups in enumerate(self._waiting if get_world().is_rank_zero else ()):
            write_rollouts(waiting_file(folder, index), groups)
        return len(self._waiting)

    def load(self, folder: Path, state: Json) -> None:
        if not isinstance(state, int):
            raise DataError(
                f"checkpoint {folder} does not record how many batches wait: start the run again"
            )
        self._waiting = deque(
            group_rollouts(read_rollouts(waiting_file(folder, index))) for index in range(state)
        )


def waiting_file(folder: Path, index: int) -> Path:
    """Name the file in a checkpoint for sampled groups that no step has trained on."""
    return folder / f"waiting-{index:03d}.parquet"


class OverlappedQueue(RolloutQueue):
    """A queue that a thread fills: `take` starts the thread, and `join` waits for its end.

    The batch of step s + lag is sampled with the weights of step s, as in `RolloutQueue`. Between
    `take` and `join` no weights may be pushed, and nothing that sampling reads may change, such as
    the sampler's observations. `clock` counts the seconds that a step waits as sampling;
    `background` is the clock of `sample`.
    """

    def __init__(
        self, sample: SampleStep, *, steps: int, lag: int, clock: Clock, background: Clock
    ) -> None:
        super().__init__(sample, steps=steps, lag=lag)
        self._clock = clock
        self._background = background
        self._world = get_world().for_thread()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def take(self, step: int) -> list[Group]:
        assert self._thread is None, "the batch before is joined first"
        if not self._waiting:
            with self._clock.measure("sample"):
                self._waiting.append(self.sample(step))
        batch = self._waiting.popleft()
        # A second Ctrl-C ends the run without waiting for responses.
        self._thread = threading.Thread(target=self._fill, args=(step + 1,), daemon=True)
        self._thread.start()
        return batch

    def join(self) -> None:
        if self._thread is None:
            return
        with self._clock.measure("sample"):
            self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error

    def metrics(self) -> Metrics:
        metrics = self._background.lap()
        seconds = metrics["time/sample"] + metrics["time/grade"]
        engine = {name: value for name, value in metrics.items() if name.startswith("engine/")}
        return engine | {"engine/sample_s": seconds}

    def _fill(self, step: int) -> None:
        try:
            with world_of_thread(self._world):
                while len(self._waiting) < self.lag and step + len(self._waiting) < self.steps:
                    self._waiting.append(self.sample(step + len(self._waiting)))
        except BaseException as error:  # raised again by `join`
            self._error = error
