"""Problems drawn from seeded streams: reproducible, of a wanted level, and in the split their
content hashes to."""

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Literal

from whet.config import Config
from whet.rng import derive, stream
from whet.tasks.base import Task
from whet.tasks.graphs.instance import Sizes
from whet.tasks.graphs.sources import Payload
from whet.types import Problem, Split, content_id

_BANDS: tuple[tuple[Split, int], ...] = (("sft", 35), ("rl", 70), ("dev", 80), ("test", 100))


class GraphConfig(Config):
    """Settings of every graph task."""

    count: int = 1000
    """Problems in each split."""
    level: tuple[float, float] | None = None
    """Lowest and highest level asked; None asks all, from 0 to 1."""
    sizes: Literal["levels", "easy", "hard"] = "levels"
    """Five spans of sizes by level, or one of GraphArena's two."""
    seed: int = 0
    """Another seed gives other problems; the split of a problem stays what it is."""


class DrawnTask(Task):
    """A task that draws its problems. Each says how to draw one of a size, and how to make a
    problem of the draw."""

    name: str
    spans: Sizes

    def __init__(self, config: GraphConfig) -> None:
        self.config = config

    def draw(self, rng: Random, level: float, size: int) -> Payload | None:
        """Draw a payload of about this size; None where the draw is of no use."""
        raise NotImplementedError

    def made(self, payload: Payload, level: float, id: str) -> Problem:
        """Solve what was drawn, and ask it."""
        raise NotImplementedError

    def problems(self, split: Split) -> Iterator[Problem]:
        """Draw the problems of a split. A problem belongs to the split its content hashes to,
        whatever the seed."""
        seen: set[str] = set()
        for index in count():
            if len(seen) >= self.config.count:
                return
            payload, level = self._drawn(derive(self.config.seed, self.name, split, index), None)
            id = content_id(self.name, payload)
            if split_of(id) == split and id not in seen:
                seen.add(id)
                yield self.made(payload, level, id)

    def generate(self, seed: int, level: float | None = None) -> Problem:
        """Draw one problem, the same for the same seed and level."""
        payload, drawn = self._drawn(derive(seed, self.name, "generate"), level)
        return self.made(payload, drawn, content_id(self.name, payload))

    def _drawn(self, seed: int, level: float | None) -> tuple[Payload, float]:
        rng = stream(seed, "graph")
        while True:
            size, rated = self._size(rng, level)
            payload = self.draw(rng, rated, size)
            if payload is not None:
                return payload, rated

    def _size(self, rng: Random, level: float | None) -> tuple[int, float]:
        if level is None and self.config.sizes != "levels":
            size = rng.randint(
                *(self.spans.easy if self.config.sizes == "easy" else self.spans.hard)
            )
            return size, self.spans.level(size)
        level = rng.uniform(*(self.config.level or (0.0, 1.0))) if level is None else level
        level = min(max(level, 0.0), 1.0)
        return self.spans.at(level), level


def split_of(id: str) -> Split:
    """Say which split an id belongs to: 35 in a hundred sft, 35 rl, 10 dev, 20 test."""
    place = int(id.rsplit("/", 1)[-1], 16) % 100
    return next(split for split, end in _BANDS if place < end)
