"""Response lengths for a simulation: log-normal by default, or those that a run has stored."""

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean
from typing import Protocol

from whet.errors import DataError
from whet.plan.fleet_events import GroupLengths
from whet.store.run import RunStore

SIGMA = 0.9
"""Standard deviation of the logarithm of a length. An assumption: published runs state only means
and limits."""
LAST_STEPS = 8
"""Steps of a stored run whose responses are read: lengths change while a policy learns."""


class Lengths(Protocol):
    """A source of the response lengths of groups."""

    def draw(self, samples: int, rng: Random) -> GroupLengths: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """Log-normal lengths, cut at a limit; `mean` is the mean after the cut."""

    mean: float
    limit: int

    def __str__(self) -> str:
        if self.mean >= self.limit:
            return (
                f"every response of {self.limit:,} tokens, the limit (--tokens or --like set them)"
            )
        return f"log-normal responses of {self.mean:,} tokens on average, at most {self.limit:,}"

    def draw(self, samples: int, rng: Random) -> GroupLengths:
        if self.mean >= self.limit:
            return [self.limit] * samples
        median = find_median(self.mean, self.limit)
        drawn = (median * rng.lognormvariate(0.0, SIGMA) for _ in range(samples))
        return [max(1, min(self.limit, round(length))) for length in drawn]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLengths:
    """Response lengths of a run, by problem, and the mean length of its prompts."""

    groups: tuple[GroupLengths, ...]
    prompt_tokens: int
    limit: int

    def __str__(self) -> str:
        return f"stored responses of {self.mean:,} tokens on average, at most {self.limit:,}"

    @property
    def mean(self) -> int:
        return round(fmean(length for group in self.groups for length in group))

    def draw(self, samples: int, rng: Random) -> GroupLengths:
        group = rng.choice(self.groups)
        lengths = group if len(group) == samples else rng.choices(group, k=samples)
        return [min(self.limit, length) for length in lengths]


@cache
def find_median(mean: float, limit: int) -> float:
    """Find the median before the cut, by bisection."""
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        if _cut_mean(middle, limit) < mean:
            low = middle
        else:
            high = middle
    return math.exp(low)


def _cut_mean(mu: float, limit: int) -> float:
    """Return the mean of min(length, limit) for a log-normal length of median exp(mu)."""
    normal = NormalDist()
    border = (math.log(limit) - mu) / SIGMA
    below = math.exp(mu + SIGMA**2 / 2) * normal.cdf(border - SIGMA)
    return below + limit * normal.cdf(-border)


def read_lengths(folder: Path) -> StoredLengths:
    """Read response lengths from a run's last training steps, or else from its evaluations."""
    run = RunStore.view(folder)
    stored = [entry for entry in run.list_rollouts() if entry[0] in ("train", "eval")]
    latest = [entry for entry in stored if entry[0] == stored[0][0]][-LAST_STEPS:]
    if not latest:
        raise DataError(f"{folder} stores no responses: --like needs a run of rl, tango or eval")
    lengths: dict[tuple[int, str], list[int]] = defaultdict(list)
    prompts = []
    for name, step in latest:
        for rollout in run.rollouts(name, step):
            lengths[step, rollout.group_id].append(max(1, len(rollout.completion.tokens)))
            prompts.append(len(rollout.prompt_tokens))
    groups = tuple(tuple(group) for group in lengths.values())
    return StoredLengths(
        groups=groups, prompt_tokens=round(fmean(prompts)), limit=max(map(max, groups))
    )
