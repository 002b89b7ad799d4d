"""Engines as discrete events: rows that decode together, and a fleet that deals requests to engines
with free slots, as `whet/engine/fleet.py` does. This module knows nothing about models and GPUs."""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

GroupLengths = Sequence[int]
"""Tokens of the responses to one problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Identical engines, and the seconds of a decode step of each.

    A step takes `by_rows[n]` with n rows, plus `per_token` for each token in the cache. The number
    of slots is the largest n in `by_rows`.
    """

    count: int
    by_rows: tuple[float, ...]
    per_token: float = 0.0
    prompt_tokens: int = 0

    @property
    def slots(self) -> int:
        return len(self.by_rows) - 1

    def response_seconds(self, length: int) -> float:
        """Time one response that an engine decodes alone."""
        context = self.prompt_tokens + length / 2
        return length * (self.by_rows[1] + self.per_token * context)

    def full_seconds(self, batch: Sequence[GroupLengths]) -> float:
        """Time a batch as if every slot were always taken."""
        tokens = sum(map(sum, batch))
        # Long responses are met more often: a row is on average half way through one of these.
        context = (
            self.prompt_tokens + sum(length**2 for group in batch for length in group) / tokens / 2
        )
        step = self.by_rows[self.slots] + self.per_token * self.slots * context
        return tokens * step / (self.slots * self.count)


def sampling_seconds(engines: Engines, batch: Sequence[GroupLengths]) -> float:
    """Time a batch, from the first request to the last response."""
    fleet = SimulatedFleet(engines)
    for number, group in enumerate(batch):
        fleet.ask(number, group)
    fleet.deal(0.0)
    end = 0.0
    while (seconds := fleet.next_end()) < math.inf:
        end = seconds
        fleet.finish_next()
    return end


class SimulatedFleet:
    """Engines that receive requests as slots become free, requests of a group together."""

    def __init__(self, engines: Engines) -> None:
        self.version = 0
        self.begun: dict[int, int] = {}
        """The version with which each group began."""
        self._engines = [_Engine(engines) for _ in range(engines.count)]
        self._queue: deque[tuple[int, int]] = deque()
        self._last = 0, -1
        # Entries of both heaps that no longer hold stay until they come up.
        self._free = [(-engine.num_free, number) for number, engine in enumerate(self._engines)]
        self._ends: list[tuple[float, int]] = []

    def ask(self, number: int, group: GroupLengths) -> None:
        """Queue the requests of a group."""
        self._queue.extend((length, number) for length in group)

    def deal(self, seconds: float) -> None:
        """Hand out requests until no request or no free slot is left."""
        changed: set[int] = set()
        while self._queue and (number := self._find_engine(self._queue[0][1])) is not None:
            length, group = self._queue.popleft()
            engine = self._engines[number]
            engine.advance(seconds)
            engine.add(length, group)
            self._last = number, group
            self.begun.setdefault(group, self.version)
            heapq.heappush(self._free, (-engine.num_free, number))
            changed.add(number)
        for number in sorted(changed):
            heapq.heappush(self._ends, (self._engines[number].end_seconds(), number))

    def next_end(self) -> float:
        """Return the time at which the next response ends; infinity if none is running."""
        while self._ends:
            seconds, number = self._ends[0]
            engine = self._engines[number]
            if engine.rows and engine.end_seconds() == seconds:
                return seconds
            heapq.heappop(self._ends)
        return math.inf

    def finish_next(self) -> int:
        """End the response that `next_end` found, and return its group."""
        seconds, number = heapq.heappop(self._ends)
        engine = self._engines[number]
        group = engine.finish()
        heapq.heappush(self._free, (-engine.num_free, number))
        if engine.rows:
            heapq.heappush(self._ends, (engine.end_seconds(), number))
        self.deal(seconds)
        return group

    def _find_engine(self, group: int) -> int | None:
        """Find the engine that already has the group, else the one with the most free slots."""
        number, last = self._last
        if group == last and self._engines[number].num_free > 0:
            return number
        while self._free:
            free, number = self._free[0]
            if -free == self._engines[number].num_free > 0:
                return number
            heapq.heappop(self._free)
        return None


class _Engine:
    """Rows that each get a token in every tick, and requests that wait for a row."""

    def __init__(self, engines: Engines) -> None:
        self.cost = engines
        self.slots = engines.slots
        self.seconds = 0.0
        self.tick = 0.0
        self.tokens = 0.0
        self.rows: list[tuple[float, int, int]] = []
        """A heap: the tick in which a row ends, its length, its group."""
        self.waiting: deque[tuple[int, int]] = deque()
        self.num_free = self.slots + max(1, self.slots // 8)
        """Slots that are free, and a few places to wait (`Member` in the engine's package)."""

    def add(self, length: int, group: int) -> None:
        self.waiting.append((length, group))
        self.num_free -= 1
        self._admit()

    def end_seconds(self) -> float:
        """Return the time at which the next row ends."""
        ticks = self.rows[0][0] - self.tick
        step, growth = self._step_seconds()
        return self.seconds + ticks * step + growth * ticks**2 / 2

    def advance(self, seconds: float) -> None:
        """Decode up to a time; no row ends before it."""
        passed = seconds - self.seconds
        self.seconds = seconds
        if self.rows and passed > 0:
            step, growth = self._step_seconds()
            # The root of growth / 2 · ticks² + step · ticks = passed, without dividing by growth.
            self._decode(2 * passed / (step + math.sqrt(step**2 + 2 * growth * passed)))

    def finish(self) -> int:
        """Decode until a row ends, and return its group."""
        self.seconds = self.end_seconds()
        self._decode(self.rows[0][0] - self.tick)
        end, length, group = heapq.heappop(self.rows)
        self.tick = end
        self.tokens -= self.cost.prompt_tokens + length
        self.num_free += 1
        self._admit()
        return group

    def _step_seconds(self) -> tuple[float, float]:
        """Return the seconds of the next step, and by how much each later step is slower."""
        rows = len(self.rows)
        per_token = self.cost.per_token
        return self.cost.by_rows[rows] + per_token * self.tokens, per_token * rows

    def _decode(self, ticks: float) -> None:
        self.tick += ticks
        self.tokens += ticks * len(self.rows)

    def _admit(self) -> None:
        while self.waiting and len(self.rows) < self.slots:
            length, group = self.waiting.popleft()
            heapq.heappush(self.rows, (self.tick + length, length, group))
            self.tokens += self.cost.prompt_tokens
