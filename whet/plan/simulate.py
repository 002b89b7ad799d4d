"""RL steps as discrete events: engines and a learner that alternate, overlap by a step, or stream.

Costs are plain numbers here; `whet/plan/splits.py` derives them for a model on GPUs. One step ahead
follows `whet/rollout/step_groups.py`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from whet.plan.fleet_events import Engines, GroupLengths, SimulatedFleet, sampling_seconds

SimulatedBatch = Sequence[GroupLengths]


class Bound(StrEnum):
    """The bottleneck of a step."""

    DECODING = "decoding"
    LONGEST = "the longest response"
    UPDATE = "the update"
    PUSH = "the push of weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLearner:
    """Seconds of an update, of pushing weights, and of the pause of streaming engines in a push."""

    update: float
    push: float = 0.0
    pause: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """The mean step of a run; `oldest` is the most updates between a response's first token and its
    own update."""

    seconds: float
    oldest: int
    bound: Bound
    dropped: float = 0.0
    """Groups that got too old, for each that was trained on."""


def simulate_collocated(
    engines: Engines, learner: SimulatedLearner, batches: Sequence[SimulatedBatch]
) -> SimulatedStep:
    """Simulate ranks that each sample an equal share of a batch, then train on it together."""
    sampling = [_time_shares(engines, batch) for batch in batches]
    seconds = sum(sampling) / len(sampling) + learner.push + learner.update
    bound = _explain(engines, learner, batches[0], sampling)
    return SimulatedStep(seconds=seconds, oldest=0, bound=bound)


def simulate_ahead(
    engines: Engines, learner: SimulatedLearner, batches: Sequence[SimulatedBatch], *, lag: int
) -> SimulatedStep:
    """Simulate a fleet that samples a batch while the learner trains on the one `lag` steps
    earlier; weights are pushed when both are done."""
    sampling = [sampling_seconds(engines, batch) for batch in batches]
    seconds = [learner.push + max(sampled, learner.update) for sampled in sampling]
    bound = _explain(engines, learner, batches[0], sampling)
    return SimulatedStep(seconds=sum(seconds) / len(seconds), oldest=lag, bound=bound)


def simulate_streamed(
    engines: Engines,
    learner: SimulatedLearner,
    draw: Callable[[], GroupLengths],
    *,
    problems: int,
    lag: int,
) -> SimulatedStep:
    """Simulate a fleet that always has requests, and a learner that trains on the `problems` oldest
    finished groups, as `whet/rollout/stream.py` does.

    Problems are asked `lag` steps ahead. A group that finishes too old is dropped and asked again,
    and then waited for. Weights change while responses are being sampled. The first lag + 1 steps,
    which fill the queue, do not count.
    """
    stream = _Stream(engines, draw, problems=problems, lag=lag)
    for _ in range(lag + 1):
        stream.train_step(learner)
    start = stream.seconds
    steps = 2 * (lag + 1)
    stream.num_dropped = 0
    oldest = max(stream.train_step(learner) for _ in range(steps))
    return SimulatedStep(
        seconds=(stream.seconds - start) / steps,
        oldest=oldest,
        bound=find_bound(engines, learner, [draw() for _ in range(problems)], lag=lag)[1],
        dropped=stream.num_dropped / (steps * problems),
    )


def find_bound(
    engines: Engines, learner: SimulatedLearner, batch: SimulatedBatch, *, lag: int | None = None
) -> tuple[float, Bound]:
    """Find the least time of a step, and its bottleneck: its update, its tokens on engines that are
    always full, or its longest response.

    Engines and learner pause during a push. Only a stream, which has a `lag`, continues, and a
    response and its update may take that many steps more than one.
    """
    train = learner.update + learner.push
    full = engines.full_seconds(batch)
    longest = engines.response_seconds(max(map(max, batch)))
    return max(
        (train, Bound.UPDATE if learner.update > learner.push else Bound.PUSH),
        (full + (learner.push if lag is None else learner.pause), Bound.DECODING),
        (longest + learner.push if lag is None else (longest + train) / (lag + 1), Bound.LONGEST),
    )


def _time_shares(engines: Engines, batch: SimulatedBatch) -> float:
    """Time a batch of which each engine gets an equal share at the start, as ranks do."""
    lengths = [length for group in batch for length in group]
    borders = [len(lengths) * number // engines.count for number in range(engines.count + 1)]
    alone = replace(engines, count=1)
    return max(sampling_seconds(alone, [lengths[start:end]]) for start, end in pairwise(borders))


def _explain(
    engines: Engines, learner: SimulatedLearner, batch: SimulatedBatch, sampling: Sequence[float]
) -> Bound:
    """Name the largest part of a step, and the bottleneck of sampling."""
    sampling_bound = find_bound(engines, SimulatedLearner(update=0.0), batch)[1]
    return max(
        (sum(sampling) / len(sampling), sampling_bound),
        (learner.update, Bound.UPDATE),
        (learner.push, Bound.PUSH),
    )[1]


class _Stream:
    """A fleet and its learner. Engines have their own clock, which stops during pauses."""

    def __init__(
        self, engines: Engines, draw: Callable[[], GroupLengths], *, problems: int, lag: int
    ) -> None:
        self.seconds = 0.0
        self.num_dropped = 0
        self._fleet = SimulatedFleet(engines)
        self._draw = draw
        self._problems = problems
        self._lag = lag
        self._num_first = (1 + lag) * problems
        self._num_asked = 0
        self._paused = 0.0
        self._left: dict[int, int] = {}
        """Responses that groups still lack."""
        self._ended: set[int] = set()
        self._anew: dict[int, int] = {}
        """Groups that were dropped and have not ended since, with the version they began at."""
        self._ask(self._num_first)

    def train_step(self, learner: SimulatedLearner) -> int:
        """Simulate a step, and return the age of its oldest response."""
        version = self._fleet.version
        begun = self._fleet.begun
        self._drop_old(self._ended)
        while len(self._ended) < self._problems or any(
            asked + self._lag <= version for asked in self._anew.values()
        ):
            self._drop_old(self._finish_next())
        chosen = sorted(self._ended, key=lambda group: (begun[group], group))[: self._problems]
        oldest = version - begun[chosen[0]]
        self._ended.difference_update(chosen)
        for group in chosen:
            del begun[group]
        self._update(learner)
        return oldest

    def _update(self, learner: SimulatedLearner) -> None:
        """Update and push weights; engines continue, except for a pause at the end, and get more
        requests."""
        end = self.seconds + learner.update + learner.push
        while self._fleet.next_end() + self._paused <= end:
            self._finish_next()
        self.seconds = end
        self._fleet.version += 1
        self._ask(self._problems)
        self._paused += learner.pause

    def _drop_old(self, groups: Iterable[int]) -> None:
        """Ask groups again that finished too old."""
        limit = self._fleet.version - self._lag
        for group in sorted(group for group in groups if self._fleet.begun[group] < limit):
            self.num_dropped += 1
            self._ended.remove(group)
            del self._fleet.begun[group]
            self._anew[group] = self._fleet.version
            self._submit(group, self._draw())
        self._fleet.deal(self.seconds - self._paused)

    def _ask(self, count: int) -> None:
        for number in range(self._num_asked, self._num_asked + count):
            # A long run forgets that its first responses began together. Here they are shorter, as
            # if they had begun one after the other.
            fraction = min(1.0, (number + 1) / self._num_first)
            self._submit(number, [math.ceil(fraction * length) for length in self._draw()])
        self._num_asked += count
        self._fleet.deal(self.seconds - self._paused)

    def _submit(self, number: int, group: GroupLengths) -> None:
        self._left[number] = len(group)
        self._fleet.ask(number, group)

    def _finish_next(self) -> tuple[int, ...]:
        """End a response, and return its group if it was the last one of it."""
        self.seconds = max(self.seconds, self._fleet.next_end() + self._paused)
        group = self._fleet.finish_next()
        self._left[group] -= 1
        if self._left[group]:
            return ()
        del self._left[group]
        self._anew.pop(group, None)
        self._ended.add(group)
        return (group,)
