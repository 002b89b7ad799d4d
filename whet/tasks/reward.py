"""Opinions about facts: a reward spec weighs the parts of a Score into one number."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from whet.config import Config
from whet.errors import ConfigError
from whet.types import Group, Rollout, Verdict


class RewardSpec(Config):
    """Weights of score parts; the same stored rollouts can be rewarded again under another spec.

    >>> RewardSpec(weights={"correct": 0.55, "process": 0.3, "length": 0.15}).weights["process"]
    0.3
    """

    weights: dict[str, float] = Field(default={"correct": 1.0})
    """Part name -> weight; the reward is the weighted sum."""

    def apply(self, groups: Sequence[Group]) -> list[Group]:
        """Reward every rollout. One the grader could not score gets no reward and takes no part in training."""
        return [tuple(self._rewarded(rollout) for rollout in group) for group in groups]

    def _rewarded(self, rollout: Rollout) -> Rollout:
        assert rollout.score is not None, "a rollout is scored before it is rewarded"
        if rollout.score.verdict == Verdict.UNSCORED:
            return replace(rollout, reward=None)
        parts = rollout.score.parts
        for name in self.weights:
            if name not in parts:
                known = ", ".join(sorted(parts))
                raise ConfigError(
                    f"reward.weights names {name!r}, which {rollout.problem.task} does not score: {known}"
                )
        return replace(rollout, reward=sum(weight * parts[name] for name, weight in self.weights.items()))
