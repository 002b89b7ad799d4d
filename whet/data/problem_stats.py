"""Statistics of problems: counts by task, source, level and split, and their lengths."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from whet.level_bands import NUM_LEVELS, level_label
from whet.types import Problem

NUM_BINS = 20
NO_LEVEL = "none"
_TAIL = 0.99
"""The fraction of lengths with their own bins; longer ones share the last."""


@dataclass(kw_only=True)
class ProblemStats:
    """Counts of problems, added one at a time."""

    unit: str = "words"
    """What lengths are counted in."""
    num_problems: int = 0
    num_without_answer: int = 0
    """Problems with neither an answer nor a payload to be graded by."""
    tasks: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)
    lengths: "array[int]" = field(default_factory=lambda: array("i"))

    def add(self, problem: Problem, length: int) -> None:
        self.num_problems += 1
        self.num_without_answer += problem.answer is None and not problem.payload
        self.tasks[problem.task] += 1
        self.sources[problem.source or "unknown"] += 1
        self.splits[problem.split] += 1
        self.levels[level_label(problem.level, unknown=NO_LEVEL)] += 1
        self.lengths.append(length)

    def level_counts(self) -> list[tuple[str, int]]:
        """List the levels from the easiest; problems without a level come last."""
        names = [*(str(band + 1) for band in range(NUM_LEVELS)), NO_LEVEL]
        return [(name, self.levels[name]) for name in names if self.levels[name]]

    def quantiles(self, fractions: Sequence[float]) -> list[int]:
        """Return the lengths that the given fractions of problems do not exceed."""
        lengths = np.sort(np.asarray(self.lengths))
        return [int(lengths[max(ceil(f * len(lengths)) - 1, 0)]) for f in fractions]

    def histogram(self) -> list[tuple[str, int]]:
        """Count lengths in about twenty round bins; the last bin is open-ended."""
        lengths = np.asarray(self.lengths)
        (tail,) = self.quantiles([_TAIL])
        width = _round_up(max(ceil((tail + 1) / NUM_BINS), 1))
        num_bins = tail // width + 1
        counts = np.bincount(np.minimum(lengths // width, num_bins)).tolist()
        names = [f"{index * width:,} to {(index + 1) * width - 1:,}" for index in range(num_bins)]
        if width == 1:
            names = [f"{index:,}" for index in range(num_bins)]
        return list(zip([*names, f"{num_bins * width:,} or more"], counts, strict=False))


def _round_up(width: int) -> int:
    """Round a width up to one that is easy to read.

    >>> [_round_up(width) for width in (1, 3, 7, 12, 60, 130)]
    [1, 5, 10, 20, 100, 200]
    """
    scale = 1
    while True:
        for factor in (1, 2, 5):
            if width <= factor * scale:
                return factor * scale
        scale *= 10
