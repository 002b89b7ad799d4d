"""Sampling ahead of training. Engine and learner share their weights and take turns, so the lag is
a queue."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

from whet.errors import DataError
from whet.rollout.collect import siblings
from whet.store.rollouts import read_rollouts, write_rollouts
from whet.types import Group, Json

Sample = Callable[[int], list[Group]]
"""Step -> its groups, sampled with the weights of now."""


class Ahead:
    """Batches of rollouts, each sampled `lag` steps before its own. Those that wait are part of a
    checkpoint."""

    def __init__(self, sample: Sample, *, steps: int, lag: int) -> None:
        self.sample = sample
        self.steps = steps
        self.lag = lag
        self._waiting: deque[list[Group]] = deque()

    def take(self, step: int) -> list[Group]:
        """Give the batch of a step, once those up to `lag` steps later have been sampled."""
        while len(self._waiting) <= self.lag and step + len(self._waiting) < self.steps:
            self._waiting.append(self.sample(step + len(self._waiting)))
        return self._waiting.popleft()

    def drop(self) -> None:
        """Forget what waits, since the weights that sampled it are no more."""
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
