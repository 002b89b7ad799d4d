"""Write the problems of a split and their answers; of a sample, those with the smallest hash.

A sample is held in memory until all rows are read. Which problems it has does not depend on the
order of the rows.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import heappush, heapreplace
from pathlib import Path
from typing import BinaryIO

from whet.rng import derive
from whet.store.rollouts import stream_rollouts
from whet.types import Problem, Rollout


@dataclass(order=True, slots=True)
class _Drawn:
    """A problem of the sample; the largest rank is the first to go."""

    rank: int
    number: int
    problem: Problem = field(compare=False)
    line: bytes = field(compare=False)
    rollouts: list[Rollout] = field(compare=False)


class SplitWriter:
    """Writes the problems of one split, all of them or a sample."""

    def __init__(
        self, *, lines: BinaryIO, rollouts: Path, stack: ExitStack, size: int | None, seed: int
    ) -> None:
        self.size = size
        self.num_problems = self.num_answers = self.num_beyond = 0
        self.tasks = Counter[str]()
        self._seed = seed
        self._lines = lines
        self._add_rollouts: Callable[[Sequence[Rollout]], None] = stack.enter_context(
            stream_rollouts(rollouts)
        )
        self._sample: list[_Drawn] = []
        self._by_id: dict[str, _Drawn] = {}

    def add(self, problem: Problem, line: bytes | None, rollouts: list[Rollout]) -> None:
        """Add a problem with answers to it; without a line, more answers to an earlier one."""
        if self.size is None:
            self._write(problem if line is not None else None, line or b"", rollouts)
        elif line is None:
            if problem.id in self._by_id:
                self._by_id[problem.id].rollouts.extend(rollouts)
        else:
            self._draw(problem, line, rollouts, self.size)

    def finish(self) -> None:
        """Write the sample, in the order of the rows."""
        for drawn in sorted(self._sample, key=lambda one: one.number):
            self._write(drawn.problem, drawn.line, drawn.rollouts)
        self._sample.clear()

    def _draw(self, problem: Problem, line: bytes, rollouts: list[Rollout], size: int) -> None:
        number = len(self._sample) + self.num_beyond
        rank = -derive(self._seed, "sample", problem.id)
        new = _Drawn(rank, number, problem, line, list(rollouts))
        if len(self._sample) < size:
            heappush(self._sample, new)
            self._by_id[problem.id] = new
            return
        self.num_beyond += 1
        if self._sample and new > self._sample[0]:
            del self._by_id[heapreplace(self._sample, new).problem.id]
            self._by_id[problem.id] = new

    def _write(self, problem: Problem | None, line: bytes, rollouts: Sequence[Rollout]) -> None:
        self._lines.write(line)
        if problem is not None:
            self.num_problems += 1
            self.tasks[problem.task] += 1
        self.num_answers += len(rollouts)
        self._add_rollouts(rollouts)
