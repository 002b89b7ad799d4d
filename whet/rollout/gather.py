"""What a training step gathers: which problems get more answers or are replaced, and batches
sampled ahead. Engine and learner share their weights and take turns, so a lag is a queue.
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
from whet.types import Finish, Group, Json

NewRequests = Callable[[int, int], list[GroupRequest]]
"""Index of the first and how many -> requests for problems that are new in this step."""
AnswerRequests = Callable[[Sequence[GroupRequest]], list[Group]]
"""Requests -> their rewarded groups, in order."""


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

    def choose_groups(self, groups: Sequence[Group]) -> list[Group]:
        """Choose the groups to train on."""
        return [group for group in groups if self.refill is None or not is_equal(group)]

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
        """Count what the settings that are on did to a step."""
        trained = self.choose_groups(groups)
        counts = {
            "sampling/lag": fmean(
                step - rollout.completion.version for group in groups for rollout in group
            )
        }
        if self.refill is not None:
            counts |= {
                "groups/extra": float(len(groups) - problems),
                "groups/trained": float(len(trained)),
            }
        if self.first is not None:
            counts["groups/stopped"] = fmean(len(group) < samples for group in groups)
        if self.mask_unfinished:
            counts["length/masked"] = float(len(self.masked_ids(trained)))
        return counts


def gather(
    cfg: GatherConfig, new: NewRequests, answer: AnswerRequests, *, problems: int
) -> list[Group]:
    """Sample the groups of a step; those replaced by others stay in the result."""
    groups = _phases(cfg, new(0, problems), answer)
    budget = cfg.refill or 0
    while budget > 0 and (missing := problems - len(cfg.choose_groups(groups))) > 0:
        count = min(missing, budget)
        groups += _phases(cfg, new(len(groups), count), answer)
        budget -= count
    return groups


def is_equal(group: Group) -> bool:
    """Whether all rewards of a group are the same; answers without one are ignored."""
    return len({rollout.reward for rollout in group if rollout.reward is not None}) <= 1


def _phases(
    cfg: GatherConfig, requests: Sequence[GroupRequest], answer: AnswerRequests
) -> list[Group]:
    """Sample in one phase or two; a completed group is the same either way."""
    if cfg.first is None:
        return answer(requests)
    begun = answer([replace(request, numbers=request.numbers[: cfg.first]) for request in requests])
    open_requests = [
        request for request, group in zip(requests, begun, strict=True) if _is_open(group)
    ]
    later_groups = answer(
        [replace(request, numbers=request.numbers[cfg.first :]) for request in open_requests]
    )
    later = {
        request.index: group for request, group in zip(open_requests, later_groups, strict=True)
    }
    return [
        group + later.get(request.index, ()) for request, group in zip(requests, begun, strict=True)
    ]


def _is_open(group: Group) -> bool:
    return not is_equal(group) or any(rollout.reward is None for rollout in group)


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
        for index, groups in enumerate(self._waiting):
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
