"""A reward taken apart: what each part of a score and each shaping term adds to it.

The sum of all amounts of a rollout is its reward. A part's share of the variance is its covariance
with the reward over the variance of the reward, so that all shares add up to 1; one below 0 works
against the others. Within groups, only differences between answers to the same problem count, which
is what a group-relative advantage sees.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.rewards.shaping import UserTerm
from whet.rewards.spec import RewardSpec
from whet.types import Group, Json, Rollout, Verdict

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part or term of a rollout's reward."""

    name: str
    weight: float
    """0 for a part of the score that the spec does not name."""
    value: float | None
    """None for a term that does not count for the verdict."""

    @property
    def amount(self) -> float:
        """What it adds to the reward."""
        return 0.0 if self.value is None else self.weight * self.value

    def to_json(self) -> dict[str, Json]:
        return {
            "part": self.name,
            "weight": self.weight,
            "value": self.value,
            "contribution": self.amount,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSummary:
    """One part or term over many rollouts; what cannot be measured is None."""

    name: str
    weight: float | None
    """None for the whole reward."""
    mean: float | None
    """Of the value before the weight, where there is one."""
    contribution: float
    """Mean of what it adds to the reward."""
    right: float | None
    """The same over right responses."""
    wrong: float | None
    """The same over all others."""
    share: float | None
    """Of the variance of the reward."""
    share_within: float | None
    """The same within groups."""

    def to_json(self) -> dict[str, Json]:
        return {
            "part": self.name,
            "weight": self.weight,
            "mean": self.mean,
            "contribution": self.contribution,
            "right": self.right,
            "wrong": self.wrong,
            "variance_share": self.share,
            "variance_share_within_groups": self.share_within,
        }


def take_apart(spec: RewardSpec, rollout: Rollout) -> list[Part]:
    """List what each part and term adds to the reward of a scored rollout."""
    score = rollout.score
    assert score is not None, "a rollout is scored before it is rewarded"
    parts = [
        Part(name=name, weight=weight, value=score.parts[name])
        for name, weight in spec.weights.items()
    ]
    counts: Counter[str] = Counter()
    for term in spec.terms:
        kind = term.path if isinstance(term, UserTerm) else term.kind
        counts[kind] += 1
        name = f"{kind} (term)" if counts[kind] == 1 else f"{kind} (term {counts[kind]})"
        value = term.value(rollout, score) if term.applies_to(score.verdict) else None
        parts.append(Part(name=name, weight=term.weight, value=value))
    others = {name: value for name, value in score.parts.items() if name not in spec.weights}
    return parts + [Part(name=name, weight=0.0, value=value) for name, value in others.items()]


def summarise_parts(spec: RewardSpec, groups: Sequence[Group]) -> list[PartSummary]:
    """Measure each part over rollouts that have a score, and last the whole reward."""
    graded = [
        (number, rollout, {part.name: part for part in take_apart(spec, rollout)})
        for number, group in enumerate(groups)
        for rollout in group
        if rollout.score is not None and rollout.score.verdict is not Verdict.UNSCORED
    ]
    if not graded:
        return []
    group_R = np.array([number for number, _, _ in graded])
    is_right_R = np.array(
        [
            rollout.score is not None and rollout.score.verdict is Verdict.CORRECT
            for _, rollout, _ in graded
        ]
    )
    weights: dict[str, float] = {}
    for _, _, parts in graded:
        weights |= {name: part.weight for name, part in parts.items()}
    amounts = {name: _amounts([parts for _, _, parts in graded], name) for name in weights}
    reward_R = np.sum(list(amounts.values()), axis=0)

    def summarise(
        name: str, amount_R: Values, weight: float | None, mean: float | None
    ) -> PartSummary:
        return PartSummary(
            name=name,
            weight=weight,
            mean=mean,
            contribution=float(amount_R.mean()),
            right=_mean(amount_R[is_right_R]),
            wrong=_mean(amount_R[~is_right_R]),
            share=_share(amount_R, reward_R, np.zeros_like(group_R)),
            share_within=_share(amount_R, reward_R, group_R),
        )

    rows = []
    for name, weight in weights.items():
        values = [parts[name].value for _, _, parts in graded if name in parts]
        given = np.array([value for value in values if value is not None])
        rows.append(summarise(name, amounts[name], weight, _mean(given)))
    return [*rows, summarise("reward", reward_R, None, None)]


def _amounts(rows: Sequence[Mapping[str, Part]], name: str) -> Values:
    return np.array([row[name].amount if name in row else 0.0 for row in rows])


def _mean(values: Values) -> float | None:
    return float(values.mean()) if len(values) else None


def _share(amount_R: Values, reward_R: Values, group_R: NDArray[np.int64]) -> float | None:
    """Divide the covariance with the reward by the variance of the reward, within groups."""
    amount_R, reward_R = (_center(values, group_R) for values in (amount_R, reward_R))
    variance = float(reward_R @ reward_R)
    # Rewards that are equal but for rounding have no variance to share.
    return float(amount_R @ reward_R) / variance if variance > 1e-18 * len(reward_R) else None


def _center(values: Values, group_R: NDArray[np.int64]) -> Values:
    counts = np.bincount(group_R)
    means = np.bincount(group_R, weights=values) / np.maximum(counts, 1)
    centered: Values = values - means[group_R]
    return centered
